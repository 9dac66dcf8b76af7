"""What every rule drives: the store, the promise, and the daemons as they see themselves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar

import orjson
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from groupflow.core import events
from groupflow.core.limits import Limit, Limits, Rate, TenantLimit, TypeLimit
from groupflow.operate.dead import DeadLetters
from groupflow.operate.groups import Groups
from groupflow.operate.tasks import Tasks
from groupflow.store import given
from groupflow.store.client import StoreClient
from groupflow.store.envelope import Pool
from groupflow.store.keys import Keys
from groupflow.store.pulling import Puller, Pulling
from groupflow.store.scripts import Telling
from groupflow.store.settlements import Complete
from tests.history.drains import ENDS
from tests.model.promise import (
    BURST,
    CARRIED,
    CARRIED_BY_ONE,
    MOST_OF_FEW,
    MOST_OF_TYPE,
    TOLD,
    Promise,
)
from tests.store.bench import Bench
from tests.store.bench import Daemon as StoreDaemon
from tests.store.task_state import Bounded

_Answer = TypeVar("_Answer")

GROUPS = ("", "", "a", "b", "c|||d", "two", "two", "paced")
NAMED = tuple(dict.fromkeys(group for group in GROUPS if group))
LIMITS = Limits(
    {"two": Limit(concurrency=2), "paced": Limit(2, Rate.parse(f"1/h burst {BURST}"))},
    tenants={
        "few": TenantLimit(concurrency=MOST_OF_FEW, weight=3),
        "slow": TenantLimit(rate=Rate.parse(f"1/h burst {BURST}")),
    },
    types={"v": TypeLimit(MOST_OF_TYPE), "w*": TypeLimit(0, Rate.parse(f"1/h burst {BURST}"))},
    on_drained={group: (pool, "drained") for group, pool in TOLD.items()},
)
TELLING = Telling(frozenset(events.ENDS))
CARRYING = Bounded(CARRIED, CARRIED_BY_ONE)
TENANTS = {"0a0a0a0a": None, "1b1b1b1b": "few", "2c2c2c2c": "slow", "": None}  # by scope
SCOPES = ("0a0a0a0a", "1b1b1b1b", "2c2c2c2c", "")
DAEMONS = ("d0", "d1", "d2")
WORKERS = 4
LEASE = 1e6  # seconds; no server of a test has run for so long, nor has a daemon slept


def complete(claim: given.Claim) -> Complete:
    """A task is done, and that is told."""
    known = (claim.task, claim.origin, claim.redriven)
    return Complete(claim, told=events.entry_of_done(*known, 0.0, "d", b"", "", (), {}))


groups = st.sampled_from(GROUPS)
named_groups = st.sampled_from(NAMED)
scopes = st.sampled_from(SCOPES)
daemons = st.sampled_from(DAEMONS)
POOLS: tuple[Pool, Pool] = ("plain", "grouped")
pools = st.sampled_from(POOLS)
numbers = st.integers(0, 50)
flags = st.booleans()

POOL = "couriers"
PULLERS = ("anna", "carl")


class Holder:
    """What a daemon or worker believes to hold.

    Attributes:
        held: its claims: by slot those of a daemon, by fence those of a worker that pulls.
        stale: those that are gone.
        quarantined: a claim beside which it may have no other that is in quarantine.
    """

    def __init__(self) -> None:
        self.held: dict[Any, given.Claim] = {}
        self.stale: list[given.Claim] = []
        self.quarantined: given.Claim | None = None

    def let_go(self, of: Any) -> given.Claim:
        """One of its claims is gone."""
        claim = self.held.pop(of)
        self.stale.append(claim)
        if claim is self.quarantined:
            self.quarantined = None
        return claim

    def forget(self) -> list[given.Claim]:
        """Its claims are gone."""
        gone = list(self.held.values())
        self.stale += gone
        self.held.clear()
        self.quarantined = None
        return gone


class PullingWorker(Holder):
    """A worker that pulls."""

    def __init__(self, client: StoreClient, name: str) -> None:
        super().__init__()
        self.puller = Puller(POOL, name, LEASE)
        self.store = Pulling(client, LEASE, CARRYING)


class Daemon(Holder, StoreDaemon):
    """A daemon's side."""

    def __init__(self, bench: Bench, name: str) -> None:
        Holder.__init__(self)
        StoreDaemon.__init__(self, bench, name)
        for pool in POOLS:
            self.claims(pool)._carrying = CARRYING
        self.runs: dict[str, list[given.Claim]] = {}  # what is left of them, by slot
        self.is_up = False

    def idle(self, pool: Pool) -> list[str]:
        """Its workers of a pool that hold nothing."""
        names = [f"{pool}-{n}" for n in range(WORKERS)]
        return [name for name in names if name not in self.held]

    def forget(self) -> list[given.Claim]:
        self.runs.clear()
        self.types = []
        return super().forget()


