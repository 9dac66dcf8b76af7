"""Figures of a whole namespace: sums, or the first of each partition's first ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import Any

from groupflow.operate import busy, daemons, sampling
from groupflow.operate import totals as one
from groupflow.operate.away import Away
from groupflow.operate.busy import TOPS, Busy, Tops
from groupflow.operate.daemons import KnownDaemon
from groupflow.operate.sampling import INTERVAL, Row, Sample
from groupflow.operate.totals import DaemonStatus, Totals
from groupflow.operate.whole.limits import together as together_by_hand
from groupflow.operate.whole.namespace import Namespace
from groupflow.store.clock import microseconds

_COUNTS = 12  # columns of a sample in front of its latencies
_NOT_SUMMED = {"at", "waited_plain", "waited_grouped"}


async def read_totals(namespace: Namespace) -> Totals:
    """Totals of all partitions, each read in one instant of its own.

    Raises:
        StoreUnavailable: none answers.
    """
    answers = await namespace.ask_all(one.read_totals)
    return sum_of(answers.by_partition, answers.away)


def sum_of(parts: Mapping[int, Totals], away: Sequence[Away]) -> Totals:
    """Totals of several partitions together; those of one alone stay as they are.

    Args:
        parts: the totals, by partition.
        away: the partitions that are missing.
    """
    first, *others = parts.values()
    if not others:
        return replace(first, away=[*away])
    every = (first, *others)
    sums = {
        name: sum(getattr(part, name) for part in every)
        for name in (each.name for each in fields(Totals) if each.type == "int")
    }
    sums["limited_tenants"] = max(part.limited_tenants for part in every)  # each knows all of them
    largest = {name: max(getattr(part, name) for part in every) for name in _NOT_SUMMED}
    holds = [part.everything_paused for part in every if part.everything_paused]
    return Totals(
        **sums,
        **largest,
        everything_paused=min(holds, key=lambda hold: hold.since, default=None),
        daemons=_by_name(chain.from_iterable(part.daemons for part in every)),
        # A daemon reports the same to all partitions.
        intake=[*{each.daemon: each for part in every for each in part.intake}.values()],
        by_hand=together_by_hand(part.by_hand for part in every),
        held_back=[each for part in every for each in part.held_back],
        away=[*away],
    )


def _by_name(told: Iterable[DaemonStatus]) -> list[DaemonStatus]:
    """Each daemon once, as its newest session reports it, with its longest silence anywhere."""
    found: dict[str, DaemonStatus] = {}
    silence: dict[str, float] = {}
    for each in told:
        silence[each.name] = max(each.heartbeat_age, silence.get(each.name, 0.0))
        known = found.get(each.name)
        if known is None or each.heartbeat_age < known.heartbeat_age:
            found[each.name] = each
    return [replace(each, heartbeat_age=silence[name]) for name, each in found.items()]


async def read_daemons(namespace: Namespace) -> list[KnownDaemon]:
    """The daemons whose lease runs in any partition, each as its newest session reports it.

    Raises:
        StoreUnavailable: no partition answers.
    """
    answers = await namespace.ask_all(daemons.read_daemons)
    found: dict[str, KnownDaemon] = {}
    for each in chain.from_iterable(answers.all):
        if each.name not in found or each.lease_left > found[each.name].lease_left:
            found[each.name] = each
    return [*found.values()]


async def read_configuration(namespace: Namespace, daemon: str) -> dict[str, Any] | None:
    """The configuration that a daemon runs with; see `daemons.read_configuration`.

    Raises:
        StoreUnavailable: no partition answers.
    """
    answers = await namespace.ask_all(lambda client: daemons.read_configuration(client, daemon))
    return next((found for found in answers.all if found is not None), None)


async def read_busy(namespace: Namespace) -> list[Busy]:
    """What `busy.read_busy` returns for each partition, one after another.

    Raises:
        StoreUnavailable: no partition answers.
    """
    return [*chain.from_iterable((await namespace.ask_all(busy.read_busy)).all)]


async def read_tops(namespace: Namespace) -> Tops:
    """The groups that stand out among those of all partitions.

    Raises:
        StoreUnavailable: no partition answers.
    """
    answers = await namespace.ask_all(busy.read_tops)
    slowest = [group for tops in answers.all for group in tops.slowest]
    longest = [group for tops in answers.all for group in tops.longest]
    return Tops(
        at=max(tops.at for tops in answers.all),
        looked_at=sum(tops.looked_at for tops in answers.all),
        slowest=sorted(slowest, key=lambda group: (group.oldest, group.group))[:TOPS],
        longest=sorted(longest, key=lambda group: (-group.waiting, group.group))[:TOPS],
        away=answers.away,
    )


async def read_samples(namespace: Namespace) -> list[Sample]:
    """The last hour, oldest first.

    Raises:
        StoreUnavailable: no partition answers.
    """
    return sampling.samples_of(together((await namespace.ask_all(sampling.read_rows)).all))


def together(parts: Sequence[Sequence[Row]]) -> list[Row]:
    """One row for each interval, with the sums of all partitions.

    If a partition has no row, no daemon could write there: its totals then were about the same as
    before, and nothing was measured.
    """
    if len(parts) == 1:
        return [*parts[0]]
    length = microseconds(INTERVAL)
    kept = [{row[0] // length: row for row in rows} for rows in parts if rows]
    latest = [rows[0] for rows in parts if rows]
    found: list[Row] = []
    for number in sorted(set().union(*kept)):
        now = [rows[number] for rows in kept if number in rows]
        latest = [rows.get(number, before) for rows, before in zip(kept, latest, strict=True)]
        totals = [sum(row[n] for row in latest) for n in range(1, _COUNTS)]
        at, counts = max(row[0] for row in now), _added([row[_COUNTS] for row in now])
        found.append((at, *totals, counts))
    return found


def _added(counts: Sequence[Any]) -> Any:
    """The sums of lists of counts, place by place; shorter lists add nothing."""
    longest = max(map(len, counts))
    return [sum(row[n] for row in counts if n < len(row)) for n in range(longest)]
