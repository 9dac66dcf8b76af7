"""One daemon as operators see it: what it is, what it does in each partition, and what it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import orjson

from groupflow.core.progress import Progress
from groupflow.operate.namespace import Away, Namespace
from groupflow.operate.scripts import OperatorVerb, named
from groupflow.store.client import StoreClient
from groupflow.store.progress import progress_of

_SHOWN = 100  # claims of a partition
_POOLS = ("plain", "grouped")


@dataclass(frozen=True, slots=True)
class Held:
    """A task that a daemon has claimed."""

    id: str
    type: str
    group: str | None  # None for a plain task
    tenant: str | None
    worker: str
    since: float  # when it was claimed, Unix seconds
    progress: Progress | None = None  # how far it has got, where its handler says so

    def without_words(self) -> Held:
        """The same without the handler's own text."""
        return replace(self, progress=self.progress and self.progress.without_words())


@dataclass(frozen=True, slots=True)
class Place:
    """A daemon in one partition."""

    partition: int
    lease_left: float  # seconds
    roles: list[str]  # what it alone does there now: archiver, relay
    claims: int  # tasks that it holds there, the prefetched ones too


@dataclass(frozen=True, slots=True)
class DaemonStory:
    """One daemon at this instant, as it tells of itself and as its claims show."""

    name: str
    host: str
    pid: int
    version: str
    started_at: float | None  # Unix seconds by its own clock
    draining: bool  # whether it stops: it claims nothing, and lets its handlers end
    parts: list[str]  # what it has: intake, workers, page, and `scan NAME`
    workers: dict[str, int]  # by pool
    busy: dict[str, int]  # how many of them run a task
    partitions: list[Place]  # those in which it has a session
    intake: dict[str, Any] | None  # why its intake is paused, and since when; None if it isn't
    tasks: list[Held]  # some of those that it holds, the oldest claim of each partition first
    away: list[Away] = field(default_factory=list)  # partitions that are missing from all of this


async def find_daemon(namespace: Namespace, name: str) -> DaemonStory | None:
    """The daemon of a name; ``None`` where none has a session.

    Raises:
        StoreUnavailable: no partition answers.
    """

    async def look(client: StoreClient) -> dict[str, Any]:
        return named(await client.run(OperatorVerb.DAEMON, name, _SHOWN), "now", "lease_left")

    answers = await namespace.ask_all(look)
    known = {n: each for n, each in answers.by_partition.items() if "info" in each}
    if not known:
        return None
    info = orjson.loads(max(known.values(), key=lambda each: each["lease_left"])["info"])
    workers = {pool: size for pool, size in info.get("pools", {}).items() if size}
    held = {pool: sum(each[pool] for each in known.values()) for pool in _POOLS}
    return DaemonStory(
        name=name,
        host=info.get("host", ""),
        pid=info.get("pid", 0),
        version=info.get("version", ""),
        started_at=info.get("started_at"),
        draining=info.get("draining", False),
        parts=info.get("parts", []),
        workers=workers,
        # A claim is prefetched only while all workers of its pool are busy.
        busy={pool: min(size, held.get(pool, 0)) for pool, size in workers.items()},
        partitions=[_place(n, each) for n, each in known.items()],
        intake=info.get("intake"),
        tasks=[*chain.from_iterable(map(_tasks, known.values()))],
        away=answers.away,
    )


async def read_configuration(namespace: Namespace, daemon: str) -> dict[str, Any] | None:
    """The configuration of a daemon, passwords hidden; ``None`` if it reported none.

    Raises:
        StoreUnavailable: no partition answers.
    """
    answers = await namespace.ask_all(lambda client: client.run(OperatorVerb.CONFIGURATION, daemon))
    return next((orjson.loads(packed) for packed in answers.all if packed), None)


def _place(number: int, facts: Mapping[str, Any]) -> Place:
    roles = [role.decode() for role in facts["roles"]]
    claims = sum(facts[pool] for pool in _POOLS)
    return Place(number, max(0.0, facts["lease_left"]), roles, claims)


def _tasks(facts: Mapping[str, Any]) -> list[Held]:
    rows = [named(row, "since") for row in facts["claims"]]
    held = []
    for row in rows:
        progress = progress_of(row.pop("progress", None), facts["now"])
        held.append(Held(**{"group": None, "tenant": None, **row}, progress=progress))
    return held
