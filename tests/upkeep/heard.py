"""A listener of a renewer, for tests."""

from __future__ import annotations

from collections.abc import Set
from typing import Any


class Heard:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def hear(self, what: Any) -> None:
        """Write one thing down."""
        self.all.append(what)

    def lease_ended(self) -> None:
        self.hear("ended")

    def session_lost(self) -> None:
        self.hear("lost")

    def session_opened(self) -> None:
        self.hear("opened")

    def session_continued(self) -> None:
        self.hear("continued")

    def claimable(self, plain: int, groups: int, cancels: Set[str] = frozenset()) -> None:
        self.hear((plain, groups))
