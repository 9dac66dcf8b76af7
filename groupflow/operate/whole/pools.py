"""The pools of a whole namespace: each lies in all partitions, and so does each worker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from groupflow.operate.pools import PoolStatus, PoolWorker, read_pools
from groupflow.operate.whole.namespace import Namespace


async def read_all_pools(namespace: Namespace, names: Sequence[str]) -> list[PoolStatus]:
    """These pools, in that order, without the parts in partitions that are away.

    Raises:
        StoreUnavailable: no partition answers.
    """
    if not names:
        return []
    answers = await namespace.ask_all(partial(read_pools, names=names))
    found = sum_of_pools(each for seen in answers.all for each in seen.pools)
    return [found[name] for name in names]


def sum_of_pools(parts: Iterable[PoolStatus]) -> dict[str, PoolStatus]:
    """Whole pools by name, from each partition's part of them."""
    found: dict[str, PoolStatus] = {}
    for pool in parts:
        known = found.get(pool.name)
        found[pool.name] = _together(known, pool) if known else pool
    return found


def _together(one: PoolStatus, other: PoolStatus) -> PoolStatus:
    workers = {each.name: each for each in one.workers}
    for each in other.workers:
        known = workers.get(each.name)
        workers[each.name] = _same(known, each) if known else each
    return PoolStatus(
        one.name,
        one.plain + other.plain,
        one.groups + other.groups,
        one.held + other.held,
        max(one.waited, other.waited),
        max(one.known, other.known),
        max(one.silent, other.silent),
        sorted(workers.values(), key=lambda each: each.name),
    )


def _same(one: PoolWorker, other: PoolWorker) -> PoolWorker:
    """A worker by its later call, with the tasks that it holds anywhere."""
    later = min(one, other, key=lambda each: each.heard)
    starts = [each.since for each in (one, other) if each.since is not None]
    return replace(later, held=one.held + other.held, since=min(starts, default=None))
