"""What happened: a JSON line an event, appended by the process that saw it, read as a history.

Handlers in any number of processes append to one file. Each line is a single write with O_APPEND,
so lines never mix and a kill never leaves half of one. Times are CLOCK_MONOTONIC, which all
processes of one machine share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import orjson

from groupflow.core.task import Task

Kind: TypeAlias = Literal["published", "start", "end", "settle", "redriven", "killed", "lossy"]
State: TypeAlias = Literal["waiting", "running", "done", "dead", "dropped", "expired", "superseded"]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a task.

    Attributes:
        kind: ``published`` (and confirmed), ``start`` and ``end`` of an attempt, the ``settle`` of
            a claim as the store answered it, ``redriven``: a dead letter may be a task again from
            then on, ``killed``: the daemon `pid` is no more, or ``lossy``: partition `n` may lose
            what it was last told, or that is over.
        id: the task; empty for the last two.
        at: monotonic seconds.
        group: its group, ``None`` for a plain one.
        tenant: its tenant.
        n: its number in the test, carried in its body.
        fence: of the claim.
        attempt: from 1.
        crashes: from 0.
        pid: of the daemon.
        wall: Unix seconds.
        enqueued_at: when the store took it in, which tells two tasks of one id apart.
        how: an end is ``done``, ``failed`` or ``cut`` (cancelled); a settle ``accepted``,
            ``refused``, or ``said`` of one that was cut, or of which there was another word
            before; what may be lost ``began`` or ``ended`` to be.
        lost_leases: how many of the crashes aren't known to be deaths.
    """

    kind: Kind
    id: str
    at: float
    group: str | None = None
    tenant: str | None = None
    n: int = 0
    fence: int = 0
    attempt: int = 1
    crashes: int = 0
    pid: int = 0
    wall: float = 0.0
    enqueued_at: float = 0.0
    how: str = ""
    lost_leases: int = 0

    @property
    def task(self) -> str:
        """Its task, of whose stages each has an id of its own."""
        return self.id.partition("#")[0]

    @property
    def claim(self) -> tuple[str, int]:
        """The task and the fence of the claim."""
        return self.task, self.fence


def event_of(kind: Kind, task: Task, n: int = 0, how: str = "") -> Event:
    """An event of a task's attempt, now and in this process."""
    return Event(
        *(kind, task.id, time.monotonic(), task.group, task.tenant, n),
        *(task.fence, task.attempt, task.crashes, os.getpid(), time.time()),
        enqueued_at=task.enqueued_at,
        how=how,
        lost_leases=task.lost_leases,
    )


def published(id_: str, group: str | None, tenant: str | None = None, n: int = 0) -> Event:
    """The event of a confirmed publish, now."""
    at, wall = time.monotonic(), time.time()
    return Event("published", id_, at, group, tenant, n, pid=os.getpid(), wall=wall)


def killed(pid: int) -> Event:
    """The event of a daemon's death, now that it is gone."""
    return Event("killed", "", time.monotonic(), pid=pid, wall=time.time())


def lossy(how: Literal["began", "ended"], partition: int, at: float | None = None) -> Event:
    """A server may lose its last writes of a partition from then on, or until then (or now)."""
    when = time.monotonic() if at is None else at
    return Event("lossy", "", when, n=partition, pid=os.getpid(), how=how)


class Journal:
    """A file of events, which only ever grows: what was read of it once is not read again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: list[Event] = []
        self._end = 0  # of what is known, in bytes

    def write(self, event: Event) -> None:
        """Append one event by one write."""
        line = orjson.dumps(asdict(event)) + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            written = os.write(file, line)
        finally:
            os.close(file)
        if written != len(line):
            raise OSError(f"{self.path} took {written} of {len(line)} bytes")

    def read(self) -> list[Event]:
        """All events so far, in the order of the file, without one that is being written."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._end)
            *whole, _begun = file.read().split(b"\n")
        self._known += [Event(**orjson.loads(line)) for line in whole]
        self._end += sum(len(line) + 1 for line in whole)
        return list(self._known)


@dataclass(frozen=True, slots=True)
class History:
    """A whole run, to be judged by `invariants.check`.

    Attributes:
        events: in order of time.
        states: where the store has each task at the end; one that it doesn't know is not in it.
        taken: how many tasks it says that it took in, where that was read.
        left_in_queue: messages that RabbitMQ still holds.
        undone: starts of attempts that a server may have forgotten: they may be made again.
        given_back: starts of attempts whose daemon gave its claims back itself and lived on.
        redriven: by task, when an operator redrove it.
        aside: groups whose rule says that others pass a task which waits for a delay, a retry or
            its next stage.
        delayed: tasks that were published with a delay.
        lost_ends: tasks that had ended at a server which then lost that, with an attempt or not.
        with_faults: whether a daemon crashed or lost a lease; without, nothing may run twice.
        hands_back: whether daemons may have handed back claims that they never began.
        runs: how many tasks of a group one claim may give: a crash may repeat so many, in order. A
            group of which several may run at once has none.
        concurrency: how many tasks of a group may run at once, where that is more than one.
        superseded: by each task that a newer one replaced, which one.
    """

    events: list[Event]
    states: Mapping[str, State] = field(default_factory=dict)
    taken: int | None = None
    left_in_queue: int = 0
    undone: Set[Event] = frozenset()
    given_back: Set[Event] = frozenset()
    redriven: Mapping[str, Sequence[float]] = field(default_factory=dict)
    aside: Set[str] = frozenset()
    delayed: Set[str] = frozenset()
    lost_ends: Set[str] = frozenset()
    with_faults: bool = True
    hands_back: bool = False
    runs: Mapping[str, int] = field(default_factory=dict)
    concurrency: Mapping[str, int] = field(default_factory=dict)
    superseded: Mapping[str, str] = field(default_factory=dict)

    def was_redriven(self, id_: str, since: float, until: float) -> bool:
        """Whether an operator redrove a task between two times."""
        times = self.redriven.get(id_.partition("#")[0], ())
        return any(since <= at <= until for at in times)

    def run_of(self, group: str) -> int:
        """How many tasks of a group one claim may have given."""
        return self.runs.get(group, 1) if self.concurrency.get(group, 1) == 1 else 1


def in_order(events: Iterable[Event]) -> list[Event]:
    """Events by time; those of one instant stay as they came."""
    return sorted(events, key=lambda event: event.at)
