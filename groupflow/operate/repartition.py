"""repartition: a namespace gets another number of partitions, while no daemon runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from groupflow.core.errors import ConfigError, GroupflowError, Problem
from groupflow.operate.listing import WITHOUT_ORDER, ListedGroups, look_at_groups
from groupflow.operate.moving import DaemonsRun, Mover, replica_wait_of, unless_daemons_run
from groupflow.operate.pools import pools_in
from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.totals import daemons_in
from groupflow.settings.model import Settings
from groupflow.store.client import StoreClient
from groupflow.store.clock import seconds
from groupflow.store.keys import Keys
from groupflow.store.layout import check_format
from groupflow.store.partitions import keys_of, open_client
from groupflow.store.scripts import Verb
from groupflow.store.sessions import REAPED_AT_ONCE
from groupflow.store.wire import ReplicaWait

_SHARING = ("g", "p")  # tenants have shares of workers, for groups and for plain tasks
_GROUPS = 300  # groups a look
_NAMES = 1000  # ids a script
_STATES: tuple[ListedGroups, ...] = ("ready", "delayed", "parked", "paused")
_LISTS = ("plain", "ordered", "quarantined_plain", "delayed")
_STAYS = ("partitions", "scans", "actions")  # keys that stay of a partition that is none any more


class TasksLeft(GroupflowError):
    """Tasks in a partition can't be moved: they are in no list."""


@dataclass(slots=True)
class Report:
    """What this run moved."""

    before: int  # partitions that the namespace had; 0 if it was never used
    after: int  # that it has now
    tasks: int = 0  # that wait
    dead: int = 0  # dead letters
    over: int = 0  # entries of the history


async def repartitioned(
    settings: Settings, count: int, tell: Callable[[str], None] = lambda _: None
) -> Report:
    """Move the configured namespace, over clients of its own; `Repartition.run` says the rest."""
    opened = list[StoreClient]()

    def make(keys: Keys) -> StoreClient:
        opened.append(open_client(settings, keys, partitions=0))
        return opened[-1]

    try:
        wait = replica_wait_of(settings.redis)
        return await Repartition(settings.redis.namespace, count, make, tell, wait).run()
    finally:
        for client in opened:
            await client.close()


class Repartition:
    """Moves one namespace. If it is cut short at any point, another run goes on with it."""

    def __init__(
        self,
        namespace: str,
        count: int,
        make: Callable[[Keys], StoreClient],
        tell: Callable[[str], None] = lambda _: None,
        replica_wait: ReplicaWait | None = None,
    ) -> None:
        """Asks nothing yet.

        Args:
            namespace: its name.
            count: how many partitions it is to have.
            make: makes a client for some keys; the caller closes it.
            tell: is told of each partition that is finished.
            replica_wait: how many replicas must have what has moved.
        """
        self._replica_wait = replica_wait
        self._name = namespace
        self._count = count
        self._make = make
        self._tell = tell
        self._clients: dict[Keys, StoreClient] = {}

    async def run(self) -> Report:
        """Move it.

        Raises:
            DaemonsRun: daemons have leases in it; nothing was begun.
            ConfigError: it is on its way to another number, or of another format.
            TasksLeft: an operator changed keys by hand.
            StoreFull: Redis has no memory for it; what was moved is moved, the rest stays.
            StoreUnavailable: no answer; the same.
        """
        known, moving_to = await self._noted()
        report = Report(known, self._count)
        if known in (0, self._count) and not moving_to:
            for each in self._partitions(known):  # a fail-over may have taken back that it ended
                if (await each.run(OperatorVerb.NUMBER))[1]:
                    await each.run(OperatorVerb.MOVING_TO, "end", self._count)
            return report
        sources, targets = self._partitions(known), self._partitions(self._count)
        every = [*dict.fromkeys([*sources, *targets])]
        await _check_nobody_runs(every)  # first: from the note on, what daemons bring is refused
        known, moving = await self._common.run(OperatorVerb.MOVING_TO, "begin", self._count)
        self._check_target(known, moving)
        try:
            await _check_nobody_runs(every)
        except DaemonsRun:
            if not moving_to:
                await self._common.run(OperatorVerb.MOVING_TO, "cancel", self._count)
            raise
        # Before anything is read: a daemon that slept until now brings nothing meanwhile.
        before, epochs = None, await self._mark(every, known)
        while epochs != before:  # again, if a server came to lead meanwhile: it may have lost some
            for each in every:
                await _reap(each)
            await self._spread_notes(sources, targets)
            for number, source in enumerate(sources):
                await _reap(source)  # again, for the same reason
                await self._empty(source, targets, report)
                self._tell(
                    f"partition {number} of {known}: {report.tasks} tasks, {report.dead} dead "
                    f"letters and {report.over} entries of the history moved so far"
                )
            before, epochs = epochs, await self._mark(every, known)
        for source in sources:
            if source not in targets:
                await self._end(source, targets[0])
        for each in every:
            if each is not self._common:
                await each.run(OperatorVerb.MOVING_TO, "end", self._count)
        await self._common.run(OperatorVerb.MOVING_TO, "end", self._count)
        return report

    async def _noted(self) -> tuple[int, int]:
        """How many partitions the namespace has, and how many it is being moved to or 0.

        Raises:
            ConfigError: it is on its way to another number, or of another format.
        """
        known, moving_to, format_ = await self._common.run(OperatorVerb.NUMBER)
        if known:
            check_format(self._name, format_)
        if moving_to:
            self._check_target(known, moving_to)
        return known, moving_to

    def _check_target(self, known: int, moving_to: int) -> None:
        if moving_to != self._count:
            remedy = (
                f"The namespace is on its way from {known} to {moving_to} partitions: give "
                f"`groupflow repartition {moving_to}` first, which goes on where that was "
                "interrupted."
            )
            raise ConfigError([Problem("repartition", str(self._count), remedy)])

    async def _mark(self, every: Sequence[StoreClient], known: int) -> list[bytes]:
        """Note in each partition that it is being moved; returns the epoch of each."""
        marks = [
            await each.run(OperatorVerb.MOVING_TO, "mark", self._count, known) for each in every
        ]
        return [epoch for *_, epoch in marks]

    @property
    def _common(self) -> StoreClient:
        """The client for the keys that all partitions share."""
        return self._client(Keys(self._name))

    def _partitions(self, count: int) -> list[StoreClient]:
        return [self._client(keys) for keys in keys_of(self._name, count)]

    def _client(self, keys: Keys) -> StoreClient:
        if keys not in self._clients:
            self._clients[keys] = self._make(keys)
        return self._clients[keys]

    async def _spread_notes(
        self, sources: Sequence[StoreClient], targets: Sequence[StoreClient]
    ) -> None:
        """Tell all partitions what one knows: whose ids are whose, the last fence, and more."""
        for source in sources:
            await _tell(source, [target for target in targets if target is not source])

    async def _empty(
        self, source: StoreClient, targets: Sequence[StoreClient], report: Report
    ) -> None:
        """Move all that no longer belongs into a partition."""
        await _end_turns(source)
        mover = Mover(source, targets, self._replica_wait)
        for place in _LISTS:
            report.tasks += await mover.move(place)
        for pool in await pools_in(source, workers=0):
            report.tasks += await mover.move("pool_ordered", pool.name)
            report.tasks += await mover.move("pool_quarantined_plain", pool.name)
        for state in _STATES:
            report.tasks += await _lanes(source, mover, state)
        report.dead += await mover.move("dead")
        for place in ("outbox", "paused", "drains", "schedules", "by_hand"):
            await mover.move(place)
        for place in ("history_new", "history_old"):
            report.over += await mover.move(place)

    async def _end(self, source: StoreClient, heir: StoreClient) -> None:
        """End a partition that is to be none any more: another one takes over its totals."""
        await self._forget(source)  # before its totals go: what is left may still change them
        await _tell(source, [heir], totals="1")
        gone = [key for kind, key in source.keys.every() if kind not in _STAYS and key[-1] != ":"]
        gone += [source.keys("shares", kind) for kind in _SHARING]
        await self._forget(source, *gone)

    async def _forget(self, source: StoreClient, *gone: str) -> None:
        """Remove keys of a partition that is to be none any more, once nothing lies in it."""
        left = await source.run(OperatorVerb.MOVE_END, *gone)
        if left:
            raise TasksLeft(
                f"{left} tasks or entries of {source.keys.tag} are in no list, so nobody can move "
                "them: somebody changed keys by hand. All else is moved; see to them (HKEYS "
                f"{source.keys('tasks')}), and give this again"
            )


