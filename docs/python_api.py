"""Writes docs/python-api.md from the docstrings: `python docs/python_api.py`.

A test compares the two, so that no public name is missing there and none says other than it does.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("python-api.md")
MODULES = ("groupflow", "groupflow.testing", "groupflow.remote")
# What stands first is what most will look for.
FIRST = ("App", "Task", "Done", "Retry", "Advance", "Dead", "Publisher", "Message", "SyncPublisher")
# What groupflow itself calls, and an application doesn't.
INSIDE = {
    "App.handlers", "App.middlewares", "App.names", "App.running", "App.scans",
    "Message.checked", "Publisher.from_settings",
    "Scan.bind", "Scan.check", "Scan.finds", "Scan.keeps_place", "Scan.key_of", "Scan.place_of",
    "Scan.rows", "Scan.rows_of", "Scan.running", "Scan.work", "Scan.working",
}  # fmt: skip

HEAD = """\
# Python API

<!-- Written by docs/python_api.py from the docstrings. Change those. -->

What a handlers' module, a publisher or a worker of a pool imports; `help(groupflow)` shows the
same. How it is used: [handlers](handlers.md), [publishing](publishing.md), [scans](scans.md),
[pools](pools.md). Errors of publishing, and what to do: [there](publishing.md#from-python).
`SqlScan`: [scans](scans.md#tables-ready-made). Give arguments that have a default by keyword.
"""
# Whose docstring leaves its arguments to that of `__init__`.
MADE = {"Publisher", "Scan", "Worker"}
# What groupflow makes, and an application only reads; and what takes another's arguments.
GIVEN = {"CallNext", "Shard", "SyncPublisher", "Task"} | {
    "App.batch_handler",
    "Publisher.publish",
    "run_batch",
}
# What stands elsewhere: errors of publishing in publishing.md, arguments at another name.
ELSEWHERE = {
    "Publisher.open": r"Raises:.*",
    "Publisher.publish": r"Args:.*(?=Returns:)|Raises:.*",
    "Publisher.publish_many": r"Raises:.*",
    "App.batch_handler": r"    (?:timeout|max_attempts|interval|jitter|dead_on): [^\n]*\n",
    "run_batch": r"    (?:app|state): [^\n]*\n",
}
POINTERS = {
    "Publisher.publish": "The arguments are attributes of [Message](#message), which may stand "
    "in place of them all.",
    "run_batch": "`app` and `state` are as for `run`.",
}
# Whose methods take and answer what another class's do.
ALIKE = {"SyncPublisher": "Publisher"}
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):$")
_ENTRY = re.compile(r"^ {4}([\w*.]+): (.*)$")
_ROLES = {"Args": "Arguments", "Raises": "Errors"}


def page() -> str:
    """The whole document."""
    parts = [HEAD]
    for name in MODULES:
        module = importlib.import_module(name)
        parts.append(f"## {name}\n\n{_text(_first_paragraph(module))}\n")
        names = getattr(module, "__all__", ("Worker",))
        errors = [each for each in names if _is_error(getattr(module, each))]
        for public in _in_order([each for each in names if each not in errors]):
            parts += _described(public, getattr(module, public), "###")
        if errors:
            parts.append("### Errors\n")
            parts += [_error(name, getattr(module, name)) for name in errors]
            parts.append("")
    return "\n".join(parts)


def _is_error(found: Any) -> bool:
    return inspect.isclass(found) and issubclass(found, Exception)


def _error(name: str, found: Any) -> str:
    """A line of a list, with its attributes below it."""
    said = _text(inspect.getdoc(found) or "").replace("**Attributes**\n\n", "")
    said = re.sub(r"\n+", "\n  ", said)
    return f"- `{name}` (`{found.__bases__[0].__name__}`): {said}"


def _in_order(names: list[str]) -> list[str]:
    return sorted(names, key=lambda name: (*[name != each for each in FIRST], name))


def _first_paragraph(module: Any) -> str:
    return (inspect.getdoc(module) or "").partition("\n\n")[0]


def _described(name: str, found: Any, level: str) -> Iterator[str]:
    """A class with its methods, or a function: signature and docstring."""
    docstring = inspect.getdoc(found) or ""
    if name in ELSEWHERE:
        docstring = re.sub(ELSEWHERE[name], "", docstring, flags=re.DOTALL)
    if name in POINTERS:
        first, gap, rest = docstring.partition("\n\n")
        docstring = f"{first} {POINTERS[name]}{gap}{rest}"
    said = docstring + (inspect.getdoc(found.__init__) or "" if name in MADE else "")
    kinds = _kinds(found)
    is_listed = all(re.search(rf"^ {{4}}{each}: ", said, re.MULTILINE) for each in kinds)
    is_short = name in GIVEN or is_listed
    signature = "" if is_short else f"```py\n{_signature(name, found)}\n```\n\n"
    yield f"{level} {name}\n\n{signature}{_text(docstring, kinds)}\n"
    if not inspect.isclass(found):
        return
    if name in MADE:
        yield _text((inspect.getdoc(found.__init__) or "").partition("\n\n")[2], kinds) + "\n"
    if name in ALIKE:
        lines = "\n".join(_alike(found))
        yield f"Its methods take and answer what those of `{ALIKE[name]}` do:\n\n{lines}\n"
        return
    for method, each in vars(found).items():
        if method.startswith("_") or f"{name}.{method}" in INSIDE or not inspect.getdoc(each):
            continue
        if isinstance(each, property):
            yield f"#### {name}.{method}\n\n{_text(inspect.getdoc(each) or '')}\n"
        elif inspect.isfunction(each) or isinstance(each, classmethod):
            yield from _described(f"{name}.{method}", getattr(found, method), "####")


def _kinds(found: Any) -> dict[str, str]:
    """Each parameter, with its type and its default."""
    parameters = inspect.signature(found).parameters.values()
    return {each.name: next(_parameters([each])) for each in parameters if each.name != "self"}


def _alike(found: Any) -> Iterator[str]:
    """A line for each method."""
    for method, each in vars(found).items():
        if not method.startswith("_") and inspect.isfunction(each):
            said = re.split(r"\n+(?:Args|Returns|Raises):", inspect.getdoc(each) or "")[0]
            yield f"- `{method}`: {' '.join(_text(said).split())}"


def _signature(name: str, found: Any) -> str:
    signature = inspect.signature(found)
    kept = [each for each in signature.parameters.values() if each.name != "self"]
    shown = ", ".join(_parameters(kept))
    answer = signature.return_annotation
    is_told = not inspect.isclass(found) and answer is not signature.empty
    ends = f" -> {_plain(answer)}" if is_told and "_" not in _plain(answer) else ""
    keyword = "class " if inspect.isclass(found) else ""
    if inspect.iscoroutinefunction(found):
        keyword = "async "
    line = f"{keyword}{name}({shown}){ends}"
    if len(line) <= 96:  # noqa: PLR2004  columns
        return line
    inside = "".join(f"    {each},\n" for each in _parameters(kept))
    return f"{keyword}{name}(\n{inside}){ends}"


def _parameters(kept: list[inspect.Parameter]) -> Iterator[str]:
    is_star_shown = False
    for each in kept:
        if each.kind is each.KEYWORD_ONLY and not is_star_shown and len(kept) > 1:
            is_star_shown = True
            yield "*"
        is_star_shown |= each.kind is each.VAR_POSITIONAL
        star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        is_told = each.annotation is not each.empty and "_" not in _plain(each.annotation)
        kind = f": {_plain(each.annotation)}" if is_told else ""
        default = _default(each)
        yield f"{star}{each.name}{kind.removesuffix(' | None') if default else kind}{default}"


def _default(each: inspect.Parameter) -> str:
    if each.default is each.empty:
        return ""
    shown = repr(each.default)
    return " = …" if shown.startswith("<") else f" = {shown}"


def _plain(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)


def _text(docstring: str, kinds: dict[str, str] | None = None) -> str:
    """A docstring as Markdown: its sections become lists, of parameters with their types."""
    lines: list[str] = []
    entries = False
    # Other pages show how it is used, at length and tested.
    docstring = re.sub(r"\n*^```python\n.*?^```$", "", docstring, flags=re.DOTALL | re.MULTILINE)
    for line in re.sub(r"(?<!`)``(?!`)", "`", docstring).split("\n"):
        if section := _SECTION.match(line):
            entries = section[1] in ("Args", "Attributes", "Raises")
            lines += [f"**{_ROLES.get(section[1], section[1])}**", ""]
        elif entries and (entry := _ENTRY.match(line)):
            lines.append(f"- `{(kinds or {}).get(entry[1], entry[1])}`: {entry[2]}")
        elif entries and line.startswith("        "):
            lines.append(f"  {line.strip()}")
        elif entries and re.match(r"^ {4}\w[\w, ]*: ", line):
            names, _, said = line.strip().partition(": ")
            lines.append(f"- `{names}`: {said}")
        else:
            lines.append(line[4:] if line.startswith("    ") and not entries else line)
    return "\n".join(lines).strip()


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
