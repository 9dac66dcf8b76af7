"""The groups that matter now, and the tasks that run: what a live view shows."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import chain

from groupflow.core.progress import Progress
from groupflow.operate.groups import GroupState
from groupflow.operate.namespace import Away, Namespace
from groupflow.operate.scripts import OperatorVerb, named
from groupflow.store.client import StoreClient
from groupflow.store.progress import progress_of

LOOKED_AT = 200  # groups of each state, and running tasks: bounds the script
TOPS = 10  # groups a list
_WALKED = 200  # groups of each index that are looked at for the first list


@dataclass(frozen=True, slots=True)
class Busy:
    """A group, or a plain task that runs."""

    group: str | None  # which; None for a plain task
    state: str  # running, ready, delayed, parked or paused
    waiting: int  # tasks that wait in it, beside the one that runs
    seconds: float | None = None  # how long its task has been running, None unless one is
    task: str | None = None  # its id; daemon and worker say where it runs
    daemon: str | None = None
    worker: str | None = None  # within the daemon
    progress: Progress | None = None  # how far it has got, where its handler says so


@dataclass(frozen=True, slots=True)
class TopGroup:
    """A group that stands out."""

    group: str
    state: GroupState
    waiting: int  # tasks in its lane
    oldest: float  # when the oldest of them was enqueued, Unix seconds


@dataclass(frozen=True, slots=True)
class Tops:
    """The groups that stand out among those that were looked at."""

    at: float  # Unix seconds by Redis's clock
    # how many groups `slowest` is chosen from: the running, the paused and the parked, the first
    # in turn, the first to be due, and the longest known
    looked_at: int
    slowest: list[TopGroup]  # those whose oldest task has waited longest
    longest: list[TopGroup]  # the longest lanes, by looks that walk through all groups
    away: list[Away] = field(default_factory=list)  # partitions that are missing from all of this


async def read_busy(namespace: Namespace) -> list[Busy]:
    """Groups that run or are next in line, and plain tasks that run; some of each, never all.

    Those of each partition follow one another.

    Raises:
        StoreUnavailable: no partition answers.
    """
    return [*chain.from_iterable((await namespace.ask_all(_busy_in)).all)]


async def _busy_in(client: StoreClient) -> list[Busy]:
    reply = named(await client.run(OperatorVerb.BUSY, LOOKED_AT, "plain"), "now")
    found = []
    for row in reply["rows"]:
        facts = named(row, "since")
        since = facts.pop("since", None)
        runs = None if since is None else round(reply["now"] - since, 3)
        facts.pop("oldest", None)
        progress = progress_of(facts.pop("progress", None), reply["now"])
        found.append(Busy(group=facts.pop("group", None), seconds=runs, progress=progress, **facts))
    return found


async def read_tops(namespace: Namespace) -> Tops:
    """The groups that stand out, by a bounded look.

    Raises:
        StoreUnavailable: no partition answers.
    """
    answers = await namespace.ask_all(_tops_in)
    waiting = [group for tops in answers.all for group in tops.slowest]
    longest = [group for tops in answers.all for group in tops.longest]
    return Tops(
        at=max(tops.at for tops in answers.all),
        looked_at=sum(tops.looked_at for tops in answers.all),
        slowest=sorted(waiting, key=lambda group: (group.oldest, group.group))[:TOPS],
        longest=sorted(longest, key=lambda group: (-group.waiting, group.group))[:TOPS],
        away=answers.away,
    )


async def _tops_in(client: StoreClient) -> Tops:
    """Those of a partition: all in which tasks wait, and the longest known, in no order."""
    reply = named(await client.run(OperatorVerb.BUSY, _WALKED, ""), "now")
    rows = [named(row, "oldest") for row in reply["rows"]]
    names = [each.name for each in fields(TopGroup)]
    waiting = [TopGroup(**{name: row[name] for name in names}) for row in rows if "oldest" in row]
    known = {name.decode() for name in reply["longest"]}
    longest = [group for group in waiting if group.group in known]
    return Tops(at=reply["now"], looked_at=len(rows), slowest=waiting, longest=longest)
