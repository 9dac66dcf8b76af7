"""What an examination of a server finds: a verdict, what was seen, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that groupflow stands on.

    Attributes:
        name: which, such as ``redis.eviction``.
        verdict: ``fail`` where groupflow can't work or may lose something; ``warn`` where somebody
            should know.
        found: what was seen.
        remedy: what to do, empty where nothing is to be done.
    """

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        """The shape of an entry of ``groupflow doctor --json``."""
        return asdict(self)