class Machine(RuleBasedStateMachine):
    """Drives the store and the promise side by side.

    Attributes:
        url: of a database that is emptied for each history.
        order: which group goes first.
        limited: whether some groups and tenants have limits.
    """

    url: ClassVar[str]
    order: ClassVar[Any] = "oldest"
    limited: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        # Always this namespace: Redis has its scripts then.
        self.bench = Bench(self.url, order=self.order, keys=Keys("model"), telling=TELLING)
        self.bench.limits, self.bench.lease = LIMITS if self.limited else Limits(), LEASE
        self.keys, self.client, self.enqueuer = (
            self.bench.keys,
            self.bench.client,
            self.bench.enqueuer,
        )
        self.raw: Any = self.bench.raw
        self.raw.flushdb()
        self.promise = Promise(is_limited=self.limited)
        self.letters = DeadLetters(self.bench.namespace)
        self.group_verbs, self.waiting = Groups(self.bench.namespace), Tasks(self.bench.namespace)
        self.daemons = {name: Daemon(self.bench, name) for name in DAEMONS}
        self.pullers = {name: PullingWorker(self.client, name) for name in PULLERS}
        self.ids = itertools.count()
        self.expiring = ""  # a group in which some are over for the promise, and may still wait

    def new(self, number: int) -> list[str]:
        """Ids that no task has had."""
        return [f"t{next(self.ids)}" for _ in range(number)]

    def run(self, call: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Await from a synchronous rule."""
        return self.runner.run(call)

    def twice(self, make: Any, *, again: bool) -> Any:
        """Make a call, and once more where its reply is meant to have been lost."""
        answer = self.run(make())
        return self.run(make()) if again else answer

    def hear_of_drains(self) -> None:
        """Each group that is drained by now has exactly one task that tells so, with all ends."""
        for group, ends in self.promise.drains().items():
            ids = self._unknown(f"drained:{group}:")
            if group == self.expiring and not ids:
                self.promise.ends_of[group] = ends
                continue
            (id_,) = ids
            facts, _, body = self.raw.hget(self.keys("tasks"), id_).partition(b"\n")
            type_, of, _, rule, _, scope = orjson.loads(facts)
            assert (type_, of, rule) == ("drained", group, group)
            told = {how: n for how, n in orjson.loads(body).items() if how in ENDS and n}
            assert told == ends
            task = self.promise.enqueue(id_, id_, scope, group, due=True, aside=False)
            task.type, task.pool, task.tells = type_, TOLD[group], True
        assert self._unknown("drained:") == []

    def _unknown(self, front: str) -> list[str]:
        ids = [id_.decode() for id_ in self.raw.hkeys(self.keys("tasks"))]
        return [id_ for id_ in ids if id_.startswith(front) and id_ not in self.promise.tasks]

    def working(self, daemon: str) -> Daemon:
        """That daemon, or another one where it is down."""
        up = [one for one in self.daemons.values() if one.is_up]
        return self.daemons[daemon] if self.daemons[daemon].is_up or not up else up[0]

    def claimable(self, one: Daemon, pool: Pool) -> set[str]:
        """The ids of the tasks that a daemon may claim now: one quarantined task at a time."""
        if pool == "grouped":
            heads = self.promise.claimable_heads()
        else:
            heads = [each for each in self.promise.lane("") if self.promise.may_start(each)]
        if self.promise.all_paused:
            return set()
        return {task.id for task in heads if not (task.pool or (task.crashes and one.quarantined))}

    def claimable_in_pool(self, one: PullingWorker) -> set[str]:
        """The same for a worker that pulls; one quarantined task of each kind at a time."""
        if self.promise.all_paused:
            return set()
        plain = filter(self.promise.may_start, self.promise.lane(""))
        heads = [*self.promise.claimable_heads(), *plain]
        ids = {task.id for task in heads if task.pool and not task.crashes}
        quarantined_tasks = [task for task in heads if task.pool and task.crashes]
        if one.quarantined is None:
            kinds = {bool(task.group): task.id for task in quarantined_tasks}
            ids |= set(kinds.values())
        return ids

    def without_due(self, ids: set[str]) -> set[str]:
        """The same without tasks that a script has to look at first: `promote`, or `expire`."""
        due = self.raw.zrangebyscore(self.keys("cap_standing"), 0, self.bench.server_time())
        types = {cap.decode().replace("*", "1") for cap in due}
        tasks = [self.promise.tasks[id_] for id_ in ids]
        late = self.expiring or None  # a group that may be held for one that is over
        return {each.id for each in tasks if each.type not in types and each.group != late}

    def begin(self, one: Daemon, claim: given.Claim) -> None:
        """A slot holds a claim, and maybe the run behind it."""
        one.held[claim.slot] = claim
        if claim.run:
            one.runs[claim.slot] = list(claim.run)
            self.promise.begin_run(
                claim.task.group or "", [(each.task.id, each.fence) for each in claim.run]
            )

    def crash_of(self, one: Daemon, *, left: bool = False) -> set[str]:
        """The promise's view of a daemon that dies, or has left: its tasks are back, and say so."""
        gone = one.forget()
        for claim in gone:
            task = self.promise.tasks[claim.task.id]
            task.crashes, task.is_due = task.crashes + 1, True
            task.lost_leases += left
            task.wait()
            self.promise.runs_of.pop(task.group, None)
        return {claim.task.id for claim in gone}
