"""Repeats: a call whose reply was lost is made again, and changes nothing."""

from __future__ import annotations

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.store.envelope import Pool
from groupflow.store.scripts import AnyVerb, Verb
from tests.store.bench import Bench, arrival
from tests.store.task_state import HOUR, SETTLEMENTS, dead_ids, fill, kill, letter


@pytest.mark.parametrize("name", SETTLEMENTS)
@pytest.mark.parametrize("pool", ["plain", "grouped"])
async def test_a_settle_that_is_repeated_changes_nothing(
    shop: Bench, name: str, pool: Pool
) -> None:
    daemon = await fill(shop, "a0", "a1", "p0", "p1")
    settlement = SETTLEMENTS[name](await daemon.claim_one(pool))
    assert await daemon.settle(settlement) == []
    before = shop.dump()
    assert await daemon.settle(settlement) == []
    assert shop.dump() == before


@pytest.mark.parametrize("name", SETTLEMENTS)
@pytest.mark.parametrize("pool", ["plain", "grouped"])
async def test_a_stale_fence_settles_nothing(shop: Bench, name: str, pool: Pool) -> None:
    daemon = await fill(shop, "a0", "a1", "p0", "p1")
    stale = await daemon.claim_one(pool)
    shop.with_faults = True
    await daemon.register()
    await daemon.claim_one(pool)
    before = shop.dump()
    settlement = SETTLEMENTS[name](stale)
    assert await daemon.settle(settlement) == [settlement]
    assert shop.dump() == before


async def test_every_other_verb_may_be_repeated_too(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "b0", "c0")
    for park in (True, False, True):
        await kill(shop, daemon, park=park)
    await shop.enqueue(arrival("p0", delay=HOUR), arrival("a9", "a"))
    dead, old, _ = [await letter(shop, id_) for id_ in sorted(await dead_ids(shop))]
    shop.raw.zadd(shop.keys("dead"), {old.id: 1})
    calls: list[tuple[AnyVerb, list[str | int | bytes]]] = [
        (OperatorVerb.PAUSE, ["a", "ops"]),
        (OperatorVerb.PAUSE, ["", "ops"]),
        (OperatorVerb.RESUME, ["a"]),
        (OperatorVerb.RESUME, [""]),
        (Verb.PROMOTE, [200]),
        (OperatorVerb.DROP, [dead.id, '["dropped","t","a",1,0]']),
        (OperatorVerb.SWEEP, [round(HOUR * 1e6), 100, '["expired","",null,0,0]']),
        (Verb.ROTATE, [10**12, 10**6]),
    ]
    for verb, arguments in calls:
        await shop.client.run(verb, *arguments)
        before = shop.dump()
        await shop.client.run(verb, *arguments)
        assert shop.dump() == before, verb
