"""Damages with a name: those that one would do by mistake, and no operator does."""

from __future__ import annotations

from pathlib import Path

from tests.verification.mutants.places import Mutant, named

# File, function, what stands there, what stands there instead.
_DAMAGES = (
    # The lease counts from the answer instead of the sending,
    (
        "upkeep/renew.py",
        "Renewer.run_once",
        "self._answered_at(sent)\n        if self._begin():",
        "self._answered_at(monotonic())\n        if self._begin():",
    ),
    (
        "upkeep/renew.py",
        "Renewer.open",
        "self._answered_at(sent)\n        self.is_begun = False",
        "self._answered_at(monotonic())\n        self.is_begun = False",
    ),
    # or from that of a renewal which had no answer.
    (
        "upkeep/renew.py",
        "Renewer.run_once",
        "except TimeoutError:\n",
        "except TimeoutError:\n            self._answered = sent\n",
    ),
)


def damages(root: Path) -> list[Mutant]:
    """All of them."""
    return [
        named(root / "groupflow" / path, root, function, before, after)
        for path, function, before, after in _DAMAGES
    ]
