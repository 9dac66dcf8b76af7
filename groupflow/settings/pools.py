"""What a configuration says of pools: which tasks wait for workers that pull."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from groupflow.settings.section import Section
from groupflow.settings.types import Seconds

MOST = 100  # pools of a configuration: a script that places a group looks at the indexes of each
PoolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


def _plain(value: str) -> str:
    if not value.isprintable():
        raise ValueError("Leave out control characters.")
    return value


_Type = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_plain)]


class PoolRule(Section):
    """One `[pools.NAME]`: tasks for workers anywhere, which pull them over HTTP."""

    types: tuple[_Type, ...] = Field(min_length=1)
    """The task types that wait here, in place of handlers of daemons."""
    lease: Seconds = Field(default=60.0, ge=1, le=86_400)
    """Seconds of silence after which what a worker holds goes back to the pool."""
    max_workers: int = Field(default=1000, ge=1, le=100_000)
    """How many workers may have a lease at a time; what one more asks for is answered with 429."""


def types_once(pools: dict[str, PoolRule]) -> dict[str, PoolRule]:
    """Refuse a type that is in two pools."""
    pool_by_type(pools)
    return pools


def pool_by_type(pools: Mapping[str, PoolRule]) -> dict[str, str]:
    """The pool of each type that has one.

    Raises:
        ValueError: a type has two.
    """
    found: dict[str, str] = {}
    for name, rule in pools.items():
        for each in rule.types:
            if found.setdefault(each, name) != name:
                raise ValueError(
                    f"Type {each!r} is in pools {found[each]!r} and {name!r}: leave it in one."
                )
    return found
