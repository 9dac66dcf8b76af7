"""What tests of verbs share with those of what verbs are made of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cli.verbs import Verbs, agreed
from tests.operate.conftest import spread
from tests.operate.spread import Spread

__all__ = ["spread"]


@pytest.fixture
async def groupflow(spread: Spread, tmp_path: Path) -> AsyncIterator[Verbs]:
    """The verbs over four partitions."""
    async with agreed(spread):
        yield Verbs(tmp_path, spread.benches[0].url, spread.name, len(spread.benches))
