"""What is wrong with a configuration, for its operator: setting, value, remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from groupflow.core.errors import Problem
from groupflow.core.masking import HIDDEN, mask_place, mask_secrets, mask_url
from groupflow.core.template import show
from groupflow.settings.model import Settings
from groupflow.settings.rules import Override
from groupflow.settings.types import Section

Location = Sequence[int | str]

_URLS = {"url", "management"}
_HIDDEN_SETTINGS = {"token", *_URLS}
_SHOWN_OF_HANDLERS = {"timeout", *Override.model_fields}
_SHOWN = 80
_TABLE_OF_TOKEN = len(("http", "tokens", "name"))

_REMEDIES: dict[str, str] = {
    "greater_than_equal": "Set it to at least {ge}.",
    "greater_than": "Set it to more than {gt}.",
    "less_than_equal": "Set it to at most {le}.",
    "less_than": "Set it to less than {lt}.",
    "finite_number": "Set it to a finite number.",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "Set it to a whole number."),
    "int_parsing_size": "Set it to a whole number within 64 bits.",
    **dict.fromkeys(("float_type", "float_parsing"), "Set it to a number."),
    "string_type": "Set it to a text in quotes.",
    "string_too_short": "Set it to a text that is not empty.",
    "string_too_long": "Shorten it to at most {max_length} characters.",
    "literal_error": "Set it to one of {expected}.",
    "missing": "It is required: add it.",
    **dict.fromkeys(("list_type", "tuple_type"), "Set it to a list."),
    "value_error": "{error}",
    **dict.fromkeys(
        ("model_type", "model_attributes_type", "dict_type"), "Write it as a section: [{setting}]."
    ),
    "string_pattern_mismatch": "Use letters, digits, '.', '_' and '-', at most 64, the first a "
    "letter or digit.",
}


def problems_of(error: ValidationError, origins: Mapping[str, str]) -> list[Problem]:
    """The problems in pydantic's findings.

    `origins` has the settings that don't come from the file.
    """
    return [_problem(detail, origins) for detail in error.errors(include_url=False)]


def _problem(detail: ErrorDetails, origins: Mapping[str, str]) -> Problem:
    location = detail["loc"]
    if location[:2] == ("tenants", "named"):  # written as [tenants.NAME]
        location = (location[0], *location[2:])
    if location[-1:] == ("[key]",):  # the name of a table is wrong
        location = location[:-1]
    setting = dotted(location)
    below = (name for name in origins if len(location) > 1 and name.startswith(f"{setting}."))
    origin = next((origins[name] for name in (setting, *below) if name in origins), "")
    suffix = f" It comes from {origin}." if origin else ""
    if detail["type"] == "extra_forbidden":
        # Its value is not shown: under a wrong name, anything may be a secret.
        return Problem(setting, "", unknown_remedy(location) + suffix)
    return Problem(setting, _display(location, detail), _remedy(setting, detail) + suffix)


def _display(location: Location, detail: ErrorDetails) -> str:
    value = detail["input"]
    if detail["type"] == "missing":
        return ""
    if _is_hidden(location) and value and not isinstance(value, Mapping):
        return _masked(location[-1], value)
    if isinstance(value, Mapping) or (isinstance(value, list | tuple) and len(location) == 1):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return mask_secrets(ascii(value)[:_SHOWN] if isinstance(value, list | tuple) else show(value))


def _is_hidden(location: Location) -> bool:
    """Whether a secret may stand there, even by mistake.

    Of a handler: a command, a word of one, a URL, or one of them where a table belongs. Of
    `http.tokens`: a token where a table belongs.
    """
    if len(location) <= 1:
        return False
    in_handlers = location[0] == "handlers" and location[-1] not in _SHOWN_OF_HANDLERS
    in_tokens = tuple(location[:2]) == ("http", "tokens") and len(location) <= _TABLE_OF_TOKEN
    return in_handlers or in_tokens or location[-1] in _HIDDEN_SETTINGS


def _masked(setting: int | str, value: object) -> str:
    if setting in _URLS and isinstance(value, list) and all(isinstance(u, str) for u in value):
        return ascii([mask_url(each) for each in value])[:_SHOWN]
    if not isinstance(value, str):
        return HIDDEN
    if setting in _URLS:
        return mask_url(value)
    return mask_place(value) if setting == "http" else HIDDEN


def _remedy(setting: str, detail: ErrorDetails) -> str:
    template = _REMEDIES.get(detail["type"])
    if template is None:
        return detail["msg"] + "."
    context = {"setting": setting, **detail.get("ctx", {})}
    if "expected" in context:
        context["expected"] = context["expected"].replace("'", '"')
    return template.format(**context)


def dotted(location: Location) -> str:
    """A setting's name as an operator writes it: ``groups[0].key``, ``handlers."a.b".exec``."""
    name = ""
    for step in location:
        if isinstance(step, int):
            name += f"[{step}]"
        else:
            plain = step.isascii() and step.replace("_", "").replace("-", "").isalnum()
            text = step if plain else '"' + show(step)[1:-1] + '"'
            name += f".{text}" if name else text
    return name


def unknown_remedy(location: Location, rest: Location = ()) -> str:
    """What to write instead of a setting that does not exist.

    The location ends with the first name that is wrong; the rest was written after it.
    """
    *parents, last = location
    known = sorted(known_names(parents))
    close = get_close_matches(str(last).lower(), known, n=1)
    if close:
        return f"There is no such setting. Did you mean {dotted([*parents, close[0], *rest])}?"
    elsewhere = [
        f"{section}.{last}" for section in Settings.model_fields if last in known_names([section])
    ]
    if elsewhere:
        return f"There is no such setting. Did you mean {' or '.join(elsewhere)}?"
    where = f"[{dotted(parents)}]" if parents else "The file"
    return f"There is no such setting. {where} may have: {', '.join(known)}."


def known_names(location: Location) -> set[str]:
    """The names that may stand in the section at `location`; none where it is no section."""
    found: Any = Settings
    if location[:1] == ["tenants"] and len(location) > 1:  # the table of one
        location = ["tenants", "named", *location[1:]]
    for step in location:
        if _is_section(found):
            field = found.model_fields.get(str(step))
            found = field.annotation if field else None
        else:  # a list or a table of sections
            found = next(filter(_is_section, get_args(found)), None)
    return set(found.model_fields) - {"named"} if _is_section(found) else set()


def _is_section(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)
