"""Queues end up spread over daemons, in any order in which these look at what they have."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupflow.core.errors import GroupflowError, ServerUnreachable, StoreUnavailable
from groupflow.flow.intakes import hand_over_surplus


class Standing:
    """A daemon's place among the consumers of a queue, in the order in which they came."""

    def __init__(self, line: list[str], daemon: str, number: int) -> None:
        self.queue = f"q.{number}"
        self._line, self._daemon = line, daemon
        line.append(daemon)

    @property
    def is_active(self) -> bool:
        return self._line[:1] == [self._daemon]

    def hand_over(self) -> None:
        assert self.is_active
        self._line.append(self._line.pop(0))


class Cluster:
    def __init__(self, queues: int) -> None:
        self.lines = [list[str]() for _ in range(queues)]
        self.spreads: dict[str, Callable[[], Awaitable[list[str]]]] = {}

    def join(self, name: str) -> None:
        places = [Standing(line, name, n) for n, line in enumerate(self.lines)]
        self.spreads[name] = partial(hand_over_surplus, name, places, self._count)

    def leave(self, name: str) -> None:
        del self.spreads[name]
        for line in self.lines:
            line.remove(name)

    async def _count(self) -> int:
        return len(self.spreads)

    def held(self, name: str) -> set[int]:
        """Which queues a daemon has."""
        return {n for n, line in enumerate(self.lines) if line[0] == name}


async def settle(cluster: Cluster, first: list[str]) -> None:
    """Let these look, and then all in turn, until none hands a queue over."""
    for name in first:
        await cluster.spreads[name]()
    for _ in range(len(cluster.lines) * len(cluster.spreads)):
        if not [queue for each in cluster.spreads.values() for queue in await each()]:
            break
    share = math.ceil(len(cluster.lines) / len(cluster.spreads))
    held = [len(cluster.held(name)) for name in cluster.spreads]
    assert max(held) <= share
    assert sum(held) == len(cluster.lines)


@given(st.integers(1, 16), st.integers(1, 6), st.data())
async def test_none_has_more_than_its_share(queues: int, daemons: int, data: st.DataObject) -> None:
    """In any order of arrivals, ends and looks; and each queue has a daemon."""
    cluster = Cluster(queues)
    names = [f"d{n}" for n in range(daemons)]
    changes = [partial(cluster.join, name) for name in names]
    changes += [partial(cluster.leave, name) for name in data.draw(st.permutations(names))[1:]]
    for change in changes:
        change()
        looks = st.lists(st.sampled_from(list(cluster.spreads)), max_size=9)
        await settle(cluster, data.draw(looks))


async def test_two_keep_other_queues() -> None:
    """Else what one gives up, the other would as well."""
    kept = []
    for name in ("a", "b"):
        cluster = Cluster(12)
        cluster.join(name)
        cluster.join("c")
        await cluster.spreads[name]()
        kept.append(cluster.held(name))
    assert kept[0] != kept[1]


AWAY = [StoreUnavailable("away"), ServerUnreachable("Redis", "here", "it refused the user")]


@pytest.mark.parametrize("daemons", [*AWAY, 0, 1])
async def test_a_daemon_that_knows_of_no_other_keeps_all(daemons: int | GroupflowError) -> None:
    """What is told of daemons may be older than they are; or Redis is away, or refuses us."""

    async def count() -> int:
        if isinstance(daemons, GroupflowError):
            raise daemons
        return daemons

    assert await hand_over_surplus("a", [Standing([], "a", n) for n in range(3)], count) == []
