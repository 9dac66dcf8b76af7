"""What a seed decides before a run begins: settings, what is published, and which faults come when.

All chance of a fault or a message is drawn here and kept with it. So a failing run is made smaller
by leaving some of them out: what stays is what it was.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, ClassVar, Literal, TypeAlias

from groupflow.store.scripts import Order
from tests.simulation import acts
from tests.simulation.acts import Act, Move, Pull, Row, Scanning, Timer
from tests.simulation.jobs import Job, draw_jobs

LEASE = 2.0
FaultKind: TypeAlias = Literal[
    "kill", "stop", "namesake", "cut", "cut_behind", "cut_late", "part", "redis_restart",
    "fail_over", "redis_away", "rabbitmq_cut", "rabbitmq_away", "lost_acks", "orderly_restart",
    "reload", "block", "join", "leave", "kill_page", "stop_puller",
]  # fmt: skip
_FAULTS: dict[FaultKind, int] = {
    "kill": 6, "stop": 3, "namesake": 2, "cut": 3, "cut_behind": 4, "cut_late": 3, "part": 3,
    "redis_restart": 1, "fail_over": 3, "redis_away": 1, "rabbitmq_cut": 2, "rabbitmq_away": 1,
    "orderly_restart": 2, "reload": 1, "block": 1, "lost_acks": 1, "join": 1, "leave": 1,
}  # fmt: skip
"""What may go wrong, and how often beside the others; `Faults` has a method for each."""
_FAULTS_OF_PULLERS: dict[FaultKind, int] = {"kill_page": 2, "stop_puller": 2}
_FEATURES = {
    "operators": 0.6, "pullers": 0.45, "strangers": 0.6, "tenants": 0.4, "timers": 0.35,
    "rows": 0.35, "moves": 0.2, "unlimited": 0.35,
}  # fmt: skip
"""What a seed may have beside daemons and faults, and how often; or that nothing limits its tasks.

Where no rule, tenant or order does, an exchange is mostly done in bulk: see `ordinary.lua`.
"""
_FEATURES_APART = {
    "full": ("full", 0.35),  # groups in which few may wait
    "newest": ("updates", 0.3),  # groups in which the newest task replaces the one that runs
    "cancels": ("regrets", 0.35),  # publishers cancel some of their tasks
    "expires": ("expiries", 0.35),  # messages say within what time their tasks have to start
    "deploys": ("deploys", 0.35),  # a deploy brings a type, whose tasks come before it as well
    "types": ("limited types", 0.4),  # some types are limited
    "events": ("told ends", 0.4),  # ends are told to all, and to what asked for replies
    "drains": ("drains", 0.4),  # rules want to be told of drained groups; for seeds with limits
}
"""The same, each drawn apart, under a name of its own, so that other seeds stay what they are."""
AUDITS = 400  # most moments of a run at which its structure is looked at
_ORDERS: tuple[Order, ...] = ("oldest", "oldest", "fair", "tenants")


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong.

    Attributes:
        at: virtual seconds after the beginning.
        kind: what.
        daemon: which daemon it happens to, where it happens to one.
        steps: a kill comes so many callbacks later.
        seconds: for how long.
        draw: from 0 to 1, what is decided at that time.
    """

    at: float
    kind: FaultKind
    daemon: int
    steps: int
    seconds: float
    draw: float

    def __str__(self) -> str:
        return f"{self.kind} of daemon {self.daemon} for {self.seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class Plan:
    """A run, before it begins."""

    seed: int
    daemons: int
    jobs: tuple[Job, ...]
    faults: tuple[Fault, ...]
    lease: float = LEASE
    order: Order = "oldest"
    partitions: int = 1
    replicas: int = 0
    plain: int = 2
    grouped: int = 4
    features: frozenset[str] = frozenset()
    acts: tuple[Act, ...] = ()
    pulls: tuple[Pull, ...] = ()
    moves: tuple[Move, ...] = ()
    timers: tuple[Timer, ...] = ()
    rows: tuple[Row, ...] = ()
    scanning: Scanning = field(default_factory=Scanning)
    deploy: float = float("inf")
    """Virtual seconds after which processes that start know the type that is brought."""
    audits: tuple[int, ...] = ()
    """How many calls to Redis lie between two looks at what it holds."""

    PARTS: ClassVar[tuple[str, ...]] = (
        "faults", "moves", "acts", "pulls", "timers", "rows", "jobs",
    )  # fmt: skip
    """What a run may go without, each a tuple, those that tell most first."""

    def parts(self, kind: str) -> tuple[Any, ...]:
        """All of one of `PARTS`."""
        found: tuple[Any, ...] = getattr(self, kind)
        return found

    def without(self, kind: str, begin: int, end: int) -> Plan:
        """The same run without those from one place to another."""
        every = self.parts(kind)
        changed: dict[str, Any] = {kind: every[:begin] + every[end:]}
        return replace(self, **changed)


