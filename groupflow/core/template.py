"""Group keys: templates over a message's fields, rendered so that no two messages' fields collide.

{meta_obj_name}:{tenant_id}    fields of the JSON body; {rows.0.id} goes into objects and lists
{header.x-entity}              an AMQP header
{{ and }}                      a literal brace
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from groupflow.core.errors import Unroutable

MAX_KEY_BYTES = 512
_MAX_TEMPLATE = 1024
_SHOWN = 80
_HEADER = "header."
# C0, DEL, C1, and lone surrogates, which UTF-8 can't carry.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# Not `string.Formatter`, for which ":", "!" and "[" in a field's name are syntax.
_TOKEN = re.compile(r"(?P<literal>[^{}]+)|(?P<brace>[{}])(?P=brace)|\{(?P<path>[^{}]*)\}|[{}]")

MISSING: Final = object()


class TemplateError(ValueError):
    """A template or a path that can't be used; the message says where and what to write."""


def show(value: object) -> str:
    """A stranger's value for a log: on one line, escaped, cut to 80 characters."""
    if isinstance(value, str | bytes):
        value = value[: _SHOWN + 1]
    elif isinstance(value, dict | list | tuple):
        return f"{_kind(value)} of {len(value)}"
    try:
        text = ascii(value)
    except Exception:  # noqa: BLE001  a stranger's repr must not fail a reason
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def require_text(value: object, what: str) -> str:
    """A field (``tenant_id``, say) as text: strings as they are, whole numbers in decimal.

    Raises:
        Unroutable: it is of another type, or has a character that a key can't carry.
    """
    if isinstance(value, str):
        found = None if value.isprintable() else _FORBIDDEN.search(value)
        if found:
            raise Unroutable(
                f"{what} has the control character U+{ord(found.group()):04X} at {found.start()}: "
                f"{show(value)}"
            )
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    hint = " (or a whole number beyond 64 bits)" if isinstance(value, float) else ""
    raise Unroutable(
        f"{what} is {_kind(value)}{hint}, {show(value)}: text or a whole number is needed"
    )


def has_controls(text: str) -> bool:
    """Whether there are control characters in a text, or half a character.

    In a name they could forge lines in a log or on a terminal.
    """
    return _FORBIDDEN.search(text) is not None


def _kind(value: object) -> str:
    names = {
        bool: "true or false",
        float: "a number with a fraction",
        dict: "an object",
        list: "a list",
        tuple: "a list",
        bytes: "bytes",
        type(None): "null",
        str: "text",
        int: "a whole number",
    }
    return names.get(type(value), f"a {type(value).__name__}")


