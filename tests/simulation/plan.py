"""What a seed decides before a run begins: settings, what is published, and which faults come when.

All chance of a fault or a message is drawn here and kept with it. So a failing run is made smaller
by leaving some of them out: what stays is what it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Literal, TypeAlias

from groupflow.store.scripts import Order

LEASE = 2.0
FaultKind: TypeAlias = Literal[
    "kill", "stop", "cut", "cut_behind", "part", "redis_restart", "fail_over", "redis_away",
    "rabbitmq_cut", "rabbitmq_away", "orderly_restart", "reload", "block",
]  # fmt: skip
_FAULTS: dict[FaultKind, int] = {
    "kill": 6,
    "stop": 3,
    "cut": 3,
    "cut_behind": 3,
    "part": 3,
    "redis_restart": 1,
    "fail_over": 3,
    "redis_away": 1,
    "rabbitmq_cut": 2,
    "rabbitmq_away": 1,
    "orderly_restart": 2,
    "reload": 1,
    "block": 1,
}
BURST = 0.7  # of the messages follow right behind another one
_ORDERS: tuple[Order, ...] = ("oldest", "oldest", "fair", "tenants")
_RULES = ("", "", "", "runs", "several", "batches", "bursts")
_TYPES = ("work", "slow", "flaky", "bad", "stages", "hold")
_WEIGHTS = (60, 15, 8, 3, 8, 1)


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
class Job:
    """A message that is published.

    Attributes:
        n: its number.
        lane: the publisher that sends it, behind what that has sent before.
        wait: seconds that the publisher waits before.
        type: of its handler.
        entity: its group's entity; empty for a plain task.
        rule: what the group's rule is called; empty for the plain rule.
        twice: whether the confirm is lost, so that it is published again.
        priority: in seconds.
    """

    n: int
    lane: int
    wait: float
    type: str
    entity: str
    rule: str
    twice: bool
    priority: int = 0

    @property
    def id(self) -> str:
        """Its message id."""
        return f"m{self.n}"

    @property
    def group(self) -> str | None:
        """Its group key."""
        if not self.entity:
            return None
        return f"{self.entity}:7"

    @property
    def body(self) -> dict[str, Any]:
        """Its body."""
        app = f"sim-{self.rule}" if self.rule else "sim"
        entity = {"entity": self.entity} if self.entity else {}
        return {"app_name": app if self.entity else "plain", "tenant_id": 7, "n": self.n, **entity}


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

    PARTS: ClassVar[tuple[str, ...]] = ("faults", "jobs")
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
    jobs = tuple(_jobs(chance, tasks, seconds))
    kinds, weights = list(_FAULTS), list(_FAULTS.values())
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
    return Plan(
        seed=seed,
        daemons=number,
        jobs=jobs,
        faults=tuple(sorted(drawn, key=lambda fault: fault.at)),
        order=chance.choice(_ORDERS),
        partitions=chance.choice((1, 1, 1, 2, 3)),
        replicas=chance.choice((0, 1)),
        plain=chance.randint(1, 3),
        grouped=chance.randint(2, 5),
    )


def _jobs(chance: Random, tasks: int, seconds: float) -> list[Job]:
    lanes = 5
    rules = [chance.choice(_RULES) for _ in range(lanes)]
    jobs: list[Job] = []
    longest = 1.2 * seconds * lanes / tasks / (1 - BURST)
    for n in range(tasks):
        lane = chance.randrange(lanes)
        rule = rules[lane]
        is_plain = lane == 0 and chance.random() < 0.8
        prefix = f"{rule}-" if rule else "g"
        entity = "" if is_plain else f"{prefix}{lane}-{chance.randrange(2)}"
        types, weights = _TYPES, _WEIGHTS
        type_ = chance.choices(types, weights)[0]
        if rule == "batches" and entity:
            type_ = "batch"
        jobs.append(
            Job(
                n=n,
                lane=lane,
                # In bursts: what comes one by one is done before the next one comes.
                wait=0.0 if chance.random() < BURST else chance.uniform(0.0, longest),
                type=type_,
                entity=entity,
                rule=rule if entity else "",
                twice=chance.random() < 0.08,
            )
        )
    return jobs
