"""Replies of operators' scripts: names with their values, in a flat list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groupflow.store.clock import seconds


def named(flat: Sequence[Any], *times: str) -> dict[str, Any]:
    """A reply, or a row of one, as a dict; a name without a value is not in it.

    The values of `times` are microseconds; they become seconds.
    """
    facts: dict[str, Any] = {}
    for name, value in zip(flat[::2], flat[1::2], strict=True):
        facts[name.decode()] = value.decode() if isinstance(value, bytes) else value
    return facts | {name: seconds(facts[name]) for name in times if name in facts}
