"""A daemon that runs scans step by step: one claim, one turn, one settlement."""

from __future__ import annotations

from typing import Any

import orjson

from groupflow.core.measures import ScanMeasures
from groupflow.core.outcome import Outcome
from groupflow.core.policy import Policies
from groupflow.core.retry import RetryPolicy
from groupflow.flow.handling import Failed
from groupflow.flow.settling import Ran, settlement_of
from groupflow.scans.scan import Scan
from groupflow.scans.shards import Shards, Stores
from groupflow.store.given import Claim
from groupflow.store.scans import Record, group_of
from tests.store.bench import Bench, Daemon
from tests.store.task_state import pass_time

POLICIES = Policies(RetryPolicy(), {})


class Machine:
    """One daemon with some scans, on a store."""

    def __init__(self, bench: Bench, daemon: Daemon, *scans: Scan) -> None:
        self.bench = bench
        self.daemon = daemon
        self.measures = {scan.name: ScanMeasures() for scan in scans}
        self.shards = Shards(scans, Stores(bench.client, [bench.client]), self.measures)

    @classmethod
    async def start(cls, bench: Bench, *scans: Scan, name: str = "d1") -> Machine:
        """A daemon that has begun: all shards are there."""
        machine = cls(bench, await bench.daemon(name), *scans)
        await machine.shards.keep()
        return machine

    async def record(self, name: str = "orders") -> Record:
        """What is agreed about a scan."""
        found = await self.shards.records.look(name)
        assert found is not None
        return found

    async def claim(self) -> Claim:
        """The next task of a scan."""
        return await self.daemon.claim_one()

    async def outcome(self, claim: Claim) -> Outcome | Failed:
        """What running it comes to."""
        return await self.shards.runner(claim.task.type).handle(claim.task)

    async def settle(self, claim: Claim, outcome: Outcome | Failed) -> bool:
        """Settle it so. Whether that was accepted."""
        policy = POLICIES.of(claim.rule, self.shards.runner(claim.task.type).retry)
        settlement = settlement_of(claim, outcome, policy, Ran(0.0, 0.0, self.daemon.name))
        return not (await self.daemon.exchange("grouped", [settlement], []))[0]

    async def turn(self) -> Outcome | Failed | None:
        """Claim, run and settle one task; ``None`` where there is none."""
        claims = await self.daemon.claim("grouped", "w1")
        if not claims:
            return None
        outcome = await self.outcome(claims[0])
        assert await self.settle(claims[0], outcome)
        return outcome

    async def until_asleep(self, most: int = 1000) -> int:
        """Take turns until nothing can be claimed; how many there were."""
        for turns in range(most):
            if await self.turn() is None:
                return turns
        raise AssertionError(f"it doesn't come to rest in {most} turns")

    async def wake_up(self, *ids: str) -> None:
        """Let the sleep of all shards be over, or of some."""
        await pass_time(self.bench, *ids)

    async def round(self) -> int:
        """Let all wake up, and work until they sleep again."""
        await self.wake_up()
        return await self.until_asleep()

    async def state(self, index: int = 0) -> dict[str, Any]:
        """What a shard's task carries."""
        id_ = (await self.record()).id_of(index)
        found: Any = self.bench.raw.hget(self.bench.keys("task_state", id_), "context")
        state: dict[str, Any] = orjson.loads(found)
        return state

    async def group(self, index: int = 0) -> str:
        """The group of a shard."""
        return group_of("orders", index)