@dataclass(frozen=True, slots=True)
class FieldPath:
    """Where a fact lies: a dotted path into the body, or the name of an AMQP header."""

    text: str  # the path as it was written
    steps: tuple[str, ...]  # what to look up, from the outside in; one step for a header
    in_headers: bool  # it names a header

    @classmethod
    def parse(cls, text: str) -> FieldPath:
        """Read ``dotted.path`` or ``header.NAME``; a header's name may have dots.

        Raises:
            TemplateError: it is too long, or a step is empty, blank-edged or unprintable.
        """
        if len(text) > _MAX_TEMPLATE:
            raise TemplateError(f"The path is longer than {_MAX_TEMPLATE} characters.")
        in_headers = text.startswith(_HEADER)
        steps = (text[len(_HEADER) :],) if in_headers else tuple(text.split("."))
        for step in steps:
            if not step or step != step.strip() or not step.isprintable():
                raise TemplateError(
                    f"The path {show(text)} has an empty or blank-edged step; "
                    "write it like meta.tenant_id or header.NAME."
                )
        return cls(text=text, steps=steps, in_headers=in_headers)

    def find(self, body: Mapping[str, Any], headers: Mapping[str, Any]) -> Any:
        """What lies there, or `MISSING`; null and empty text count as missing."""
        value: Any = body
        if self.in_headers:
            value = headers.get(self.steps[0])
            return MISSING if value is None or value == "" else value
        for step in self.steps:
            if isinstance(value, dict):
                value = value.get(step)
            elif isinstance(value, list) and step.isascii() and step.isdigit():
                index = int(step)
                value = value[index] if index < len(value) else None
            else:
                return MISSING
        return MISSING if value is None or value == "" else value

    def put(self, body: dict[str, Any], headers: dict[str, Any], value: str | int) -> None:
        """Write a value into a message, where `find` reads it.

        Raises:
            Unroutable: the body has something else there.
        """
        if self.in_headers:
            headers[self.steps[0]] = value
            return
        table: Any = body
        for step in self.steps[:-1]:
            table = table.setdefault(step, {})
            if not isinstance(table, dict):
                raise Unroutable(f"its body has something else where {self} is to be")
        if str(table.setdefault(self.steps[-1], value)) != str(value):
            raise Unroutable(f"its body has another {self}")

    def __str__(self) -> str:
        return f"{{{self.text}}}"


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed key template.

    Rendering is injective: different field values never give the same key. Reading a key from the
    left, each value ends at the first character of the literal text that follows it, so `%` and
    those characters (and the rest of such text that is not a letter or digit) are percent-encoded
    within values: ``("a:b", "c")`` gives ``a%3Ab:c`` and ``("a", "b:c")`` gives ``a:b%3Ac``. A
    template with one field needs none of this and takes its value as it is.
    """

    text: str  # the template as it was written
    parts: tuple[str | FieldPath, ...]  # literal text and fields, in turn
    escapes: Mapping[int, str]  # how values' forbidden characters are encoded

    @classmethod
    def parse(cls, text: str) -> Template:
        """Read a template.

        Raises:
            TemplateError: a brace is not closed or opened, a path is wrong, two fields touch, or
                the text can't be part of a key. The message names the position, from 1.
        """
        if not text:
            raise TemplateError('The template is empty; write one like "{entity}:{tenant_id}".')
        if len(text) > _MAX_TEMPLATE:
            raise TemplateError(f"The template is longer than {_MAX_TEMPLATE} characters.")
        found = _FORBIDDEN.search(text)
        if found:
            raise TemplateError(f"At character {found.start() + 1} is a control character.")
        parts = _split(text)
        return cls(text=text, parts=tuple(parts), escapes=_escapes(parts))

    @property
    def fields(self) -> tuple[FieldPath, ...]:
        """The fields it reads, from the left."""
        return tuple(part for part in self.parts if isinstance(part, FieldPath))

    def render(self, body: Mapping[str, Any], headers: Mapping[str, Any], rule: str) -> str:
        """The group key of one message; the rule's name is for the reason of a refusal.

        Raises:
            Unroutable: a field is missing, of a wrong type or has control characters, or the key
                is over 512 bytes in UTF-8.
        """
        rendered = []
        for part in self.parts:
            if isinstance(part, str):
                rendered.append(part)
                continue
            value = part.find(body, headers)
            if value is MISSING:
                raise Unroutable(f"the key field {part} of rule {rule!r} is missing or empty")
            text = require_text(value, f"the key field {part} of rule {rule!r}")
            rendered.append(text.translate(self.escapes) if self.escapes else text)
        key = "".join(rendered)
        # Characters are at most bytes, so most keys need no encoding to be measured.
        if len(key) * 4 > MAX_KEY_BYTES and len(key.encode()) > MAX_KEY_BYTES:
            raise Unroutable(f"the key of rule {rule!r} is over {MAX_KEY_BYTES} bytes: {show(key)}")
        return key


def _split(text: str) -> list[str | FieldPath]:
    """Literal text and fields in turn; no two of a kind side by side."""
    parts: list[str | FieldPath] = [""]
    for token in _TOKEN.finditer(text):
        where = f"At character {token.start() + 1}"
        path, literal = token["path"], token["literal"] or token["brace"]
        last = parts[-1]
        if literal and isinstance(last, str):
            parts[-1] = last + literal
        elif literal:
            parts.append(literal)
        elif path is None:
            what = "{ is not closed; write {{" if token[0] == "{" else "} closes nothing; write }}"
            raise TemplateError(f"{where} a {what} for a brace.")
        elif isinstance(last, FieldPath):
            raise TemplateError(
                f'{where} two fields touch, so that "a"+"bc" and "ab"+"c" would be one group; put '
                "text between them."
            )
        else:
            try:
                parts.append(FieldPath.parse(path))
            except TemplateError as error:
                raise TemplateError(f"{where}: {error}") from None
    return parts if parts[0] else parts[1:]


def _escapes(parts: list[str | FieldPath]) -> dict[int, str]:
    """What to percent-encode in values; nothing where no text stands between two fields."""
    between = [part for part in parts[1:-1] if isinstance(part, str)]
    if not between:
        return {}
    if any("%" in literal for literal in between):
        raise TemplateError("Text between two fields can't have %; write another separator.")
    special = {"%"} | {literal[0] for literal in between}
    special |= {c for literal in between for c in literal if not c.isalnum()}
    return {ord(c): "".join(f"%{byte:02X}" for byte in c.encode()) for c in special}
