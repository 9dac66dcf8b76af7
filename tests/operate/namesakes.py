"""Tasks of two tenants that have one id, each in a partition of its own."""

from __future__ import annotations

import orjson

from groupflow.core.routing import scope_of
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from tests.operate.spread import Spread
from tests.store.bench import bury

ID = "x5"
OWNERS = (("crm", "1"), ("crm", "666"))  # applications and tenants, by partition


def of(spread: Spread, partition: int, app: str, tenant: str, delay: float = 0.0) -> Arrival:
    """A tenant's message, in a group that lies in a partition."""
    group = spread.group_in(partition)
    body = orjson.dumps({"app_name": app, "tenant_id": tenant})
    envelope = Envelope("t", group, tenant, "rule", {}, body, scope_of(app, tenant))
    return Arrival(ID, envelope, delay=delay)


async def wait(spread: Spread, delay: float = 0.0) -> None:
    """Two tasks of one id that wait."""
    for partition, owner in enumerate(OWNERS):
        await spread.enqueue(of(spread, partition, *owner, delay=delay))


async def die(spread: Spread) -> None:
    """The same two are dead letters."""
    await wait(spread)
    for daemon in (await spread.daemons())[: len(OWNERS)]:
        await daemon.settle(bury(await daemon.claim_one()))


def states(spread: Spread, kind: str) -> list[bool]:
    """In which partitions a key has it."""
    benches = spread.benches[: len(OWNERS)]
    if kind == "dead":
        return [bench.raw.zscore(bench.keys("dead"), ID) is not None for bench in benches]
    return [bool(bench.raw.hexists(bench.keys("tasks"), ID)) for bench in benches]
