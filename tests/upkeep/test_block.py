"""The bounds of a block, to the moment: by a clock that the test moves."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from math import inf
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupflow.core.measures import UpkeepMeasures
from groupflow.upkeep import block
from groupflow.upkeep.block import FRAMES, BlockWatch

LEASE, MOST = 8.0, 60.0


class World:
    def __init__(self) -> None:
        self.now = self.turned = 1000.0
        self.measures = UpkeepMeasures()
        self.is_named = True
        how: Any = {"lease": LEASE, "max_block": MOST, "measures": self.measures}
        self.watch = BlockWatch(lambda: self.turned, self._name, **how)

    def _name(self, running: asyncio.Task[Any] | None) -> Mapping[str, Any]:
        is_it = self.is_named and running is asyncio.current_task()
        return {"task": "a", "fence": 7} if is_it else {}

    def look(self, stood: float) -> tuple[bool, list[str]]:
        """Look once the loop has stood for so long; the answer, and what is logged."""
        self.now = self.turned + stood
        with capture_logs() as logs:
            answer = self.watch.look()
        return answer, [each["event"] for each in logs]


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(block, "monotonic", lambda: world.now)
    world.watch.begin()
    world.watch.look()
    return world


async def test_a_loop_that_has_not_begun_is_none_that_stands(world: World) -> None:
    world.turned = inf
    assert [world.watch.look() for _ in range(2)] == [True, True]
    assert world.watch.is_within
    assert world.measures.loop_blocks == 0


async def test_a_block_is_one_from_a_lease_on(world: World) -> None:
    assert world.look(LEASE - 0.001) == (True, [])
    assert world.look(LEASE) == (True, ["loop.blocked"])
    assert world.look(LEASE + 1) == (True, [])
    world.turned += LEASE + 2
    assert world.look(0.0) == (True, ["loop.unblocked"])
    assert world.look(LEASE) == (True, ["loop.blocked"])
    assert world.measures.loop_blocks == 2


@pytest.mark.parametrize(("is_named", "culprit"), [(True, (7, "a")), (False, None)])
async def test_the_lease_is_given_up_at_the_bound(
    world: World, is_named: bool, culprit: tuple[int, str] | None
) -> None:
    """And until the loop turns it is known who made it do so, where an attempt can be named."""
    world.is_named = is_named
    assert world.look(MOST - 0.001) == (True, ["loop.blocked"])
    assert world.watch.is_within
    assert (world.watch.has_given_up, world.watch.culprit) == (False, None)
    assert world.look(MOST) == (False, ["loop.given_up"])
    assert not world.watch.is_within
    assert (world.watch.has_given_up, world.watch.culprit) == (True, culprit)
    assert world.look(MOST + 1) == (False, [])
    world.turned += MOST + 2
    assert world.look(0.0) == (True, ["loop.unblocked"])
    assert not world.watch.has_given_up
    world.look(MOST)
    assert world.measures.loop_given_up == 2


async def test_it_is_sure_only_at_the_second_look(world: World) -> None:
    """A process that was frozen: we look before its loop has had time to turn."""
    world.turned += 100.0
    assert world.look(MOST) == (False, [])
    world.turned += MOST
    assert world.look(0.0) == (True, [])
    world.turned += 1.0
    assert world.look(MOST) == (False, [])
    assert world.look(MOST) == (False, ["loop.blocked", "loop.given_up"])


async def test_a_block_names_what_blocks_and_what_to_do(world: World) -> None:
    """The handler's own lines, and how long it has stood."""
    world.now += MOST
    with capture_logs() as logs:
        world.watch.look()
        world.now, world.turned = world.now + 1.0, world.turned + MOST + 0.5
        world.watch.look()
    blocked, given_up, unblocked = logs
    assert (blocked["log_level"], given_up["log_level"]) == ("warning", "error")
    assert (blocked["task"], blocked["max_block"], blocked["blocked_for"]) == ("a", MOST, MOST)
    assert blocked["at"]
    assert "make what blocks a plain function" in blocked["remedy"]
    assert "others take its tasks over" in given_up["remedy"]
    assert unblocked["blocked_for"] == MOST + 0.5


def test_where_a_thread_stands_is_told_from_the_inside() -> None:
    def deep(depth: int) -> list[str]:
        return deep(depth - 1) if depth else block._where(sys._getframe())

    found = deep(FRAMES + 3)
    assert len(found) == FRAMES
    assert found[0].startswith(__file__)
    assert found[0].endswith(" deep")
    assert block._where(None) == []


def test_what_called_the_handler_is_left_out() -> None:
    ours = compile("def call(inner): return inner()", f"{block._OURS}/flow/x.py", "exec")
    names: dict[str, Any] = {}
    exec(ours, names)

    def handler() -> list[str]:
        return block._where(sys._getframe())

    assert [each.split()[-1] for each in names["call"](handler)] == ["handler"]
