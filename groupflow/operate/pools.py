"""Pools as operators see them: what waits for pullers, their names, and what each holds.

Each pool lies in all partitions, and so does each worker.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from groupflow.operate.namespace import Namespace, by_name, summed
from groupflow.operate.scripts import OperatorVerb, named
from groupflow.store.client import StoreClient

MOST_WORKERS = 1000  # that are listed one by one, of all pools asked about
_AT_ONCE = 100  # workers a script

_SILENT = 0.5  # of its lease: a worker that didn't call for so long may well be gone


@dataclass(frozen=True, slots=True)
class PoolWorker:
    """A worker that pulls, as long as its lease runs."""

    name: str
    held: int  # tasks
    since: float | None  # Unix seconds since when it holds the oldest of them
    heard: float  # seconds since its last call
    lease_left: float  # seconds
    is_silent: bool  # whether half of its lease, or more, is over


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """One pool."""

    name: str
    plain: int  # plain tasks that could be claimed
    groups: int  # groups whose head could be claimed
    held: int  # tasks that its workers hold
    waited: float  # seconds for which the task that goes next could have been claimed
    known: int = 0  # workers whose lease runs
    silent: int = 0  # of them, those that didn't call for half of it
    waiting: int = 0  # tasks, and heads of groups, that wait for the limits of their types
    # some of them: if there are too many, the longest silent
    workers: list[PoolWorker] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The public shape of ``groupflow pools --json``."""
        return {**asdict(self), "claimable": self.claimable}

    @property
    def claimable(self) -> int:
        """How many tasks as many workers could claim now."""
        return self.plain + self.groups


async def read_pools(namespace: Namespace, names: Sequence[str]) -> list[PoolStatus]:
    """These pools, in that order, without the parts in partitions that are away.

    Raises:
        StoreUnavailable: no partition answers.
    """
    if not names:
        return []
    answers = await namespace.ask_all(partial(pools_in, names=names))
    found = sum_of_pools(chain.from_iterable(answers.all))
    return [found[name] for name in names]


async def pools_in(
    client: StoreClient, names: Sequence[str] = (), workers: int = MOST_WORKERS
) -> list[PoolStatus]:
    """A partition's part of some pools, or of all that ever had a task or a worker.

    Of their workers it has so many.
    """
    facts = named(await client.run(OperatorVerb.POOLS, *names))
    pools = [PoolStatus(**named(row, "waited")) for row in facts["pools"]]
    share = math.ceil(workers / len(pools)) if pools else 0
    for pool in pools if share else ():
        pool.workers.extend(await _read_workers(client, pool.name, share))
    return pools


async def _read_workers(client: StoreClient, pool: str, most: int) -> list[PoolWorker]:
    """Workers of a pool by name; if there are more, the longest silent."""
    found: dict[str, PoolWorker] = {}
    told, last, ends = 0, "", ""
    while told < most:
        wanted = min(_AT_ONCE, most - told)
        reply = await client.run(OperatorVerb.POOL_WORKERS, pool, wanted, last, ends)
        rows = [named(row, "since", "lease_left", "lease") for row in named(reply)["workers"]]
        if not rows:
            break
        found |= {row["name"]: _worker(row) for row in rows}
        told += len(rows)
        last, ends = rows[-1]["name"], rows[-1]["ends"]
    return [found[name] for name in sorted(found)]


def _worker(facts: dict[str, Any]) -> PoolWorker:
    left, lease = facts["lease_left"], facts["lease"]
    heard = max(0.0, lease - left)
    known = (facts["name"], facts["held"], facts.get("since"))
    return PoolWorker(*known, round(heard, 3), round(left, 3), heard >= lease * _SILENT)


def sum_of_pools(parts: Iterable[PoolStatus]) -> dict[str, PoolStatus]:
    """Whole pools by name, from each partition's part of them."""
    return {name: _whole(some) for name, some in by_name(parts).items()}


def _whole(parts: Sequence[PoolStatus]) -> PoolStatus:
    workers = by_name(chain.from_iterable(part.workers for part in parts))
    every = [_latest(calls) for calls in workers.values()]
    return replace(summed(parts, "known", "silent"), workers=every)


def _latest(calls: Sequence[PoolWorker]) -> PoolWorker:
    """A worker by its later call, with the tasks that it holds anywhere."""
    later = min(calls, key=lambda each: each.heard)
    starts = [each.since for each in calls if each.since is not None]
    held = sum(each.held for each in calls)
    return replace(later, held=held, since=min(starts, default=None))
