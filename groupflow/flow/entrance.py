"""Writes batches into the store, through one entrance a partition.

One script writes a partition's part of a batch. The batch is through when all of its parts are; a
part that was written is not written again when another has to wait.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

from groupflow.core.measures import Pause
from groupflow.flow.backpressure import Backpressure
from groupflow.store.cancelling import CancelVerdict, Named
from groupflow.store.enqueue import Arrival, Enqueued, Enqueuer, pools_of
from groupflow.store.envelope import Pool
from groupflow.store.partitions import partition_of

_MOST_FIRST: Final[Sequence[CancelVerdict]] = ("requested", "over", "unknown")


@dataclass(slots=True)
class PartitionEntrance:
    """The way into one partition."""

    enqueuer: Enqueuer
    backpressure: Backpressure
    wake: Callable[[Set[Pool]], object] = lambda _: None  # told which pools get tasks
    # told the id and the group ('' of a plain one) of a task that is to be cancelled: it may wait
    end_waiting: Callable[[str, str], object] = lambda _id, _group: None
    queued: int = 0  # tasks that waited there at the last enqueue

    async def enqueue(self, arrivals: Sequence[Arrival]) -> Enqueued:
        """Write a part of a batch; errors as of `Enqueuer.enqueue`."""
        enqueued = await self.enqueuer.enqueue(
            arrivals,
            self.backpressure.delayed_memory,
            # Workers claim over the same connection (without `redis.replicas`): after that script.
            lambda some: self.wake(pools_of(some)),
        )
        self.backpressure.wrote(sum(len(arrival.envelope.body) for arrival in arrivals))
        self.queued = enqueued.queued
        self.backpressure.is_outbox_full = enqueued.is_outbox_full
        return enqueued

    async def cancel(self, named: Sequence[Named]) -> list[CancelVerdict]:
        """Have tasks of this partition cancelled; errors as of `Enqueuer.cancel`."""
        found = await self.enqueuer.cancel(named)
        for each in found:
            if each.id:
                self.end_waiting(each.id, each.group)
        return [each.verdict for each in found]


class Batch:
    """Messages on their way in, in order of arrival."""

    def __init__(self, entrances: Sequence[PartitionEntrance], arrivals: Sequence[Arrival]) -> None:
        """Sorts arrivals by partition. Without any, `write` asks every partition what waits."""
        self.arrivals = arrivals
        self._entrances = entrances
        self._places: dict[int, list[int]] = defaultdict(list)
        if len(entrances) == 1:
            self._places[0] = list(range(len(arrivals)))
        else:
            for place, arrival in enumerate(arrivals):
                number = partition_of(arrival.envelope.group, arrival.id, len(entrances))
                self._places[number].append(place)
        self._left = set(self._places) if arrivals else set(range(len(entrances)))
        self._written: dict[int, Enqueued] = {}

    async def write(self) -> Enqueued:
        """Write the parts that are left.

        Returns:
            What became of the whole batch.

        Raises:
            StoreUnavailable: no answer from a partition; call it again.
            StoreFull: a partition has no room for its part.
        """
        left = sorted(self._left)
        if len(left) == 1:
            await self._write(left[0])
        else:
            done = await asyncio.gather(*map(self._write, left), return_exceptions=True)
            for error in done:
                if error is not None:
                    raise error
        return self._whole()

    async def _write(self, number: int) -> None:
        arrivals = [self.arrivals[place] for place in self._places[number]]
        self._written[number] = await self._entrances[number].enqueue(arrivals)
        self._left.discard(number)

    def written(self) -> Iterator[tuple[Sequence[int], Enqueued]]:
        """The parts that are written, also after an error: their places, and what each became."""
        return ((self._places[number], part) for number, part in self._written.items())

    def _whole(self) -> Enqueued:
        if len(self._entrances) == 1:
            return self._written[0]
        taken = [False] * len(self.arrivals)
        renamed: dict[int, str] = {}
        crowded_out, full = set[int](), set[int]()
        for number, part in self._written.items():
            places = self._places[number]
            for place, is_new in zip(places, part.taken, strict=True):
                taken[place] = is_new
            renamed |= {places[n]: id_ for n, id_ in part.renamed.items()}
            crowded_out |= {places[n] for n in part.crowded_out}
            full |= {places[n] for n in part.full}
        queued = sum(entrance.queued for entrance in self._entrances)
        superseded = sum(part.superseded for part in self._written.values())
        out = frozenset(crowded_out)
        return Enqueued(queued, taken, renamed, out, superseded, frozenset(full))


@dataclass(slots=True)
class _Portion:
    """Messages that become tasks, and those behind them that cancel tasks."""

    tasks: list[int] = field(default_factory=list)  # places in the batch
    cancels: list[int] = field(default_factory=list)
    batch: Batch | None = None  # of the tasks, once they are written
    enqueued: Enqueued | None = None


class MixedBatch:
    """Messages on their way in of which some cancel tasks, each behind those in front of it."""

    def __init__(self, entrances: Sequence[PartitionEntrance], arrivals: Sequence[Arrival]) -> None:
        """Divides arrivals in portions. A task comes behind a message that names its id."""
        self.arrivals = arrivals
        self._entrances = entrances
        self._portions, named = [_Portion()], set[str]()
        for place, arrival in enumerate(arrivals):
            if arrival.cancels:
                named.add(arrival.cancels)
                self._portions[-1].cancels.append(place)
                continue
            if arrival.id in named:
                self._portions.append(_Portion())
                named.clear()
            self._portions[-1].tasks.append(place)
        self._left = deque(self._portions)
        self._verdicts: dict[int, CancelVerdict] = {}

    async def write(self) -> Enqueued:
        """Write what is left; all as of `Batch.write`."""
        while self._left:
            portion = self._left[0]
            if portion.enqueued is None:
                tasks = [self.arrivals[place] for place in portion.tasks]
                portion.batch = portion.batch or Batch(self._entrances, tasks)
                portion.enqueued = await portion.batch.write()
            await self._cancel(portion.cancels)
            self._left.popleft()
        return self._whole()

    def written(self) -> Iterator[tuple[Sequence[int], Enqueued]]:
        """As of `Batch.written`, in one part once all is written."""
        if not self._left:
            yield range(len(self.arrivals)), self._whole()

    async def _cancel(self, places: Sequence[int]) -> None:
        """Ask all partitions: an id doesn't tell where its task lies."""
        if not places:
            return
        arrivals = [self.arrivals[place] for place in places]
        named = [Named(each.cancels, each.envelope.scope) for each in arrivals]
        asking = (entrance.cancel(named) for entrance in self._entrances)
        answers = list[list[CancelVerdict]]()
        for answer in await asyncio.gather(*asking, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            answers.append(answer)
        for place, *verdicts in zip(places, *answers, strict=True):
            self._verdicts[place] = min(verdicts, key=_MOST_FIRST.index)

    def _whole(self) -> Enqueued:
        taken = [True] * len(self.arrivals)
        renamed: dict[int, str] = {}
        crowded_out, full = set[int](), set[int]()
        parts = [(each.tasks, each.enqueued) for each in self._portions if each.enqueued]
        for places, part in parts:
            for place, is_new in zip(places, part.taken, strict=True):
                taken[place] = is_new
            renamed |= {places[n]: id_ for n, id_ in part.renamed.items()}
            crowded_out |= {places[n] for n in part.crowded_out}
            full |= {places[n] for n in part.full}
        superseded = sum(part.superseded for _, part in parts)
        queued, out = parts[-1][1].queued, frozenset(crowded_out)
        return Enqueued(
            queued, taken, renamed, out, superseded, frozenset(full), cancels=self._verdicts
        )


class Entrance:
    """All entrances of a store."""

    def __init__(self, entrances: Sequence[PartitionEntrance]) -> None:
        """Binds one entrance a partition, in order."""
        self._entrances = entrances
        self.kind: Pause = ""
        """Which limit is reached; empty for none."""

    def batch(self, arrivals: Sequence[Arrival]) -> Batch | MixedBatch:
        """A batch to be written."""
        if any(arrival.cancels for arrival in arrivals):
            return MixedBatch(self._entrances, arrivals)
        return Batch(self._entrances, arrivals)

    def of_follow_up_tasks(self) -> Entrance:
        """The same for follow-up tasks, which come into full memory too."""
        return Entrance(
            [replace(each, enqueuer=each.enqueuer.of_follow_up_tasks()) for each in self._entrances]
        )

    async def look(self) -> None:
        """Ask how much memory Redis has and uses, where that is due."""
        await asyncio.gather(*(entrance.backpressure.look() for entrance in self._entrances))

    async def reason(self, queued: int) -> str:
        """Why intake has to wait, or an empty text; as of `Backpressure.reason`."""
        self.kind = ""
        for entrance in self._entrances:
            if reason := await entrance.backpressure.reason(queued):
                self.kind = entrance.backpressure.kind
                return reason
        return ""

    @property
    def delayed_memory(self) -> int:
        """Bytes that may wait for delays, in each partition."""
        return min(entrance.backpressure.delayed_memory for entrance in self._entrances)
