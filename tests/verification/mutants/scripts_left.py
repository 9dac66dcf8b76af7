"""The mutants of scripts that no test kills, and why: `left_scripts.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

LISTED = Path(__file__).with_name("left_scripts.toml")


@dataclass(frozen=True, slots=True)
class Left:
    """A mutant that lives on.

    Attributes:
        file: as `read_lua` takes it.
        line: of the script, without its indentation.
        becomes: what the mutant makes of it.
        nth: which of the lines that are alike and become the same, from 1.
        verdict: ``equivalent`` where nobody could tell it from the script, else ``left``.
        reason: why that is, or why no test is worth it.
    """

    file: str
    line: str
    becomes: str
    nth: int
    verdict: str
    reason: str

    @property
    def key(self) -> tuple[str, str, str, int]:
        """As `Mutant.key`."""
        return self.file, self.line, self.becomes, self.nth


def read_left() -> list[Left]:
    """All that are listed, of each reason one after the other."""
    reasons = tomllib.loads(LISTED.read_text("utf-8"))["reason"]
    return [
        Left(file, line, becomes, nth[0] if nth else 1, reason["verdict"], reason["why"])
        for reason in reasons
        for file, line, becomes, *nth in reason["mutants"]
    ]
