"""A table that a scan works through, in memory: which rows want work, and who did which, when."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from groupflow import Scan, Shard
from groupflow.operate.scans import Scans
from tests.history.invariants import Violation
from tests.history.stored import Stored
from tests.simulation import clock
from tests.simulation.clock import pass_virtual
from tests.simulation.fleet import Fleet
from tests.simulation.operators import Operators
from tests.simulation.processes import Process, own_process

NAME = "orders"
ATTEMPTS = 3
TAKES = (0.001, 0.06)  # seconds


@dataclass(frozen=True, slots=True)
class Work:
    """A row that was done."""

    row: int
    shard: int
    fence: int
    process: Process | None
    at: float


class Rows:
    """The table of one run."""

    def __init__(self, fleet: Fleet, operators: Operators) -> None:
        self._fleet = fleet
        self._operators = operators
        self._chance = Random(f"rows of {fleet.plan.seed}")
        self._at = {row.id: row.at + clock.BEGIN for row in fleet.plan.rows}
        self._fails = {row.id: row.fails for row in fleet.plan.rows}
        self._open = {*self._at}
        self._failed: Counter[int] = Counter()
        self.done: list[Work] = []
        self.is_over = not fleet.plan.rows
        if fleet.plan.rows:
            fleet.scans = (self._scan(),)

    def _scan(self) -> Scan:
        how = self._fleet.plan.scanning
        scan = Scan(
            NAME,
            shards=how.shards,
            page=how.page,
            idle=0.5,
            max_attempts=ATTEMPTS,
            interval=-0.1,
            on_retry="hold" if how.holds else "step-aside",
        )
        scan.fetch(self._fetch)
        if how.finds:
            scan.find(self._find)
        scan.row(key=_itself, after=_itself if how.keeps_place else None)(self._work)
        return scan

    def _of(self, shard: Shard) -> list[int]:
        """What wants work of a shard just now."""
        now = clock.now()
        is_marked = not self._fleet.plan.scanning.keeps_place
        rows = self._open if is_marked else self._at.keys()
        return sorted(r for r in rows if r % shard.count == shard.index and self._at[r] <= now)

    async def _fetch(self, shard: Shard) -> Sequence[int]:
        await self._pass_time()
        rows = self._of(shard)
        if self._fleet.plan.scanning.keeps_place:
            after = -1 if shard.after is None else shard.after
            return [row for row in rows if row > after][: shard.page]
        return [row for row in rows if row not in shard.skip][: shard.page]

    async def _find(self, keys: Sequence[Any], shard: Shard) -> Sequence[int]:
        await self._pass_time()
        return [row for row in self._of(shard) if row in keys]

    async def _work(self, row: int, shard: Shard) -> None:
        await self._pass_time()
        if self._failed[row] < self._fails[row]:
            self._failed[row] += 1
            raise ValueError(f"row {row} is broken")
        self.done.append(Work(row, shard.index, shard.fence, own_process(), clock.now()))
        self._open.discard(row)

    async def _pass_time(self) -> None:
        await pass_virtual(self._chance.uniform(*TAKES))

    # How it ends:

    async def tidy(self) -> None:
        """Once all rows are done or dead, no daemon has the scan any more, and it is dropped."""
        if self.is_over:
            return
        while self._left():
            await pass_virtual(0.25)
        self._fleet.tell("all rows are done: the scan goes")
        self._fleet.scans = ()
        for member in self._fleet.members:
            if member.is_up:
                await self._fleet.stop(member)
                self._fleet.start(member)
        while await self._operators.ask(lambda all_: Scans(all_).drop(NAME)) is None:
            pass
        self.is_over = True

    def _dead(self) -> set[int]:
        """The rows that are dead letters; or were, of a table where no page comes back to them."""
        over = ("dead", "dropped") if self._fleet.plan.scanning.keeps_place else ("dead",)
        states = Stored(self._fleet.raw, self._fleet.partitions).states
        return {
            int(id_.split("/")[1])
            for id_, state in states.items()
            if id_.startswith(f"scan:{NAME}:") and "/" in id_ and state in over
        }

    def _left(self) -> set[int]:
        return self._at.keys() - {work.row for work in self.done} - self._dead()

    def check(self) -> Iterator[Violation]:
        """What is not as it must be, once a run is over."""
        for row in sorted(self._left()):
            yield Violation("R1", f"row {row} was never done")
        times: dict[int, list[Work]] = defaultdict(list)
        for work in self.done:
            times[work.row].append(work)
        for row, works in times.items():
            fences = {work.fence for work in works}
            if len(fences) < len(works) and not self._fleet.calls_lost:
                yield Violation("R2", f"row {row} was done twice under one claim: {works}")


def _itself(row: Any) -> Any:
    return row
