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
MODULES = ("groupflow", "groupflow.testing")
# What stands first is what most will look for.
FIRST = ("App", "Task", "Done", "Retry", "Advance", "Dead", "Publisher", "Message")

HEAD = """\
# Python API

<!-- Written by docs/python_api.py from the docstrings. Change those. -->

All that a handlers' module or a publisher imports; `help(groupflow)` shows the same.
[handlers.md](handlers.md) and [publishing.md](publishing.md) say how it is used.
"""
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):$")
_ENTRY = re.compile(r"^ {4}([\w*]+): (.*)$")
_ROLES = {"Args": "Arguments", "Raises": "Errors"}


def page() -> str:
    """The whole document."""
    parts = [HEAD]
    for name in MODULES:
        module = importlib.import_module(name)
        parts.append(f"## {name}\n\n{_text(_first_paragraph(module))}\n")
        for public in _in_order(module.__all__):
            parts += _described(public, getattr(module, public), "###")
    return "\n".join(parts)


def _in_order(names: list[str]) -> list[str]:
    return sorted(names, key=lambda name: (*[name != each for each in FIRST], name))


def _first_paragraph(module: Any) -> str:
    return (inspect.getdoc(module) or "").partition("\n\n")[0]


def _described(name: str, found: Any, level: str) -> Iterator[str]:
    """A class with its methods, or a function: signature and docstring."""
    said = _text(inspect.getdoc(found) or "")
    yield f"{level} {name}\n\n```py\n{_signature(name, found)}\n```\n\n{said}\n"
    if not inspect.isclass(found):
        return
    for method, each in vars(found).items():
        if method.startswith("_") or not inspect.getdoc(each):
            continue
        if isinstance(each, property):
            yield f"#### {name}.{method}\n\n{_text(inspect.getdoc(each) or '')}\n"
        elif inspect.isfunction(each) or isinstance(each, classmethod):
            yield from _described(f"{name}.{method}", getattr(found, method), "####")


def _signature(name: str, found: Any) -> str:
    if inspect.isclass(found) and issubclass(found, Exception):
        (base,) = found.__bases__
        return f"class {name}({base.__name__})"
    signature = inspect.signature(found)
    kept = [each for each in signature.parameters.values() if each.name != "self"]
    shown = ", ".join(_parameters(kept))
    answer = signature.return_annotation
    ends = "" if inspect.isclass(found) or answer is signature.empty else f" -> {_plain(answer)}"
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
        if each.kind is each.KEYWORD_ONLY and not is_star_shown:
            is_star_shown = True
            yield "*"
        is_star_shown |= each.kind is each.VAR_POSITIONAL
        star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        kind = "" if each.annotation is each.empty else f": {_plain(each.annotation)}"
        yield f"{star}{each.name}{kind}{_default(each)}"


def _default(each: inspect.Parameter) -> str:
    if each.default is each.empty:
        return ""
    shown = repr(each.default)
    return " = …" if shown.startswith("<") else f" = {shown}"


def _plain(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)


def _text(docstring: str) -> str:
    """A docstring as Markdown: its sections become lists."""
    lines: list[str] = []
    entries = is_code = False
    # What stands fenced as `python` in a document is run by a test; these are but glimpses.
    docstring = docstring.replace("```python", "```py")
    for line in re.sub(r"(?<!`)``(?!`)", "`", docstring).split("\n"):
        if line.startswith("```"):
            is_code = not is_code
        if is_code:
            lines.append(line)
        elif section := _SECTION.match(line):
            entries = section[1] in ("Args", "Attributes", "Raises")
            lines += [f"**{_ROLES.get(section[1], section[1])}**", ""]
        elif entries and (entry := _ENTRY.match(line)):
            lines.append(f"- `{entry[1]}`: {entry[2]}")
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
