"""Totals: what waits, runs and is over, and the daemons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from typing import Any

import orjson

from groupflow.core.limits import SetByHand
from groupflow.operate.groups import paused_by
from groupflow.operate.limits import set_by_hand, together
from groupflow.operate.namespace import Away, Namespace, by_name, summed
from groupflow.operate.scripts import OperatorVerb, named
from groupflow.store.client import StoreClient
from groupflow.store.clock import seconds

_TIMES = ("at", "waited_plain", "waited_grouped", "standing_waited", "outbox_age")
_NAMED = 3  # tenants at their limits
_COUNTED = ("queued_plain", "queued_grouped", "running_plain", "running_grouped", "asleep")
_COUNTED_BYTES = ("delayed_bytes", "carried_bytes", "dead_bytes", "outbox_bytes")
ENDS = ("done", "cancelled", "expired", "superseded", "dropped")
_HELD = ("ready", "delayed", "parked", "paused")  # states of groups
_OF_PARTITION = ("ready", "delayed", "parked", "dead", "done_total")
_KNOWN_TO_EACH = ("limited_tenants", "limited_types", "standing_types")  # partition
_COUNTED_EVER = ("taken", *ENDS, "buried", "crashed", "drained")


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """One daemon; `heartbeat_age` is the seconds since it last renewed its lease."""

    name: str
    pid: int
    host: str
    workers: int
    heartbeat_age: float
    version: str = ""
    draining: bool = False  # whether it stops: it claims nothing, and lets its handlers end
    late: bool = False  # whether its lease has run out in all partitions: it died, or hangs


@dataclass(frozen=True, slots=True)
class IntakeStatus:
    """A daemon whose intake stands: why, and since when (Unix seconds by that daemon's clock)."""

    daemon: str
    paused: str
    since: float


@dataclass(frozen=True, slots=True)
class Hold:
    """A pause of everything: by which operator, and since when (Unix seconds)."""

    by: str
    since: float
    until: float | None = None  # when it goes on by itself; None if it doesn't


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A partition that gives nothing out, since its Redis may have lost claims (ADR 0045)."""

    partition: int
    since: float  # Unix seconds by Redis's clock, as the next
    until: float  # at the latest


@dataclass(frozen=True, slots=True)
class PoolWait:
    """What waits for the workers that pull from a pool: no daemon runs it."""

    name: str
    plain: int  # plain tasks that could be claimed, of those that are queued
    groups: int  # the same of heads of groups
    workers: int  # how many pull from it: their leases run

    def words(self) -> str:
        """The same for people."""
        what = f"plain tasks {self.plain:,}, groups {self.groups:,}"
        by = f"{self.workers:,} pull from it" if self.workers else "no worker pulls from it"
        return f"waiting for pool {self.name}: {what}; {by}"


@dataclass(frozen=True, slots=True)
class Totals:
    """What waits, runs and is over."""

    at: float  # when it was read, Unix seconds by Redis's clock
    queued_plain: int  # plain tasks that wait, delayed ones too
    queued_grouped: int  # grouped tasks that wait, in any state of their group
    asleep: int  # of them, shards of scans that found nothing to do: they wait for no worker
    running_plain: int  # plain tasks that run
    # grouped tasks that run: one a group, more for groups with a `concurrency`
    running_grouped: int
    # seconds for which the next plain task could have been claimed; 0 if none waits
    waited_plain: float
    waited_grouped: float  # the same of the grouped one
    groups: int  # groups with something in them
    ready: int  # groups whose head may be claimed
    # groups whose head isn't due yet, or whose tenant or type may start nothing
    delayed: int
    standing: int  # of these, those whose tenant may start nothing
    standing_plain: int  # plain tasks whose tenant may start nothing
    standing_tenants: int  # tenants at their limits that have something waiting
    standing_waited: float  # seconds for which the oldest that is next of one of these has waited
    capped: int  # and those whose head's type is at its limit
    standing_types: int  # patterns of types at their limits that have something waiting
    parked: int  # groups that a dead letter holds
    paused: int  # groups that operators hold
    paused_too: int  # of these, those that still run, or are parked: they count as that as well
    limited_groups: int  # groups with limits by hand
    limited_tenants: int  # tenants with limits by hand
    limited_types: int  # patterns of types with limits by hand
    delayed_tasks: int  # tasks that stand aside until they are due
    dead: int
    dead_staying: int  # dead letters whose bodies RabbitMQ refused
    delayed_bytes: int  # of tasks that wait for delays
    carried_bytes: int  # of stages and failed attempts, of waiting and running tasks
    dead_bytes: int  # of dead letters that are in Redis whole
    outbox: int  # events that RabbitMQ is still to be told
    outbox_bytes: int
    outbox_age: float  # seconds for which the oldest of them has waited; 0 if none waits
    outbox_full: int  # partitions where nothing is claimed, since so many bytes wait
    taken_total: int  # tasks that ever came in; the next eight are totals as well
    done_total: int  # tasks that were done
    cancelled_total: int  # tasks that were cancelled
    expired_total: int  # tasks that had not started in time
    superseded_total: int  # tasks that a newer one of their group and type replaced
    dropped_total: int  # waiting tasks and dead letters that were removed
    buried_total: int  # deaths; a redriven task may die again
    crashed_total: int  # claims that ended without a settle
    drained_total: int  # drained groups that a task was enqueued for (on_drained)
    everything_paused: Hold | None  # by whom and since when, or None
    daemons: list[DaemonStatus]  # those with a session, the late ones too
    intake: list[IntakeStatus]  # those of them whose intake stands
    held_back: list[HeldBack] = field(default_factory=list)  # partitions that give nothing out
    pools: list[PoolWait] = field(default_factory=list)  # those that something waits for
    standing_names: list[str] = field(default_factory=list)  # some tenants at their limits
    # some of the limits by hand, the first to end first
    by_hand: list[SetByHand] = field(default_factory=list)
    away: list[Away] = field(default_factory=list)  # partitions that are missing from all of this

    @property
    def has_daemon(self) -> bool:
        """Whether some daemon's lease runs."""
        return not all(each.late for each in self.daemons)

    def as_json(self) -> dict[str, Any]:
        """The public shape of ``groupflow status --json``."""
        plain, grouped = (
            {name: getattr(self, f"{name}_{kind}") for name in ("queued", "running", "waited")}
            for kind in ("plain", "grouped")
        )
        states = ("asleep", "groups", "ready", "delayed", "parked", "paused", "paused_too")
        return {
            "paused": self.everything_paused,
            "plain": plain,
            "grouped": {**grouped, **{name: getattr(self, name) for name in states}},
            "tenants": {
                "standing": self.standing_tenants,
                "groups": self.standing,
                "plain": self.standing_plain,
                "waited": self.standing_waited,
                "names": self.standing_names,
            },
            "types": {"standing": self.standing_types, "groups": self.capped},
            "pools": self.pools,
            "limited": {
                "tenants": self.limited_tenants,
                "groups": self.limited_groups,
                "types": self.limited_types,
            },
            "limits": self.by_hand,
            "dead": self.dead,
            "dead_staying": self.dead_staying,
            **({"carried_bytes": self.carried_bytes} if self.carried_bytes else {}),
            **({"outbox": self._outbox} if self.outbox else {}),
            **{f"{how}_total": getattr(self, f"{how}_total") for how in ENDS},
            "failed_total": self.buried_total,
            "drained_total": self.drained_total,
            "daemons": self.daemons,
            "intake": self.intake,
            **({"held_back": self.held_back} if self.held_back else {}),
            **({"away": [each.partition for each in self.away]} if self.away else {}),
        }

    @property
    def _outbox(self) -> dict[str, float]:
        return {
            "events": self.outbox,
            "bytes": self.outbox_bytes,
            "age": self.outbox_age,
            "full": self.outbox_full,
        }


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """What lies in one partition; zeros where it is away."""

    partition: int
    queued: int = 0  # tasks, without shards of scans that found nothing to do
    running: int = 0
    ready: int = 0  # groups, as the next two
    delayed: int = 0
    parked: int = 0
    dead: int = 0
    done_total: int = 0
    away: str = ""  # why it doesn't answer; empty where it does


async def read_partitions(namespace: Namespace) -> list[PartitionRow]:
    """What lies in each partition, by number.

    Raises:
        StoreUnavailable: none answers.
    """
    answers = await namespace.ask_all(totals_in)
    rows = [PartitionRow(each.partition, away=each.why) for each in answers.away]
    for number, found in answers.by_partition.items():
        queued = found.queued_plain + found.queued_grouped - found.asleep
        running = found.running_plain + found.running_grouped
        same = {name: getattr(found, name) for name in _OF_PARTITION}
        rows.append(PartitionRow(number, queued, running, **same))
    return sorted(rows, key=attrgetter("partition"))


async def read_totals(namespace: Namespace) -> Totals:
    """Totals of all partitions, each read in one instant of its own.

    Raises:
        StoreUnavailable: none answers.
    """
    answers = await namespace.ask_all(totals_in)
    return sum_of(answers.by_partition, answers.away)


def sum_of(parts: Mapping[int, Totals], away: Sequence[Away]) -> Totals:
    """Totals of several partitions together; those of one alone stay as they are.

    Args:
        parts: the totals, by partition.
        away: the partitions that are missing.
    """
    first, *others = every = [*parts.values()]
    if not others:
        return replace(first, away=[*away])
    holds = [part.everything_paused for part in every if part.everything_paused]
    return replace(
        summed(every, *_KNOWN_TO_EACH),
        everything_paused=min(holds, key=lambda hold: hold.since, default=None),
        daemons=_merged(chain.from_iterable(part.daemons for part in every)),
        # A daemon reports the same to all partitions.
        intake=[*{each.daemon: each for part in every for each in part.intake}.values()],
        pools=_by_pool(chain.from_iterable(part.pools for part in every)),
        standing_names=_names(chain.from_iterable(part.standing_names for part in every)),
        by_hand=together(part.by_hand for part in every),
        held_back=[each for part in every for each in part.held_back],
        away=[*away],
    )


def _by_pool(parts: Iterable[PoolWait]) -> list[PoolWait]:
    """Each pool once; its workers pull from all partitions."""
    return [summed(some, "workers") for some in by_name(parts).values()]


def _names(told: Iterable[str]) -> list[str]:
    """Each tenant once, some of them."""
    return [*dict.fromkeys(told)][:_NAMED]


def _merged(told: Iterable[DaemonStatus]) -> list[DaemonStatus]:
    """Each daemon once, as its newest session reports it, with its longest silence anywhere."""
    by_age = sorted(told, key=attrgetter("heartbeat_age"))
    silence = {each.name: each.heartbeat_age for each in by_age}
    newest = {each.name: each for each in reversed(by_age)}
    every = [replace(each, heartbeat_age=silence[name]) for name, each in newest.items()]
    return sorted(every, key=attrgetter("name"))


async def totals_in(client: StoreClient) -> Totals:
    """Totals of a partition, read in one instant."""
    facts = named(await client.run(OperatorVerb.STATUS), *_TIMES)
    count = Counter({name: int(number) for name, number in named(facts.pop("count")).items()})
    known = [known_daemon(row) for row in facts.pop("daemons")]
    by_hand = [set_by_hand(*row) for row in facts.pop("by_hand")]
    names = _names(name.decode() for name in facts.pop("standing_names"))
    pools = _by_pool(PoolWait(**named(row)) for row in facts.pop("pools"))
    note, ends = facts.pop("everything_paused", None), facts.pop("everything_ends", None)
    hold = Hold(*paused_by(note), ends and seconds(ends)) if note else None
    recovering = [seconds(int(each)) for each in facts.pop("recovering", ())]
    # One lock a group, except where several tasks of a group may run.
    locked = count["running_grouped"] - facts.pop("sharing") + facts.pop("running_groups")
    facts |= {name: count[name] for name in (*_COUNTED, *_COUNTED_BYTES)}
    facts |= {f"{name}_total": count[name] for name in _COUNTED_EVER}
    return Totals(
        **facts,
        groups=locked + sum(facts[name] for name in _HELD) - facts["paused_too"],
        everything_paused=hold,
        held_back=[HeldBack(client.keys.partition or 0, *recovering)] if recovering else [],
        pools=pools,
        standing_names=names,
        by_hand=by_hand,
        daemons=[_status_of(each) for each in known],
        intake=[
            IntakeStatus(each.name, standing["paused"], standing["since"])
            for each in known
            if (standing := each.info.get("intake"))
        ],
    )


def _status_of(daemon: KnownDaemon) -> DaemonStatus:
    age = round(max(0.0, daemon.info.get("lease", 0.0) - daemon.lease_left), 3)
    told = daemon.info.get("version", ""), daemon.info.get("draining", False)
    late = daemon.lease_left <= 0
    return DaemonStatus(daemon.name, daemon.pid, daemon.host, daemon.workers, age, *told, late)


@dataclass(frozen=True, slots=True)
class KnownDaemon:
    """A daemon that has a session."""

    name: str
    lease_left: float  # seconds until its lease ends
    # what it reports: host, pid, workers, lease, a standing intake, its queues, its last reload
    info: dict[str, Any]

    @property
    def host(self) -> str:
        return str(self.info.get("host", ""))

    @property
    def pid(self) -> int:
        return int(self.info.get("pid", 0))

    @property
    def workers(self) -> int:
        return int(self.info.get("workers", 0))

    @property
    def reload(self) -> dict[str, Any]:
        """What became of its last reload (see `flow.reload.Reload`); empty before the first."""
        return dict(self.info.get("reload", {}))


def known_daemon(row: Sequence[Any]) -> KnownDaemon:
    """A daemon as `status.lua` answers it."""
    facts = named(row, "lease_left")
    return KnownDaemon(facts["name"], facts["lease_left"], orjson.loads(facts["info"]))


async def read_daemons(namespace: Namespace) -> list[KnownDaemon]:
    """The daemons whose lease runs in any partition, each as its newest session reports it.

    Raises:
        StoreUnavailable: no partition answers.
    """
    answers = await namespace.ask_all(daemons_in)
    known = sorted(chain.from_iterable(answers.all), key=attrgetter("lease_left"))
    return [*{each.name: each for each in known}.values()]


async def daemons_in(client: StoreClient) -> list[KnownDaemon]:
    """The daemons whose lease runs in a partition."""
    facts = named(await client.run(OperatorVerb.STATUS))
    known = [known_daemon(row) for row in facts["daemons"]]
    return [each for each in known if each.lease_left > 0]


async def count_consumers(client: StoreClient, queue: str) -> int:
    """How many daemons consume the partitions of a queue.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    return sum(each.info.get("queues", {}).get("of") == queue for each in await daemons_in(client))
