"""The configurations of rigs, as TOML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson


def toml_of(settings: Mapping[str, Any]) -> str:
    """A section for each name; `rule` is what the groups' rule has beside its key."""
    lines: list[str] = []
    for section, values in settings.items():
        if section != "rule":
            lines += [f"[{section}]", *lines_of(values)]
    lines += ["[[groups]]", 'app = "crm"', 'key = "{entity}:{tenant_id}"']
    return "\n".join([*lines, *lines_of(settings.get("rule", {})), ""])


def lines_of(values: Mapping[str, Any]) -> list[str]:
    """Settings, a line each."""
    return [f"{name} = {orjson.dumps(value).decode()}" for name, value in values.items()]
