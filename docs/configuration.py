"""Writes docs/configuration.md from the settings: `python docs/configuration.py`.

A test compares the two, so that no setting is missing there and none says other than it does.
"""

from __future__ import annotations

import ast
import inspect
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from groupflow.settings.load import DELIMITER, PREFIX
from groupflow.settings.model import Settings
from groupflow.settings.rules import GroupRule, HandlerRule, PoolRule, ScheduleRule, TypeRule
from groupflow.settings.tokens import NamedToken
from groupflow.settings.types import Section
from groupflow.settings.urls import SecretUrl

PAGE = Path(__file__).with_name("configuration.md")

HEAD = f"""\
# Configuration

<!-- Written by docs/configuration.py from groupflow/settings/model.py. Change those. -->

groupflow reads one TOML file: the one that `--config` names; else `groupflow.toml` in the current
directory; else `/etc/groupflow/groupflow.toml`. Without any, the defaults hold. Write only what
differs from them. [config/groupflow.toml](../config/groupflow.toml) shows them, and
[config/tenants.toml](../config/tenants.toml) several rules.

Each setting is also

- an **environment variable**, `{PREFIX}<SECTION>{DELIMITER}<NAME>`, with two underscores:
  `{PREFIX}REDIS{DELIMITER}URL`. Lists of tables and named tables are one JSON value each:
  `{PREFIX}GROUPS`, `{PREFIX}HANDLERS`, `{PREFIX}SCHEDULES`, `{PREFIX}POOLS`,
  `{PREFIX}TYPES`, `{PREFIX}HTTP{DELIMITER}TOKENS`;
- a **secret file** of that name, in upper or lower case, in the directory that
  `{PREFIX}SECRETS_DIR` names or that systemd hands over as credentials. Put URLs with passwords
  there.

The environment wins over secret files, and these over the TOML file. groupflow refuses an unknown
name and tells the nearest known one. `groupflow check-config` prints the result as TOML,
passwords hidden. Of an HTTP handler it shows the host, of a command the name; so does everything
else that shows a configuration. To change it while daemons run: [reload](configuration-changes.md).

Defaults and limits are in parentheses. A default with a point, such as `8.0`, may be a fraction.
"""
# What stands above the settings of a section that isn't a field's own model.
ABOUT = {
    "[[groups]]": "Rules, tried in order: the first that matches a message counts. A message that "
    "none matches is plain.",
    '[handlers."TYPE"]': "A table for each task type whose handler is a "
    "[command](handlers.md#commands) or a [URL](handlers.md#urls).",
    "[[schedules]]": "Tasks that come [by themselves](schedules.md).",
    "[http.tokens.NAME]": "A table for each token with fewer rights; that of `[http]` has all.",
    '[types."PATTERN"]': "[Limits](limits.md#types) of all tasks of a type, or of all types that "
    'begin so: `[types."import.*"]`. The first table that matches holds.',
    "[pools.NAME]": "A table for each [pool](pools.md) of tasks that workers pull over HTTP.",
}
TITLES = {
    "types": ('[types."PATTERN"]', TypeRule),
    "groups": ("[[groups]]", GroupRule),
    "handlers": ('[handlers."TYPE"]', HandlerRule),
    "schedules": ("[[schedules]]", ScheduleRule),
    "pools": ("[pools.NAME]", PoolRule),
}
METADATA = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def page() -> str:
    """The whole page."""
    schema = Settings.model_json_schema()["$defs"]
    written: dict[str, str] = {}  # of settings that sections share: where they are explained
    parts = [HEAD]
    for name, field in Settings.model_fields.items():
        model: Any = field.annotation
        parts.append(_section(*TITLES.get(name, (f"[{name}]", model)), schema, written))
        if name == "http":
            parts.append(_section("[http.tokens.NAME]", NamedToken, schema, written))
    return "\n".join(parts)


