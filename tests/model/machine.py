"""What every rule drives: the store, the promise, and the daemons as they see themselves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from redis import Redis

from groupflow.core.limits import Limit, Limits, Rate
from groupflow.operate.dead import DeadLetters
from groupflow.operate.groups import Groups
from groupflow.operate.tasks import WaitingTasks
from groupflow.store import settlements
from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Enqueuer
from groupflow.store.envelope import Pool
from groupflow.store.epochs import NEVER, Epoch, Seen
from groupflow.store.keys import Keys
from groupflow.store.limits import pack
from groupflow.store.pulling import Puller, Pulling
from groupflow.store.sessions import Session, Sessions
from tests.model.promise import BURST, Promise

_Answer = TypeVar("_Answer")

GROUPS = ("", "", "a", "b", "c|||d", "two", "two", "paced")
NAMED = tuple(dict.fromkeys(group for group in GROUPS if group))
LIMITS = Limits({"two": Limit(concurrency=2), "paced": Limit(2, Rate.parse(f"1/h burst {BURST}"))})
SCOPES = ("0a0a0a0a", "1b1b1b1b", "")
DAEMONS = ("d0", "d1", "d2")
WORKERS = 4
LEASE = 1e6  # seconds; no server of a test has run for so long, nor has a daemon slept

groups = st.sampled_from(GROUPS)
named_groups = st.sampled_from(NAMED)
scopes = st.sampled_from(SCOPES)
daemons = st.sampled_from(DAEMONS)
pools = st.sampled_from(("plain", "grouped"))
numbers = st.integers(0, 50)

_births = itertools.count(1)
POOL = "couriers"
PULLERS = ("anna", "carl")


class PullingWorker:
    """A worker that pulls: what it believes to hold."""

    def __init__(self, client: StoreClient, name: str) -> None:
        self.puller = Puller(POOL, name, LEASE)
        self.store = Pulling(client, LEASE)
        self.held: dict[int, settlements.Claim] = {}  # by fence
        self.stale: list[settlements.Claim] = []
        self.suspect: int | None = None  # the fence of its claim

    def forget(self) -> list[settlements.Claim]:
        """Its claims are gone."""
        gone = list(self.held.values())
        self.stale += gone
        self.held.clear()
        self.suspect = None
        return gone


class Daemon:
    """A daemon's side: what it believes to hold."""

    def __init__(self, client: StoreClient, name: str) -> None:
        self.session = Session(name)
        self.sessions = Sessions(client, self.session, LEASE, limits=lambda: pack(LIMITS))
        self.claims: dict[Pool, Claims] = {
            "plain": Claims(client, self.session, "plain"),
            "grouped": Claims(client, self.session, "grouped"),
        }
        self.held: dict[str, settlements.Claim] = {}
        self.stale: list[settlements.Claim] = []
        self.suspect: settlements.Claim | None = None  # beside which it may run no other
        self.is_up = False

    def begin(self) -> None:
        """Another process has its name from here on."""
        self.session.process, self.session.number = f"{next(_births):016d}{uuid4().hex}", NEVER
        self.session.seen, self.session.epoch = Seen(), Epoch()

    def idle(self, pool: Pool) -> list[str]:
        """Its workers of a pool that hold nothing."""
        names = [f"{pool}-{n}" for n in range(WORKERS)]
        return [name for name in names if name not in self.held]

    def forget(self) -> list[settlements.Claim]:
        """Its claims are gone."""
        gone = list(self.held.values())
        self.stale += gone
        self.held.clear()
        self.suspect = None
        return gone


class Machine(RuleBasedStateMachine):
    """Drives the store and the promise side by side.

    Attributes:
        url: of a database that is emptied for each history.
        order: which group goes first.
    """

    url: ClassVar[str]
    order: ClassVar[Any] = "oldest"

    def __init__(self) -> None:
        super().__init__()
        self.keys = Keys("model")  # always: Redis has its scripts then
        self.runner = asyncio.Runner()
        self.client = StoreClient(self.url, self.keys, self.order)
        self.raw: Any = Redis.from_url(self.url)
        self.raw.flushdb()
        self.promise = Promise()
        self.enqueuer = Enqueuer(self.client)
        self.letters = DeadLetters(self.client)
        self.group_verbs = Groups(self.client)
        self.waiting = WaitingTasks(self.client)
        self.daemons = {name: Daemon(self.client, name) for name in DAEMONS}
        self.pullers = {name: PullingWorker(self.client, name) for name in PULLERS}
        self.ids = itertools.count()

    def run(self, call: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Await from a synchronous rule."""
        return self.runner.run(call)

    def witness(self) -> None:
        """Every daemon has shown often enough of whom it was told: each would be missed."""
        up = [one for one in self.daemons.values() if one.is_up]
        for one in up * 3:
            self.run(one.sessions.renew())
        assert all(one.session.is_witnessed for one in up)

    def twice(self, make: Any, *, again: bool) -> Any:
        """Make a call, and once more where its reply is meant to have been lost."""
        answer = self.run(make())
        return self.run(make()) if again else answer

    def claimable(self, one: Daemon, pool: Pool) -> set[str]:
        """The ids of the tasks that a daemon may claim now: no suspect beside another one."""
        heads = self.promise.claimable_heads() if pool == "grouped" else self.promise.lane("")
        if self.promise.all_paused:
            return set()
        return {task.id for task in heads if not (task.pool or (task.crashes and one.suspect))}

    def claimable_in_pool(self, one: PullingWorker) -> set[str]:
        """The same for a worker that pulls; of suspects one of each kind is told at a time."""
        if self.promise.all_paused:
            return set()
        heads = [*self.promise.claimable_heads(), *self.promise.lane("")]
        ids = {task.id for task in heads if task.pool and not task.crashes}
        suspects = [task for task in heads if task.pool and task.crashes]
        if one.suspect is None:
            kinds = {bool(task.group): task.id for task in suspects}
            ids |= set(kinds.values())
        return ids

    def startable(self, one: Daemon, pool: Pool) -> set[str]:
        """The same for a claim of more than one: of some groups, what is behind the head too."""
        ids = self.claimable(one, pool)
        if pool == "grouped":
            for group in {self.promise.tasks[id_].group for id_ in ids}:
                room, lane = self.promise.room_in(group), self.promise.lane(group)
                for task in lane[1:room]:
                    if task.crashes or task.pool or not task.is_due:
                        break
                    ids.add(task.id)
        return ids

    def crash_of(self, one: Daemon) -> set[str]:
        """The promise's view of a daemon that dies: its tasks are back, one crash richer."""
        gone = one.forget()
        for claim in gone:
            task = self.promise.tasks[claim.task.id]
            task.state, task.crashes, task.is_due = "waiting", task.crashes + 1, True
        return {claim.task.id for claim in gone}
