"""Writes batches into the store, through one entrance a partition.

One script writes a partition's part of a batch. The batch is through when all of its parts are; a
part that was written is not written again when another has to wait.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from groupflow.core.measures import Pause
from groupflow.flow.backpressure import Backpressure
from groupflow.store.enqueue import Arrival, Enqueued, Enqueuer, pools_of
from groupflow.store.envelope import Pool
from groupflow.store.partitions import partition_of


@dataclass(slots=True)
class PartitionEntrance:
    """The way into one partition."""

    enqueuer: Enqueuer
    backpressure: Backpressure
    wake: Callable[[Set[Pool]], object] = lambda _: None  # told which pools get tasks
    queued: int = 0  # tasks that waited there at the last enqueue

    async def enqueue(self, arrivals: Sequence[Arrival]) -> Enqueued:
        """Write a part of a batch; errors as of `Enqueuer.enqueue`."""
        # Workers claim over the same connection (without `redis.replicas`): after this enqueue.
        self.wake(pools_of(arrivals))
        enqueued = await self.enqueuer.enqueue(arrivals, self.backpressure.delayed_memory)
        self.backpressure.wrote(sum(len(arrival.envelope.body) for arrival in arrivals))
        self.queued = enqueued.queued
        return enqueued


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


class Entrance:
    """All entrances of a store."""

    def __init__(self, entrances: Sequence[PartitionEntrance]) -> None:
        """Binds one entrance a partition, in order."""
        self._entrances = entrances
        self.kind: Pause = ""
        """Which limit is reached; empty for none."""

    def batch(self, arrivals: Sequence[Arrival]) -> Batch:
        """A batch to be written."""
        return Batch(self._entrances, arrivals)

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
