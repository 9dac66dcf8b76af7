"""A store to test on: its own namespace on a real server, its verbs, and what they did.

All claims and settlements of a `Bench` are kept as a history, so that each test can end
with the auditor's word on the structure and the checker's on the history.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any
from uuid import uuid4

import orjson
from redis import Redis

from groupflow.core.limits import Limits
from groupflow.core.task import Task
from groupflow.operate.namespace import Namespace
from groupflow.operate.totals import Totals, read_totals
from groupflow.store import settlements
from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Arrival, Enqueued, Enqueuer
from groupflow.store.envelope import Envelope, Pool
from groupflow.store.epochs import NEVER, Epoch, Seen
from groupflow.store.given import Claim
from groupflow.store.keys import Keys
from groupflow.store.limits import pack
from groupflow.store.scripts import UNTOLD, Order, Telling
from groupflow.store.sessions import HandedOver, Session, Sessions
from groupflow.store.settlements import Settlement
from tests.history.auditor import audit
from tests.history.events import Event, History, event_of, published
from tests.history.invariants import Violation, check
from tests.history.stored import Stored

LEASE = 600.0  # never runs out within a test: `expire` says when it has

# Works in full memory too, where a plain ZADD would be refused.
_SET_LEASE = "#!lua flags=allow-oom\nreturn redis.call('ZADD', KEYS[1], 'XX', 1, ARGV[1])"

_POOLS: tuple[Pool, Pool] = ("plain", "grouped")
_numbers = itertools.count(1)
_births = itertools.count(1)  # of processes


def arrival(id_: str, group: str | None = None, **facts: Any) -> Arrival:
    """A message of some type with its id in its body."""
    envelope = Envelope("t", group, "42", "rule" if group else None, {}, orjson.dumps({"id": id_}))
    return Arrival(id_, envelope, **facts)


def totals(**facts: Any) -> Totals:
    """Totals made by hand: zeros, apart from these facts."""
    numbers = {each.name: 0 for each in fields(Totals)}
    empty = ("daemons", "intake", "held_back", "by_hand", "pools", "away", "standing_names")
    lists: dict[str, Any] = {name: [] for name in empty}
    return Totals(**{**numbers, "everything_paused": None, **lists, **facts})


class Bench:
    """One namespace of a store.

    Attributes:
        url: of its server.
        keys: its keys.
        client: runs the scripts.
        namespace: the same, as operators ask it.
        enqueuer: takes batches in without a word in the history.
        raw: a plain client, to look behind the scripts.
        events: what happened.
        with_faults: whether the test makes daemons crash.
        limits: of the configuration that daemons bring, from their next session on.
        concurrency: how many tasks of a group may run at once, for the checker of the history.
        lease: of daemons whose first session is still to come, in seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        order: Order = "oldest",
        keys: Keys | None = None,
        telling: Telling = UNTOLD,
    ) -> None:
        self.url = url
        self.keys = keys or Keys(f"bench{next(_numbers)}")
        self.order = order
        self.client = StoreClient(url, self.keys, order, telling=telling)
        self.namespace = Namespace([self.client])
        self.raw: Redis = Redis.from_url(url)
        self.events: list[Event] = []
        self.with_faults = False
        self.limits: Limits | None = None
        self.concurrency: dict[str, int] = {}
        self.lease = LEASE
        self.enqueuer = Enqueuer(self.client)

    async def __aenter__(self) -> Bench:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections and remove the namespace."""
        await self.client.close()
        found = list(self.raw.scan_iter(match=self.keys("*"), count=1000))
        if found:
            self.raw.delete(*found)
        self.raw.close()

    @contextmanager
    def full(self) -> Iterator[None]:
        """Let the server have no memory for more."""
        self.raw.config_set("maxmemory", 1)
        try:
            yield
        finally:
            self.raw.config_set("maxmemory", 0)

    def used_memory(self) -> int:
        """The server's bytes, without what scripts left to Lua's collector (Redis 8 counts it)."""
        self.raw.eval("collectgarbage() return 1", 0)
        self.raw.memory_purge()
        found: Any = self.raw.info("memory")
        return int(found["used_memory"])

    def server_time(self) -> int:
        """The server's clock, in microseconds."""
        now: Any = self.raw.time()
        return int(now[0]) * 1_000_000 + int(now[1])

    async def enqueue(self, *arrivals: Arrival) -> list[bool]:
        """Take a batch in; which of them were new."""
        return (await self.take_in(*arrivals)).taken

    async def take_in(self, *arrivals: Arrival) -> Enqueued:
        """The same; also under which ids they lie."""
        enqueued = await self.enqueuer.enqueue(arrivals)
        for n, each in enumerate(arrivals):
            group, tenant = each.envelope.group, each.envelope.tenant
            self.events.append(published(enqueued.renamed.get(n, each.id), group, tenant))
        return enqueued

    async def daemon(self, name: str = "d1") -> Daemon:
        """A daemon with an open session."""
        daemon = Daemon(self, name)
        await daemon.register()
        return daemon

    def expire(self, *daemons: str) -> None:
        """Let the leases of daemons have run out."""
        for daemon in daemons:
            self.raw.eval(_SET_LEASE, 1, self.keys("daemons"), daemon)

    async def status(self) -> Totals:
        """What `groupflow status` shows."""
        return await read_totals(self.namespace)

    def lane(self, group: str) -> list[str]:
        """The ids in a group's lane, the next one first."""
        found: Any = self.raw.lrange(self.keys("lane", group), 0, -1)
        return [entry[17:].decode() for entry in reversed(found)]

    def dump(self) -> dict[bytes, Any]:
        """Everything in the namespace, as it is, to be compared."""
        return {key: self.raw.dump(key) for key in self.raw.scan_iter(self.keys("*"), 1000)}

    def restore(self, dump: dict[bytes, Any]) -> None:
        """Have it as it was: everything written since is lost."""
        for name in self.dump().keys() - dump.keys():
            self.raw.delete(name)
        for name, value in dump.items():
            self.raw.restore(name, 0, value, replace=True)

    def begin_epoch(self, *daemons: Daemon) -> None:
        """From here on another server leads, or a restarted one; these daemons were of the last.

        Redis names its epochs itself, so it is the last one that gets another name.
        """
        last = f"{next(_numbers):040x}"
        found: Any = self.raw.hget(self.keys("epoch"), "id")
        if found is None:
            return
        self.raw.hset(self.keys("epoch"), "id", last)
        for daemon in daemons:
            if daemon.session.epoch.id == found.decode():
                daemon.session.epoch = Epoch(last)
        names: Any = self.raw.zrange(self.keys("daemons"), 0, -1)
        for name in names:
            key = self.keys("daemon", name.decode())
            if self.raw.hget(key, "epoch") == found:
                self.raw.hset(key, "epoch", last)

    def end_recovery(self) -> None:
        """Let a lease have passed since."""
        self.raw.set(self.keys("recovering"), 1)

    def count(self, name: str) -> int:
        """One of the totals."""
        found: Any = self.raw.hget(self.keys("count"), name)
        return int(found or 0)

    def history(self) -> History:
        """What has happened so far, and where that has left each task."""
        stored = Stored(self.raw, [self.keys])
        return History(
            list(self.events),
            states=stored.states,
            superseded=stored.superseded,
            taken=stored.count("taken") - stored.count("drained"),
            with_faults=self.with_faults,
            concurrency=self.concurrency,
        )

    def audit(self) -> list[Violation]:
        """What is wrong with the structure."""
        return audit(self.raw, self.keys)

    def judge(self) -> list[Violation]:
        """What is wrong with structure and history, while tasks may still wait or run."""
        found = (each for each in check(self.history()) if each.invariant != "S1")
        return [*self.audit(), *found]

    def judge_drained(self) -> list[Violation]:
        """What is wrong at the end, when nothing may be left."""
        left = Stored(self.raw, [self.keys]).leftovers()
        return [*self.audit(), *check(self.history()), *left]


