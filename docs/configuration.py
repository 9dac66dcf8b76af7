"""Writes docs/configuration.md from the settings: `python docs/configuration.py`.

A test compares the two, so that no setting is missing there and none says other than it does.
"""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from groupflow.settings.load import DELIMITER, PREFIX
from groupflow.settings.model import Settings
from groupflow.settings.rules import GroupRule, HandlerRule, PoolRule
from groupflow.settings.schedules import ScheduleRule
from groupflow.settings.tokens import NamedToken
from groupflow.settings.types import Section

PAGE = Path(__file__).with_name("configuration.md")

HEAD = """\
# Configuration

<!-- Written by docs/configuration.py from groupflow/settings/model.py. Change those. -->

One TOML file, named by `--config`; without it `groupflow.toml` in the current directory, else
`/etc/groupflow/groupflow.toml`, else the defaults. It need not hold more than what differs from
them. [config/groupflow.toml](../config/groupflow.toml) shows every value, and
[config/tenants.toml](../config/tenants.toml) several rules.

Each setting is also

- an **environment variable**, `GROUPFLOW_<SECTION>__<NAME>`, with two underscores;
- a **secret file** of that name (in any case) in the directory that `GROUPFLOW_SECRETS_DIR`
  names, or that systemd hands over as credentials. URLs with passwords belong there.

The environment goes before secrets, secrets before the file. A name that sets nothing is refused,
with the nearest right one. `groupflow check-config` shows what it all comes to, passwords hidden:
of an HTTP handler the host, and of a command its name, is all that is shown anywhere.
"""
RULES = """\
A list: the first rule that matches a message counts, and a message that none matches is plain. In
the environment all rules are one JSON list, `GROUPFLOW_GROUPS`.
"""
HANDLERS = """\
One table for each task type whose handler is a command or a URL: see [handlers.md](handlers.md).
In the environment they are one JSON object, `GROUPFLOW_HANDLERS`.
"""
SCHEDULES = """\
A list of tasks that come by themselves: see [schedules.md](schedules.md). In the environment they
are one JSON list, `GROUPFLOW_SCHEDULES`.
"""
TOKENS = """\
One table for each token that lets its holder do some things and no others; that of `[http]` lets
its holder do all. In the environment they are one JSON object, `GROUPFLOW_HTTP__TOKENS`.
"""
POOLS = """\
One table for each pool of tasks that workers pull over HTTP: see [pools.md](pools.md). In the
environment they are one JSON object, `GROUPFLOW_POOLS`.
"""
METADATA = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
TYPES = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "object": "table",
    "array": "list",
}


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    schema = Settings.model_json_schema()
    for name, field in Settings.model_fields.items():
        if name == "groups":
            parts.append(_section("[[groups]]", RULES, GroupRule, schema, None))
        elif name == "schedules":
            parts.append(_section("[[schedules]]", SCHEDULES, ScheduleRule, schema, None))
        elif name == "handlers":
            parts.append(_section('[handlers."TYPE"]', HANDLERS, HandlerRule, schema, None))
        elif name == "pools":
            parts.append(_section("[pools.NAME]", POOLS, PoolRule, schema, None))
        else:
            model: Any = field.annotation
            parts.append(_section(f"[{name}]", "", model, schema, name))
        if name == "http":
            parts.append(_section("[http.tokens.NAME]", TOKENS, NamedToken, schema, None))
    return "\n".join(parts)


def _section(
    title: str, text: str, model: type[BaseModel], schema: dict[str, Any], prefix: str | None
) -> str:
    """One table of the file; `prefix` where its settings are variables of their own."""
    facts = schema["$defs"][model.__name__]
    lines = [f"## `{title}`", ""]
    about = (model.__doc__ or "").partition(": ")[2].strip()
    about = text.strip() or _sentence(about)
    lines += [about, ""] if about else []
    lines += ["| setting | what it is | value |", "|---|---|---|"]
    words = _words(model)
    for name, field in model.model_fields.items():
        if "$ref" in str(facts["properties"][name].get("additionalProperties")):
            continue  # it is tables, which have a section of their own
        about = words[name]
        if prefix:
            about += f"<br>`{PREFIX}{prefix.upper()}{DELIMITER}{name.upper()}`"
        limits = _limits(_of(field) | facts["properties"][name])
        cells = (f"`{name}`", about, f"{_default(field)}<br>{limits}")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _words(model: type) -> dict[str, str]:
    """What stands below each field; pydantic would look for it at every start of groupflow."""
    words: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if not issubclass(each, Section):
            continue
        for field, below in pairwise(ast.parse(inspect.getsource(each)).body[0].body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    words[name] = " ".join(text.split())
    return words


def _sentence(text: str) -> str:
    """The first paragraph of a docstring, as a sentence in Markdown."""
    first = " ".join(text.partition("\n\n")[0].split())
    return first[:1].upper() + first[1:]


def _of(field: FieldInfo) -> dict[str, Any]:
    """A field's own limits, which the schema leaves out where it may be none."""
    return {
        name: getattr(each, short)
        for each in field.metadata
        for short, name in METADATA.items()
        if hasattr(each, short)
    }


def _limits(facts: dict[str, Any]) -> str:
    """Type and limits, as the JSON schema has them."""
    for choice in facts.get("anyOf", ()):
        if choice.get("type") != "null":
            return _limits(facts | {"anyOf": ()} | choice)
    if "enum" in facts:
        return " or ".join(f"`{_toml(each)}`" for each in facts["enum"])
    kind = TYPES.get(facts.get("type", ""), "text")
    return ", ".join([kind, *_range(facts)])


def _range(facts: dict[str, Any]) -> list[str]:
    """From where to where, how long, of which form."""
    low, high = facts.get("minimum"), facts.get("maximum")
    words = []
    if low is not None and high is not None:
        words.append(f"{_number(low)} to {_number(high)}")
    else:
        words += [f"at least {_number(low)}"] if low is not None else []
        words += [f"at most {_number(high)}"] if high is not None else []
    if "exclusiveMinimum" in facts:
        words.insert(0, f"more than {_number(facts['exclusiveMinimum'])}")
    if "maxLength" in facts:
        words.append(f"{facts.get('minLength', 0)} to {facts['maxLength']} characters")
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
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    return orjson.dumps(value).decode()


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