def plan(
    seed: int,
    *,
    daemons: int | None = None,
    tasks: int = 60,
    faults: int = 8,
    seconds: float = 9.0,
) -> Plan:
    """What a seed decides.

    Args:
        seed: any number.
        daemons: how many; `None` lets the seed decide, from two to four.
        tasks: how many messages.
        faults: how many.
        seconds: virtual, in which faults come.
    """
    chance = Random(seed)
    number = daemons or chance.choice((2, 3, 3, 4))
    others = Random(f"features {seed}")
    features = {name for name, share in _FEATURES.items() if others.random() < share}
    apart = {name: Random(f"{draw} {seed}") for name, (draw, _) in _FEATURES_APART.items()}
    shares = _FEATURES_APART.items()
    features |= {name for name, (_, share) in shares if apart[name].random() < share}
    if is_unlimited := "unlimited" in features:
        features -= {"tenants", "types", "drains"}
    deploys = apart["deploys"]
    order = chance.choice(_ORDERS)
    partitions = others.choice((1, 1, 1, 2, 3))
    faults_of = _FAULTS | (_FAULTS_OF_PULLERS if "pullers" in features else {})
    kinds, weights = list(faults_of), list(faults_of.values())
    drawn = [
        Fault(
            at=chance.uniform(0.2, seconds),
            kind=chance.choices(kinds, weights)[0],
            daemon=chance.randrange(number),
            steps=chance.randint(1, 60),
            seconds=chance.choice((0.05, 0.4, 1.0, 3.0, 5.0)) * chance.uniform(0.8, 1.2),
            draw=chance.random(),
        )
        for _ in range(faults)
    ]
    deploy = deploys.uniform(0.1, 0.7) * seconds if "deploys" in features else float("inf")
    pace = deploys.choice((0.3, 1.5, 3.0))
    for each in range(number) if "deploys" in features else ():
        at, rest = deploy + pace * each, deploys.uniform(0.0, 0.5)
        drawn.append(Fault(at, "orderly_restart", each, 1, rest, deploys.random()))
    # Where a server begins again, a group that is partly a pool's may have two at once: ADR 0071.
    is_mixed = not any(fault.kind in ("redis_restart", "fail_over") for fault in drawn)
    moves = acts.draw_moves(seed, seconds, partitions) if "moves" in features else ()
    layouts = (partitions, *(move.partitions for move in moves))
    jobs = draw_jobs(seed, tasks, seconds, layouts, features, is_mixed=is_mixed)
    rows, scanning = acts.draw_rows(seed, seconds) if "rows" in features else ((), Scanning())
    return Plan(
        seed=seed,
        daemons=number,
        jobs=tuple(jobs),
        faults=tuple(sorted(drawn, key=lambda fault: fault.at)),
        order="fair" if is_unlimited and order == "tenants" else order,
        partitions=partitions,
        replicas=chance.choice((0, 1)),
        plain=chance.randint(1, 3),
        grouped=chance.randint(2, 5),
        features=frozenset(features),
        acts=_acts(seed, jobs, seconds, features),
        pulls=acts.draw_pulls(seed, seconds) if "pullers" in features else (),
        timers=acts.draw_timers(seed) if "timers" in features else (),
        moves=moves,
        rows=rows,
        scanning=scanning,
        deploy=deploy,
        audits=tuple(1 + round(others.expovariate(1 / 45)) for _ in range(AUDITS)),
    )


def _acts(seed: int, jobs: Sequence[Job], seconds: float, features: Set[str]) -> tuple[Act, ...]:
    """What operators do, those of its types too."""
    if "operators" not in features:
        return ()
    of_types = acts.draw_acts_on_types(seed, seconds) if "types" in features else ()
    every = (*acts.draw_acts(seed, jobs, seconds), *of_types)
    return tuple(sorted(every, key=lambda act: act.at))
