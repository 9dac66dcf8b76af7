"""What the tests of single exchanges share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow.lobby import World


@pytest.fixture
async def world() -> Any:
    world = World()
    try:
        yield world
    finally:
        if world.running is not None:
            world.running.cancel()
