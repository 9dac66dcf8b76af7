"""What an examination of a server finds: a verdict, what was seen, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that groupflow stands on."""

    name: str  # which, such as `redis.eviction`
    verdict: Verdict
    """``fail``: groupflow can't work or may lose something; ``warn``: an operator should know."""
    found: str  # what was seen
    remedy: str = ""  # what to do, empty where nothing is to be done

    def as_json(self) -> dict[str, str]:
        """The shape of an entry of ``groupflow doctor --json``."""
        return asdict(self)
