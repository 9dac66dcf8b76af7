"""What workers that pull may hand on from stage to stage is bounded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from groupflow.store.enqueue import Arrival
from tests.pools.conftest import Shop
from tests.pools.shop import Worker, api_of, said
from tests.store.task_state import letter, pass_time
from tests.store.test_pools import pooled

# Of one tenant 1,000 bytes.
REDIS = {"redis": {"carried_memory": 4000, "tenant_share": 0.25}}
CONTEXT = "x" * 600


def whose(id_: str, tenant: str) -> Arrival:
    made = pooled(id_, "g" + id_)
    return replace(made, envelope=replace(made.envelope, tenant=tenant))


def advance(task: dict[str, Any]) -> dict[str, Any]:
    return said(task, "advance", stage="two", context=CONTEXT)


async def test_beyond_a_tenant_s_share_an_advance_is_a_failed_attempt(shop: Shop) -> None:
    """It is tried again by the policy, and dies after the last attempt; others go on."""
    bench = shop.spread.benches[0]
    # They lie where the first partition has room for one of them: each has bounds of its own.
    await bench.enqueue(whose("a", "666"), whose("b", "666"), whose("c", "1"))
    async with api_of(shop.namespace, **REDIS) as api:
        anna = Worker(api)
        first, second, other = sorted(await anna.claim(), key=lambda task: str(task["id"]))
        for _ in range(2):  # said again, it is answered as before
            verdicts = await anna.settle(advance(first), advance(second), advance(other))
            assert verdicts == ["accepted"] * 3
        by_id = {task["id"]: task for task in await anna.claim()}
        assert {id_: task["stage"] for id_, task in by_id.items()} == {"a": "two", "c": "two"}
        assert (bench.count("advanced"), bench.count("retried")) == (2, 1)
        await pass_time(bench)
        [again] = [task for task in await anna.claim() if task["id"] == "b"]
        assert (again["attempt"], again["stage"], again["context"]) == (2, None, None)
        assert await anna.settle(advance(again)) == ["accepted"]
        dead = await letter(bench, "b")
        assert "there is no room for the 602 bytes" in dead.reason
        assert "redis.tenant_share" in dead.reason
        assert [each["daemon"] for each in dead.errors] == ["pool/couriers/anna"] * 2
        assert await anna.done(*by_id.values()) == ["accepted"] * 2
    assert bench.count("carried_bytes") == 0
    bench.events.clear()