async def _check_nobody_runs(every: Sequence[StoreClient]) -> None:
    """Raises `DaemonsRun` if a daemon or a puller has a lease in one of them."""
    names = {daemon.name for each in every for daemon in await daemons_in(each)}
    for each in every:
        for pool in await pools_in(each):
            living = [worker for worker in pool.workers if worker.lease_left > 0]
            names |= {f"{worker.name} of pool {pool.name}" for worker in living}
    if names:
        raise DaemonsRun([*names])


async def _reap(client: StoreClient) -> None:
    """Put back the claims of daemons that ended without a word: none can come back there.

    If Redis restarted after their end, nothing is taken from them for a lease.

    Raises:
        DaemonsRun: a daemon or a puller has come meanwhile.
    """
    wait, rows = 0, list[object]()
    while rows or wait >= 0:
        if wait > 0 and not rows:
            await _check_nobody_runs([client])
            await asyncio.sleep(seconds(wait))
        wait, rows = await client.run(Verb.REAP, REAPED_AT_ONCE, 0, "final")


async def _tell(source: StoreClient, targets: Sequence[StoreClient], totals: str = "") -> None:
    """Tell partitions what another one knows beside tasks; with `totals` "1", these as well."""
    cursor = b""
    while cursor != b"0":
        asked = ("out", totals, cursor or "0", _NAMES)
        cursor, packed = await source.run(OperatorVerb.MOVE_NOTES, *asked)
        for target in targets:
            await target.run(OperatorVerb.MOVE_NOTES, "in", source.keys.tag, packed, totals)


async def _end_turns(source: StoreClient) -> None:
    """Put what waits for its tenant's turn among the rest, where all looks see it."""
    number = 1
    while number:
        (number,) = unless_daemons_run(await source.run(OperatorVerb.MOVE_TURNS, _GROUPS))


async def _lanes(source: StoreClient, mover: Mover, state: ListedGroups) -> int:
    """Move the lanes of groups in a state; returns how many tasks."""
    begin: int | None = 0
    moved = 0
    while begin is not None:
        found = await look_at_groups(source, state, begin=begin, limit=_GROUPS)
        leaving = [row for row in found.rows if mover.leaves(row.group) is not None]
        for row in leaving:
            moved += await mover.move("lane", row.group)
        if state in WITHOUT_ORDER:
            begin = found.next
        else:  # those that leave are no longer in the index
            begin = begin + len(found.rows) - len(leaving) if found.rows else None
    return moved
