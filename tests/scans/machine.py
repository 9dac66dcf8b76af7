"""A table in memory with a scan over it, and a daemon that runs scans step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

from groupflow import Scan, Shard
from groupflow.core.measures import ScanMeasures
from groupflow.core.outcome import Outcome
from groupflow.core.policy import Policies, RetryPolicy
from groupflow.flow.handling import Failed
from groupflow.flow.settling import Ran, settlement_of
from groupflow.scans.shards import Shards, Stores
from groupflow.store.client import StoreClient
from groupflow.store.given import Claim
from groupflow.store.scans import Record
from tests.store.bench import Bench, Daemon
from tests.store.task_state import pass_time

POLICIES = Policies(RetryPolicy(), {})
GROUP = "scan:orders:0"
Rows: TypeAlias = Iterable[int]


class Machine:
    """One daemon with some scans, on a store or on all partitions of one."""

    def __init__(self, daemons: Sequence[Daemon], common: StoreClient, *scans: Scan) -> None:
        self.benches = [daemon.bench for daemon in daemons]
        self.bench, self.daemon, self.daemons = self.benches[0], daemons[0], daemons
        self.measures = {scan.name: ScanMeasures() for scan in scans}
        stores = Stores(common, [bench.client for bench in self.benches])
        self.shards = Shards(scans, stores, self.measures)

    @classmethod
    async def start(cls, bench: Bench, *scans: Scan, name: str = "d1") -> Machine:
        """A daemon that has begun: all shards are there."""
        machine = cls([await bench.daemon(name)], bench.client, *scans)
        await machine.shards.keep()
        return machine

    async def record(self) -> Record:
        """What is agreed about the scan."""
        found = await self.shards.records.look("orders")
        assert found is not None
        return found

    async def claim(self) -> Claim:
        """The next task of a scan."""
        return await self.daemon.claim_one()

    async def outcome(self, claim: Claim) -> Outcome | Failed:
        """What running it comes to."""
        return await self.shards.runner(claim.task.type).handle(claim.task)

    async def settle(self, claim: Claim, outcome: Outcome | Failed, at: int = 0) -> bool:
        """Settle it so, in a partition. Whether that was accepted."""
        policy = POLICIES.of(claim.rule, self.shards.runner(claim.task.type).retry)
        daemon = self.daemons[at]
        settlement = settlement_of(claim, outcome, policy, Ran(0.0, 0.0, daemon.name))
        return not (await daemon.exchange("grouped", [settlement], []))[0]

    async def turn(self, at: int = 0) -> Outcome | Failed | None:
        """Claim, run and settle one task of a partition; ``None`` where there is none."""
        claims = await self.daemons[at].claim("grouped", "w1")
        if not claims:
            return None
        outcome = await self.outcome(claims[0])
        assert await self.settle(claims[0], outcome, at)
        return outcome

    async def work_off(self, most: int = 1000) -> int:
        """Take turns until nothing can be claimed; how many there were."""
        turns = 0
        for at in range(len(self.daemons)):
            while await self.turn(at) is not None:
                turns += 1
                assert turns < most, "it doesn't come to rest"
        return turns

    async def wake_up(self, *ids: str) -> None:
        """Let the sleep of all shards be over, or of some."""
        for bench in self.benches:
            await pass_time(bench, *ids)

    async def round(self) -> int:
        """Let all wake up, and work until they sleep again."""
        await self.wake_up()
        return await self.work_off()

    async def rounds(self, number: int = 8) -> None:
        """The same several times, looking after the shards in between."""
        for _ in range(number):
            await self.round()
            await self.shards.keep()

    async def state(self, index: int = 0) -> dict[str, Any]:
        """What a shard's task carries."""
        id_ = (await self.record()).id_of(index)
        found: Any = self.bench.raw.hget(self.bench.keys("task_state", id_), "context")
        state: dict[str, Any] = orjson.loads(found)
        return state


async def begin(
    bench: Bench, rows: Rows = (), broken: Rows = (), hangs: Rows = (), **facts: Any
) -> tuple[Table, Machine]:
    """A table with open rows, some of which fail or hang, and a daemon with a scan over it."""
    table = Table({*rows}, {*broken}, {*hangs})
    return table, await Machine.start(bench, scan_of(table, **facts))


@dataclass
class Table:
    """Rows that are whole numbers; those in `open` want work."""

    open: set[int] = field(default_factory=set)
    broken: set[int] = field(default_factory=set)  # rows that fail
    hangs: set[int] = field(default_factory=set)  # rows that never end
    silent: str = ""  # "fetch" or "find", which never answers
    away: BaseException | None = None  # why nothing can be fetched
    is_marked: bool = True  # else nothing says of a row that it is done
    done: list[int] = field(default_factory=list)
    pages: list[Shard] = field(default_factory=list)  # what each fetch was told
    reached: asyncio.Event = field(default_factory=asyncio.Event)  # a row that hangs

    def of(self, shard: Shard) -> list[int]:
        """The open rows of a slice, in order."""
        return sorted(row for row in self.open if row % shard.count == shard.index)

    async def fetch(self, shard: Shard) -> Sequence[int]:
        """A page of those that are open, or behind the cursor."""
        self.pages.append(shard)
        if self.away:
            raise self.away
        await self._answer("fetch")
        after = -1 if shard.after is None else shard.after
        passed = shard.skip if self.is_marked else ()
        return [r for r in self.of(shard) if r > after and r not in passed][: shard.page]

    async def find(self, keys: Sequence[Any], shard: Shard) -> Sequence[int]:
        """Those of some keys that are open."""
        await self._answer("find")
        return [row for row in self.of(shard) if row in keys]

    async def work(self, row: int, shard: Shard) -> None:
        """Do a row and mark it."""
        if row in self.broken:
            raise ValueError(f"row {row} is broken")
        if row in self.hangs:
            self.reached.set()
            await asyncio.Event().wait()
        self.done.append(row)
        if self.is_marked:
            self.open.discard(row)

    async def _answer(self, what: str) -> None:
        if what == self.silent:
            await asyncio.Event().wait()


def scan_of(table: Table, *, find: bool = False, cursor: bool = False, **facts: Any) -> Scan:
    """A scan over it; deferred rows are due at once, unless an interval says otherwise."""
    table.is_marked = not cursor
    scan = Scan("orders", **{"interval": -1e-6, "page": 10, **facts})
    scan.fetch(table.fetch)
    if find:
        scan.find(table.find)
    scan.row(key=_itself, after=_itself if cursor else None)(table.work)
    return scan


def _itself(row: Any) -> Any:
    return row
