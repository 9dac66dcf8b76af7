"""What acts on a fleet beside daemons, as a seed decides it.

Operators, workers that pull, schedules, and rows of a table that a scan works through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, TypeAlias

from tests.simulation.jobs import TYPES_BY_HAND, Job

ActKind: TypeAlias = Literal[
    "pause", "pause_for", "pause_all", "resume", "limit_group", "limit_tenant", "end_limit",
    "drop", "cancel", "cancel_all", "run_now", "redrive", "redrive_all", "drop_letter",
    "limit_type", "end_type",
]  # fmt: skip
PullKind: TypeAlias = Literal[
    "claim", "settle", "renew", "late", "silent", "leave", "die", "look"
]  # fmt: skip
Said: TypeAlias = Literal["done", "retry", "advance", "dead"]

_ACTS: dict[ActKind, int] = {
    "pause": 4, "pause_for": 2, "pause_all": 1, "resume": 3, "limit_group": 2, "limit_tenant": 2,
    "end_limit": 2, "drop": 4, "cancel": 5, "cancel_all": 2, "run_now": 3, "redrive": 3,
    "redrive_all": 1, "drop_letter": 1,
}  # fmt: skip
"""What people do, and how often beside the rest; `Operators` has a method for each."""
_PULLS: dict[PullKind, int] = {
    "claim": 10, "settle": 12, "renew": 2, "late": 2, "silent": 1, "leave": 1, "die": 1, "look": 1,
}  # fmt: skip
_SAID: dict[Said, int] = {"done": 14, "retry": 3, "advance": 2, "dead": 1}
Overlap: TypeAlias = Literal["queue", "skip"]
Missed: TypeAlias = Literal["once", "skip", "all"]
ROWS = 40  # of a run, at most
ACTS = 12  # of a run
PULLS = 30  # of a worker that pulls
PULLERS = 3


@dataclass(frozen=True, slots=True)
class Act:
    """Something that an operator does.

    Attributes:
        at: virtual seconds after the beginning.
        kind: what.
        group: to which group, where it is done to one; or to which types.
        tenant: to which tenant.
        seconds: for how long.
        most: a limit.
        pick: from 0 to 1, which of those that there are by then.
        steps: after so many callbacks the operator's process dies, and another does it again; 0:
            it lives.
    """

    at: float
    kind: ActKind
    group: str
    tenant: int
    seconds: float
    most: int
    pick: float
    steps: int = 0

    def __str__(self) -> str:
        return f"{self.kind} ({self.group}, tenant {self.tenant}) for {self.seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class Pull:
    """Something that a worker which pulls does, behind what it did before.

    Attributes:
        kind: what.
        worker: which one.
        wait: seconds before.
        limit: how many tasks it wants to hold; how many it settles.
        wait_for: seconds for which it waits for something to claim.
        said: what became of tasks.
        after: seconds, of what it said.
        page: from 0 to 1, which process answers it.
        is_lost: whether the answer gets lost.
        is_again: whether it says it twice.
        pick: from 0 to 1, which of those it holds or has held.
    """

    kind: PullKind
    worker: int = 0
    wait: float = 0.0
    limit: int = 3
    wait_for: float = 0.0
    said: Said = "done"
    after: float | None = None
    page: float = 0.0
    is_lost: bool = False
    is_again: bool = False
    pick: float = 0.0


@dataclass(frozen=True, slots=True)
class Timer:
    """A schedule of the configuration.

    Attributes:
        name: its name.
        every: seconds.
        type: of its ticks' handler.
        is_grouped: whether its ticks run one after another.
    """

    name: str
    every: float
    type: str
    is_grouped: bool
    overlap: Overlap
    missed: Missed


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table.

    Attributes:
        at: virtual seconds after which it wants work.
        id: its key.
        fails: how many attempts at it fail.
    """

    at: float
    id: int
    fails: int


@dataclass(frozen=True, slots=True)
class Scanning:
    """How a scan works through the table.

    Attributes:
        shards: how many.
        page: rows of a page.
        keeps_place: whether it keeps a place, since no row is ever marked.
        finds: whether it finds rows by their keys.
        holds: whether a shard waits behind a row that failed.
    """

    shards: int = 2
    page: int = 4
    keeps_place: bool = False
    finds: bool = True
    holds: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """A namespace's move to another number of partitions.

    Attributes:
        wait: virtual seconds before.
        partitions: how many it then has.
        kills: after how many callbacks each process that moves it dies, one behind the other.
        rest: seconds between its end and the next fleet's beginning.
    """

    wait: float
    partitions: int
    kills: tuple[int, ...]
    rest: float


