"""What one trial does: what is published, and which daemon dies where. Drawn from a seed alone."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal, TypeAlias

from groupflow import crashpoints

What: TypeAlias = Literal["ok", "fail", "stage", "delayed", "poison", "slow"]

TICKS = frozenset({"before_tick", "after_tick"})
"""Points of schedules, which trials have none of; endtoend/test_schedules.py dies there."""
POINTS = tuple(point for point in crashpoints.POINTS if point not in TICKS)

REAPS = frozenset({"before_reap", "after_reap"})
DRAINS = frozenset({"during_drain", "hand_back", "before_leave"})
_RENEWS = frozenset({"before_renew", "after_renew"})
ARCHIVES = frozenset({"before_archive", "after_archive"})
CLOCKED = REAPS | _RENEWS | ARCHIVES
"""Points that come with time, whether or not there is anything left to do."""
_INTAKES = frozenset({"before_enqueue", "before_ack", "after_ack"})

# From which passes one is drawn: about as many as one life of a daemon has here.
_MOST: dict[str, int] = {
    **dict.fromkeys(("before_enqueue", "before_ack", "after_ack", "before_promote"), 3),
    **dict.fromkeys(("before_claim", "after_claim", "before_settle", "after_settle"), 4),
    **dict.fromkeys(("before_handler", "after_handler"), 14),
    **dict.fromkeys(("after_promote", "before_renew", "after_renew", "before_leave"), 2),
}
RULES = os.environ.get("RULES", "")
"""``run``, ``batches``, ``limits`` or ``debounce`` where all trials are to have that."""

ONE, MANY = "one", "many"  # types of tasks: alone, or in batches
STOP_AT = "CRASH_STOP_AT"  # a variable that tells a daemon

_BY_TENANTS = 0.3  # of all trials
_MOST_OF_A_PAIR = 4  # so that enough is left for the second
PAIRS = list(itertools.product(POINTS, POINTS))


@dataclass(frozen=True, slots=True)
class Crash:
    """Where a daemon is to die."""

    point: str
    nth: int

    def __str__(self) -> str:
        return f"{self.point}:{self.nth}"


@dataclass(frozen=True, slots=True)
class Life:
    """One process of a daemon.

    Attributes:
        name: the daemon's. The one after a crash takes up its own, or waits for the other's lease.
        crash: where it is to die; ``None`` for nowhere.
        stop_at: it is told to stop at the start of so many attempts; 0 for when all is done.
    """

    name: str
    crash: Crash | None = None
    stop_at: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """What is published. `group` is ``None`` for a plain task; `id` may come twice."""

    id: str
    n: int
    group: str | None
    what: What
    seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """One trial."""

    label: str
    lives: list[Life]
    messages: list[Message]
    prefetch: int
    order: Literal["oldest", "fair", "tenants"]
    run: int = 1  # of the groups' rule, as are these
    concurrency: int = 1
    rate: str = ""
    debounce: float = 0.0
    batch: int = 1
    batch_wait: float = 0.0

    @property
    def together(self) -> int:
        """How many tasks of a group one claim may give, which a crash repeats."""
        return max(self.run, self.batch)

    @property
    def archives(self) -> bool:
        """Whether bodies of dead letters leave Redis at once, and are worth it."""
        return any(life.crash and life.crash.point in ARCHIVES for life in self.lives)


def plan_of(seed: str, *points: str) -> Plan:
    """A plan in which a daemon dies at a pass of a point, and the one after it at the next."""
    random = Random(seed)
    most = _MOST_OF_A_PAIR if len(points) > 1 else max(_MOST.values())

    def pass_of(point: str) -> int:
        if point == "before_reap":
            return 2  # the first pass is before anything can have expired
        return random.randint(1, min(_MOST.get(point, 1), most))

    return _under_some_rule(seed, _plan(random, [Crash(each, pass_of(each)) for each in points]))


def _under_some_rule(seed: str, plan: Plan) -> Plan:
    """Groups as they are by default, in runs, or limited.

    By draws of their own: what else a seed stands for is as it was.
    """
    options: dict[str, dict[str, Any]] = {
        "": {},
        "run": {"run": 8},
        "limits": {"concurrency": 3, "rate": "200/s burst 5"},  # at once: as many as workers
        "batches": {"batch": 5, "batch_wait": 0.02},
        "debounce": {"debounce": 0.05},
    }
    if Random(f"{seed}:order").random() < _BY_TENANTS:
        plan = replace(plan, order="tenants")
    kind = RULES or Random(f"{seed}:run").choice(["", "run", "limits", "batches"])
    return replace(plan, **options[kind])


def numbered(seed: str, trial: int) -> Plan:
    """The plan of a long run's trial: each point by itself, then drawn pairs; then all again."""
    place = trial % (len(POINTS) + len(PAIRS))
    order = [*((point,) for point in POINTS), *Random(seed).sample(PAIRS, len(PAIRS))]
    return plan_of(f"{seed}:{trial}", *order[place])


def _plan(random: Random, crashes: list[Crash]) -> Plan:
    label = "+".join(map(str, crashes))
    if crashes[0].point in REAPS:
        # There is nothing to reap unless a daemon has died before with claims in hand.
        crashes = [Crash("before_handler", random.randint(2, 5)), *crashes]
    lives: list[Life] = []
    name = "a"
    for number, crash in enumerate([*crashes, None]):
        must_differ = crash is not None and crash.point in REAPS
        if number and (must_differ or random.random() < 0.5):
            name = chr(ord(name) + 1)
        drains = crash is not None and crash.point in DRAINS
        lives.append(Life(name, crash, random.randint(1, 8) if drains else 0))
    points = {crash.point for crash in crashes}
    # Small batches where a later one is meant.
    prefetches = [3, 6] if points & _INTAKES else [3, 6, 12, 100]
    messages = _messages(random, renews=bool(points & _RENEWS))
    prefetch = random.choice(prefetches)
    return Plan(label, lives, messages, prefetch, random.choice(["oldest", "fair"]))


def _messages(random: Random, *, renews: bool) -> list[Message]:
    often: dict[What, int] = {"fail": 4, "stage": 3, "delayed": 2, "poison": 1}
    often["ok"] = random.randint(10, 26)
    whats = [what for what, times in often.items() for _ in range(times)]
    random.shuffle(whats)
    groups = [None, None, *(f"g{number}" for number in range(random.randint(2, 5)))]
    messages = [
        Message(f"m{n}", n, random.choice(groups), what, _seconds(random, what))
        for n, what in enumerate(whats)
    ]
    if renews:
        # A daemon has to live long enough to renew.
        slow = [Message(f"slow{n}", n, "slow", "slow", 0.3) for n in range(3)]
        messages = [*slow, *messages]
    # Two come twice, as from a publisher who never saw its confirm.
    return [*messages, *random.sample(messages, 2)]


def _seconds(random: Random, what: What) -> float:
    if what == "delayed":
        return random.choice([0.05, 0.1, 0.2])
    return random.choice([0.0, 0.001, 0.004, 0.01])
