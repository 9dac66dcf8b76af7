"""Limits by hand in a namespace of several partitions: a group's in one, a tenant's in all."""

from __future__ import annotations

from typing import Any

import pytest

from groupflow.core.limits import HandLimit
from groupflow.operate.limits import LimitsByHand
from groupflow.operate.namespace import Namespace
from groupflow.store.partitions import partition_of
from groupflow.store.settlements import Release
from tests.operate.moved import MakeWorld, World
from tests.store.bench import arrival

GROUPS = [f"g{n}" for n in range(8)]
HOUR = 3600.0


async def note(world: World) -> None:
    """Its number of partitions, in each as daemons do."""
    await world.note()
    for bench in world.at(world.count):
        bench.raw.hset(bench.keys("partitions"), "number", world.count)


def limits_of(world: World) -> LimitsByHand:
    return LimitsByHand(Namespace([bench.client for bench in world.at(world.count)]))


async def test_a_tenant_has_its_share_in_each_partition(
    make_world: MakeWorld,
) -> None:
    """As one that is configured: at least one task at once."""
    world = make_world(3)
    await note(world)
    await world.enqueue(*(arrival(f"p{n}") for n in range(60)))
    limits = limits_of(world)
    for said, share in ((1, 1), (6, 2), (7, 2), (0, 9)):
        await limits.begin(HandLimit("tenant", "42", said), "ada", HOUR)
        for bench in world.at(3):
            daemon = await bench.daemon()
            claims = await daemon.claim("plain", *(f"w{n}" for n in range(9)))
            assert len(claims) == share
            assert bench.audit() == []
            await daemon.settle(*(Release(claim) for claim in claims))
    await limits.begin(HandLimit("tenant", "42", 0, rate="1/min"), "ada", HOUR)
    for bench in world.at(3):  # so much slower in each
        assert len(await (await bench.daemon()).claim("plain", "w1", "w2")) == 1
        rates: Any = bench.raw.zrange(bench.keys("rates"), 0, -1, withscores=True)
        ((_, due),) = rates
        assert 170e6 < due - bench.server_time() <= 180e6
    (told,) = (await limits.every()).limits
    assert (told.name, told.concurrency, told.by) == ("42", 0, "ada")
    assert await limits.end("tenant", "42", "bob")
    assert (await limits.every()).limits == []


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2)])
async def test_they_go_where_their_groups_go(
    make_world: MakeWorld, before: int, after: int
) -> None:
    world = make_world(before)
    await note(world)
    await world.enqueue(*(arrival(f"{group}-{n}", group) for group in GROUPS for n in range(2)))
    limits = limits_of(world)
    for group in GROUPS:
        await limits.begin(HandLimit("group", group, 2), "ada", HOUR)
    await limits.begin(HandLimit("tenant", "42", 6), "ada", HOUR)
    known = (await limits.every()).limits
    await world.move(after)
    world.count = after
    assert (await limits_of(world).every()).limits == known
    for number, (bench, found) in enumerate(zip(world.at(after), world.read(after), strict=True)):
        there = {f"g{group}" for group in GROUPS if partition_of(group, "", after) == number}
        assert set(found.fields("by_hand")) == {*there, "t42"}
        assert set(found.names("by_hand_ends")) == {*there, "t42"}
        claims = await (await bench.daemon()).claim("grouped", *(f"w{n}" for n in range(9)))
        assert len(claims) == min(2 * len(there), 6 // after)
        assert bench.audit() == []