class Daemon:
    """A daemon's side of the store: its session, and the claims that it believes to hold."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench = bench
        self.name = name
        self.types: Sequence[str] = ()  # that it has handlers of, as it tells others
        self.session = Session(name)
        self.sessions = Sessions(
            bench.client,
            self.session,
            bench.lease,
            limits=lambda: b"" if bench.limits is None else pack(bench.limits),
            types=lambda: self.types,
        )
        self._claims = {
            pool: Claims(bench.client, self.session, pool, types={"t"}) for pool in _POOLS
        }

    def claims(self, pool: Pool) -> Claims:
        """Its claims of a pool."""
        return self._claims[pool]

    def begin(self) -> None:
        """Another process has its name from here on."""
        self.session.process, self.session.number = f"{next(_births):016d}{uuid4().hex}", NEVER
        self.session.seen, self.session.epoch = Seen(), Epoch()

    async def register(self) -> list[HandedOver]:
        """Open a session, as a new process."""
        self.begin()
        return await self.sessions.register({"pid": 1, "host": "h", "workers": 2, "lease": LEASE})

    async def claim(self, pool: Pool, *workers: str) -> list[Claim]:
        """Claim for idle workers, and start what they got."""
        claims = (await self._claims[pool].exchange([], workers)).claims
        known = {event.fence for event in self.bench.events if event.kind == "start"}
        for claim in claims:
            if claim.fence not in known:  # else it is the same claim, told again
                self.bench.events.append(event_of("start", claim.task))
        return claims

    async def exchange(
        self, pool: Pool, settlements: Sequence[Settlement], idle: Sequence[str]
    ) -> tuple[list[Settlement], list[Claim]]:
        """Settle and claim in one round trip, without a word in the history."""
        answer = await self._claims[pool].exchange(settlements, idle)
        return answer.refused, answer.claims

    async def claim_one(self, pool: Pool = "grouped", worker: str = "w1") -> Claim:
        """Claim for one worker, which must get something."""
        claims = await self.claim(pool, worker)
        assert len(claims) == 1, f"{worker} of {self.name} got {len(claims)} {pool} tasks"
        return claims[0]

    async def settle(self, *settlements: Settlement, end: bool = True) -> list[Settlement]:
        """End attempts and settle their claims; those that were refused.

        Args:
            settlements: what to settle.
            end: whether the handlers end just now, and not before.
        """
        for each in settlements if end else ():
            self.bench.events.append(event_of("end", each.claim.task, how=_how(each)))
        refused = (await self._claims["plain"].exchange(settlements, [])).refused
        for each in settlements:
            how = "refused" if each in refused else "accepted"
            event = event_of("settle", each.claim.task, how=how)
            self.bench.events.append(replace(event, at=time.monotonic()))
        return refused

    def drop(self, *claims: Claim) -> None:
        """Its handlers are cancelled, since its session or its lease is over."""
        self.bench.with_faults = True
        self.bench.events += [event_of("end", claim.task, how="cut") for claim in claims]

    async def complete(self, *claims: Claim) -> list[Settlement]:
        """Settle claims as done; those that were refused."""
        return await self.settle(*(settlements.Complete(claim) for claim in claims))

    async def work_off(self, workers: Sequence[str] = ("w1", "w2", "w3")) -> list[str]:
        """Claim and complete until nothing more is there; the ids in the order of their claims.

        One by one: what a run is told as is the test's.
        """
        self._claims["grouped"].adopt({})
        ran: list[str] = []
        for _ in range(1000):
            claims = list[Claim]()
            for pool in _POOLS:
                claims += await self.claim(pool, *(f"{pool}-{worker}" for worker in workers))
            if not claims:
                break
            ran += [claim.task.id for claim in claims]
            await self.complete(*claims)
        return ran


def _how(settlement: Settlement) -> str:
    match settlement:
        case settlements.Complete():
            return "done"
        case settlements.Release() | settlements.Defer():
            return "cut"
        case _:
            return "failed"


def bury(claim: Claim, reason: str = "broken", *, park: bool = False) -> settlements.Bury:
    """A burial with one error in its history."""
    error = {"attempt": 1, "error": "ValueError", "message": reason}
    return settlements.Bury(claim, reason, [error], park)


def ids(claims: Sequence[Claim]) -> list[str]:
    """The tasks of some claims."""
    return [claim.task.id for claim in claims]


def with_fence(claim: Claim, fence: int) -> Claim:
    """The same claim under another fence."""
    task: Task = replace(claim.task, fence=fence)
    return Claim(claim.slot, fence, claim.entry, task, claim.rule, claim.errors)