def _section(
    title: str, model: type[BaseModel], schema: dict[str, Any], written: dict[str, str]
) -> str:
    """One table of the file."""
    lines = [f"## `{title}`", ""]
    if about := ABOUT.get(title) or _sentence((model.__doc__ or "").partition(": ")[2]):
        lines += [about, ""]
    rows = list(_rows(model, schema[model.__name__], written))
    for (words, value), alike in groupby(rows, key=lambda row: row[1:]):
        names = ", ".join(f"`{row[0]}`" for row in alike)
        lines.append(f"- {names}{value and f' ({value})'}: {words}")
    written.update(
        {f"{base.__name__}.{name}": f"`{title}`" for base, name, _ in _fields(model)},
    )
    return "\n".join(lines) + "\n"


def _fields(model: type[BaseModel]) -> list[tuple[type, str, str]]:
    """Each setting, the class that has it, and its words, which stand below it in the source.

    Pydantic could read them too, but would at every start of groupflow.
    """
    found = {}
    for each in reversed(model.__mro__):
        if not issubclass(each, Section):
            continue
        for field, below in pairwise(ast.parse(inspect.getsource(each)).body[0].body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    found[name] = (each, name, " ".join(text.split()))
    return [found[name] for name in model.model_fields if name in found]


def _rows(model: Any, facts: dict[str, Any], written: dict[str, str]) -> Any:
    """Name, words and value of each setting; of one that is explained elsewhere, where."""
    for base, name, words in _fields(model):
        field = model.model_fields[name]
        if "$ref" in str(facts["properties"][name].get("additionalProperties")):
            continue  # it is tables, which have a section of their own
        if words.startswith("As in"):
            yield name, words.replace("[retry].", "`[retry]`, which it overrides."), ""
        elif where := written.get(f"{base.__name__}.{name}"):
            yield name, f"As in {where}.", ""
        else:
            value = "; ".join([_default(field), *_range(_of(field) | _chosen(facts, name))])
            yield name, words, value


def _sentence(text: str) -> str:
    """A docstring as sentences in Markdown."""
    text = " ".join(text.split()).replace("``", "`")
    return text[:1].upper() + text[1:]


def _of(field: FieldInfo) -> dict[str, Any]:
    """A field's own limits, which the schema leaves out where it may be none."""
    return {
        name: getattr(each, short)
        for each in field.metadata
        for short, name in METADATA.items()
        if hasattr(each, short)
    }


def _chosen(facts: dict[str, Any], name: str) -> dict[str, Any]:
    """What the JSON schema says of a setting where it isn't none."""
    found: dict[str, Any] = facts["properties"][name]
    for choice in found.get("anyOf", ()):
        if choice.get("type") != "null":
            return found | choice
    return found


def _range(facts: dict[str, Any]) -> list[str]:
    """Which values, from where to where, how long, of which form."""
    if "enum" in facts:
        others = [f"`{_toml(each)}`" for each in facts["enum"] if each != facts["default"]]
        return [f"or {', '.join(others)}"]
    low, high = facts.get("minimum"), facts.get("maximum")
    words = []
    if low is not None and high is not None:
        words.append(f"{_number(low)} to {_number(high)}")
    else:
        # That a count isn't below 0 or 1 goes without saying.
        words += [f"at least {_number(low)}"] if low is not None and low > 1 else []
        words += [f"at most {_number(high)}"] if high is not None else []
    if "exclusiveMinimum" in facts:
        words.insert(0, f"more than {_number(facts['exclusiveMinimum'])}")
    if "maxLength" in facts:
        words.append(f"up to {facts['maxLength']} characters")
    elif "minLength" in facts:
        words.append("not empty")
    return words + ([f"matching `{facts['pattern']}`"] if "pattern" in facts else [])


def _number(value: Any) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value == int(value) else f"{value}"


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "`{}`"
    if field.default is PydanticUndefined:
        return "required"
    if field.default is None:
        return "none"
    return f"`{_toml(field.default)}`"


def _toml(value: Any) -> str:
    """A value as the file has it; defaults of any type hold no secrets."""
    if isinstance(value, SecretStr | SecretUrl):
        value = value.get_secret_value()
    return orjson.dumps(value).decode()


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
