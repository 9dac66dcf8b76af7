"""A short soak: a dozen faults on real daemons, and not one promise broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verification.soak.__main__ import show, soak
from tests.verification.soak.nemesis import plan


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_dozen_faults_break_nothing(tmp_path: Path) -> None:
    result = await soak(tmp_path, seed=12, faults=12)
    said = show(result, "python -m tests.verification.soak --seed 12 --faults 12")
    assert result.verdict.violations == [], said
    assert result.faults.total() + result.skipped.total() == 12
    assert result.verdict.figures["tasks"] > 200, said


def test_a_seed_is_a_plan() -> None:
    once, again = (plan(7, 200, 3) for _ in range(2))
    assert [(after, type(fault), vars(fault)) for after, fault in once] == [
        (after, type(fault), vars(fault)) for after, fault in again
    ]
