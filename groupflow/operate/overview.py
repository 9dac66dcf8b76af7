"""The whole store at one instant, and the groups that stand out, without a look at all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from groupflow.operate.groups import State
from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.totals import DaemonStatus, IntakeStatus, status_of
from groupflow.store.client import StoreClient
from groupflow.store.clock import MICROSECONDS

_TOPS = 10  # groups a list
_WALKED = 200  # groups of each index that are looked at for the first list


@dataclass(frozen=True, slots=True)
class Hold:
    """Somebody paused everything: who, and since when (Unix seconds)."""

    by: str
    since: float


@dataclass(frozen=True, slots=True)
class Overview:
    """What waits, runs and is over.

    Attributes:
        at: when it was read, Unix seconds by Redis's clock.
        queued_plain: plain tasks that wait, delayed ones too.
        queued_grouped: grouped tasks that wait, in whatever state their group is.
        running_plain: plain tasks that run.
        running_grouped: grouped tasks that run, which is as many groups.
        groups: groups with something in them.
        ready: groups whose head may be claimed.
        delayed: groups whose head isn't due yet.
        parked: groups that a dead letter holds.
        paused: groups that only people hold.
        delayed_tasks: tasks that stand aside until they are due.
        dead: dead letters.
        taken_total: tasks that ever came in; the next three likewise.
        done_total: tasks that were done.
        buried_total: deaths; a redriven task may die again.
        crashed_total: claims that ended without a settle.
        everything_paused: by whom and since when, or ``None``.
        daemons: those with a lease.
        intake: those of them whose intake stands.
    """

    at: float
    queued_plain: int
    queued_grouped: int
    running_plain: int
    running_grouped: int
    groups: int
    ready: int
    delayed: int
    parked: int
    paused: int
    delayed_tasks: int
    dead: int
    taken_total: int
    done_total: int
    buried_total: int
    crashed_total: int
    everything_paused: Hold | None
    daemons: list[DaemonStatus]
    intake: list[IntakeStatus]


@dataclass(frozen=True, slots=True)
class TopGroup:
    """A group that stands out.

    Attributes:
        group: which.
        state: its state.
        waiting: tasks in its lane.
        oldest: when the oldest of them was enqueued, Unix seconds.
    """

    group: str
    state: State
    waiting: int
    oldest: float


@dataclass(frozen=True, slots=True)
class Tops:
    """The groups that stand out among those that were looked at.

    Attributes:
        at: Unix seconds by Redis's clock.
        looked_at: how many groups `slowest` is chosen from: what runs, what people and deaths hold,
            the first in turn and the first to be due.
        slowest: those whose oldest task has waited longest.
        longest: the longest lanes, from a survey that walks on through all groups.
    """

    at: float
    looked_at: int
    slowest: list[TopGroup]
    longest: list[TopGroup]


async def read_overview(client: StoreClient) -> Overview:
    """Read all totals in one instant.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    reply = await client.run(OperatorVerb.STATUS)
    status = status_of(reply)
    count = {name.decode(): int(n) for name, n in zip(reply[0][::2], reply[0][1::2], strict=True)}
    paused, delayed_tasks, now, note = reply[4], reply[6], reply[10], reply[11]
    hold = None
    if note:
        by, since = orjson.loads(note)
        hold = Hold(by, int(since) / MICROSECONDS)
    return Overview(
        at=now / MICROSECONDS,
        queued_plain=status.plain.queued,
        queued_grouped=status.grouped.queued,
        running_plain=status.plain.running,
        running_grouped=status.grouped.running,
        groups=status.grouped.groups,
        ready=status.grouped.ready,
        delayed=status.grouped.delayed,
        parked=status.grouped.parked,
        paused=paused,
        delayed_tasks=delayed_tasks,
        dead=status.dead,
        taken_total=count.get("taken", 0),
        done_total=status.done_total,
        buried_total=status.failed_total,
        crashed_total=count.get("crashed", 0),
        everything_paused=hold,
        daemons=status.daemons,
        intake=status.intake,
    )


async def read_tops(client: StoreClient) -> Tops:
    """Find the groups that stand out, by a bounded look.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    now, looked, slowest, longest = await client.run(OperatorVerb.TOPS, _TOPS, _WALKED)
    return Tops(now / MICROSECONDS, looked, _rows(slowest), _rows(longest))


def _rows(rows: list[Any]) -> list[TopGroup]:
    return [
        TopGroup(group.decode(), state.decode(), waiting, arrival / MICROSECONDS)
        for group, state, waiting, arrival in rows
    ]