def draw_acts(seed: int, jobs: Sequence[Job], seconds: float) -> tuple[Act, ...]:
    """What operators do in a run of that seed."""
    chance = Random(f"operators {seed}")
    groups = sorted({job.group for job in jobs if job.group}) or ["g0-0:7"]
    kinds, weights = list(_ACTS), list(_ACTS.values())
    acts = [
        Act(
            at=chance.uniform(0.2, seconds),
            kind=chance.choices(kinds, weights)[0],
            group=chance.choice(groups),
            tenant=chance.choice(jobs).tenant,
            seconds=chance.uniform(0.3, 3.0),
            most=chance.randint(1, 4),
            pick=chance.random(),
            steps=chance.randint(1, 80) if chance.random() < 0.15 else 0,
        )
        for _ in range(chance.randint(3, ACTS))
    ]
    return tuple(sorted(acts, key=lambda act: act.at))


def draw_acts_on_types(seed: int, seconds: float) -> tuple[Act, ...]:
    """How operators limit types in a run of that seed, beside all else that they do."""
    chance = Random(f"operators of types {seed}")
    return tuple(
        Act(
            at=chance.uniform(0.2, seconds),
            kind=chance.choice(("limit_type", "limit_type", "end_type")),
            group=chance.choice(TYPES_BY_HAND),
            tenant=0,
            seconds=0.0,
            most=chance.randint(0, 3),
            pick=0.0,
            steps=chance.randint(1, 80) if chance.random() < 0.15 else 0,
        )
        for _ in range(chance.randint(1, 5))
    )


def draw_pulls(seed: int, seconds: float) -> tuple[Pull, ...]:
    """What workers that pull do in a run of that seed."""
    chance = Random(f"pullers {seed}")
    kinds, weights = list(_PULLS), list(_PULLS.values())
    return tuple(
        Pull(
            worker=worker,
            wait=chance.expovariate(2 * PULLS / seconds),  # what it does takes as long again
            kind=chance.choices(kinds, weights)[0],
            limit=chance.randint(1, 4),
            wait_for=chance.choice((0.0, 0.0, 0.3, 2.0)),
            said=chance.choices(list(_SAID), list(_SAID.values()))[0],
            after=chance.choice((None, 0.0, 0.2)),
            page=chance.random(),
            is_lost=chance.random() < 0.08,
            is_again=chance.random() < 0.1,
            pick=chance.random(),
        )
        for worker in range(chance.randint(1, PULLERS))
        for _ in range(PULLS)
    )


LAYOUTS = (1, 2, 3, 4)
"""How many partitions a namespace may come to have."""


def draw_moves(seed: int, seconds: float, partitions: int) -> tuple[Move, ...]:
    """How the namespace is moved in a run of that seed."""
    chance = Random(f"moves {seed}")
    return (
        Move(
            wait=chance.uniform(0.15, 0.7) * seconds,
            partitions=chance.choice([n for n in LAYOUTS if n != partitions]),
            kills=tuple(chance.randint(5, 400) for _ in range(chance.choice((0, 0, 1, 2, 3)))),
            rest=chance.choice((0.0, 0.5)),
        ),
    )


def draw_timers(seed: int) -> tuple[Timer, ...]:
    """The schedules of a run of that seed."""
    chance = Random(f"timers {seed}")
    drawn = [
        Timer(
            name=f"tick{number}",
            every=chance.choice((0.5, 1.0, 1.0, 2.0)),
            type=chance.choice(("work", "work", "flaky", "slow")),
            is_grouped=chance.random() < 0.6,
            overlap=chance.choice(("queue", "skip")),
            missed=chance.choice(("once", "skip", "all")),
        )
        for number in range(chance.randint(1, 3))
    ]
    # Slow ones in a queue would come faster than they end.
    return tuple(
        replace(timer, overlap="skip") if timer.type == "slow" else timer for timer in drawn
    )


def draw_rows(seed: int, seconds: float) -> tuple[tuple[Row, ...], Scanning]:
    """The table of a run of that seed, and how it is worked through."""
    chance = Random(f"rows {seed}")
    times = sorted(chance.uniform(0.0, seconds) for _ in range(chance.randint(10, ROWS)))
    rows = tuple(
        Row(at if chance.random() < 0.6 else 0.0, number, chance.choice((0,) * 12 + (1, 2, 9)))
        for number, at in enumerate(times)
    )
    keeps_place = chance.random() < 0.3
    if keeps_place:  # none comes in front of one that was there before
        rows = tuple(Row(at, row.id, row.fails) for row, at in zip(rows, times, strict=True))
    return rows, Scanning(
        shards=chance.randint(1, 3),
        page=chance.randint(1, 6),
        keeps_place=keeps_place,
        finds=keeps_place or chance.random() < 0.5,
        holds=chance.random() < 0.25,
    )
