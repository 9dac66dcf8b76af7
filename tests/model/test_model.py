"""The real scripts against the promise: random histories, on Redis and on Valkey.

Several daemons with several workers enqueue, claim, settle in every way, crash, lose their lease
and come back, while groups are paused and dead letters redriven. Time is moved by hand: a lease is
made to have run out, a delay to be over. Any call may be made a second time, as after a lost reply.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from redis import Redis

from groupflow.core.errors import SessionLost, SessionReplaced
from groupflow.operate.groups import ALL, Groups
from groupflow.operate.totals import read_status
from groupflow.operate.waiting import WaitingTasks
from groupflow.store import settlements
from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.dead import DeadLetters
from groupflow.store.enqueue import Arrival, Enqueuer
from groupflow.store.envelope import Envelope, Pool
from groupflow.store.history import roll_history, sweep_renamed
from groupflow.store.keys import Keys, split_element
from groupflow.store.scripts import Verb
from groupflow.store.sessions import Session, Sessions
from tests.history.auditor import audit, leftovers
from tests.model.promise import ModelTask, Promise

_Answer = TypeVar("_Answer")

GROUPS = ("", "", "a", "b", "c|||d")
SCOPES = ("0a0a0a0a", "1b1b1b1b", "")
DAEMONS = ("d0", "d1", "d2")
WORKERS = 3
LEASE = 600.0  # never runs out by itself within a test

groups = st.sampled_from(GROUPS)
scopes = st.sampled_from(SCOPES)
daemons = st.sampled_from(DAEMONS)
pools = st.sampled_from(("plain", "grouped"))
numbers = st.integers(0, 50)


class _Daemon:
    """A daemon's side: what it believes to hold."""

    def __init__(self, client: StoreClient, name: str) -> None:
        self.session = Session(name)
        self.sessions = Sessions(client, self.session, LEASE)
        self.claims: dict[Pool, Claims] = {
            "plain": Claims(client, self.session, "plain"),
            "grouped": Claims(client, self.session, "grouped"),
        }
        self.held: dict[str, settlements.Claim] = {}
        self.stale: list[settlements.Claim] = []
        self.suspect: settlements.Claim | None = None  # beside which it may run no other
        self.is_up = False

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


class StoreMachine(RuleBasedStateMachine):
    """Drives the store and the promise side by side."""

    url: ClassVar[str]
    order: ClassVar[Any] = "oldest"
    _namespaces: ClassVar[Any] = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.keys = Keys(f"model{next(self._namespaces)}")
        self.runner = asyncio.Runner()
        self.client = StoreClient(self.url, self.keys, self.order)
        self.raw: Any = Redis.from_url(self.url)
        self.raw.flushall()
        self.promise = Promise()
        self.enqueuer = Enqueuer(self.client)
        self.letters = DeadLetters(self.client)
        self.group_verbs = Groups(self.client)
        self.waiting = WaitingTasks(self.client)
        self.daemons = {name: _Daemon(self.client, name) for name in DAEMONS}
        self.ids = itertools.count()

    def teardown(self) -> None:
        """Drain what is left, and see that nothing but totals remains."""
        try:
            self._drain()
        finally:
            self.run(self.client.close())
            self.runner.close()
            self.raw.close()

    def run(self, call: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Await from a synchronous rule."""
        return self.runner.run(call)

    def twice(self, make: Any, *, again: bool) -> Any:
        """Make a call, and once more where its reply is meant to have been lost."""
        answer = self.run(make())
        return self.run(make()) if again else answer

    # What comes in

    @rule(group=groups, priority=st.sampled_from((0.0, 0.0, 30.0, -5.0)), again=st.booleans())
    def enqueue(self, group: str, priority: float, again: bool) -> None:
        """A batch of new tasks."""
        self._enqueue([f"t{next(self.ids)}" for _ in range(2)], group, priority, 0.0, again=again)

    @rule(group=groups, aside=st.booleans())
    def enqueue_delayed(self, group: str, aside: bool) -> None:
        """A task that is not to run before a time."""
        self._enqueue([f"t{next(self.ids)}"], group, 0.0, 3600.0, aside=aside)

    @rule(group=groups, pick=numbers, scope=scopes)
    def enqueue_duplicate(self, group: str, pick: int, scope: str) -> None:
        """An id that has come before, wherever its task is by now, from its sender or another."""
        if self.promise.tasks:
            known = sorted({task.message for task in self.promise.tasks.values()})
            self._enqueue([known[pick % len(known)]], group, 0.0, 0.0, scope=scope, again=True)

    def _enqueue(
        self,
        ids: list[str],
        group: str,
        priority: float,
        delay: float,
        *,
        scope: str = SCOPES[0],
        aside: bool = False,
        again: bool = False,
    ) -> None:
        arrivals = [
            Arrival(
                id_,
                Envelope("t", group or None, None, None, {}, b"{}", scope),
                priority=priority,
                delay=delay,
                steps_aside=aside,
            )
            for id_ in ids
        ]
        expected = [not self.promise.knows(id_, scope) for id_ in ids]
        answer = self.run(self.enqueuer.enqueue(arrivals))
        assert answer.taken == expected
        if again:
            assert not any(self.run(self.enqueuer.enqueue(arrivals)).taken)
        for n, id_ in enumerate(ids):
            if expected[n]:
                name = answer.renamed.get(n, id_)
                task = self.promise.enqueue(name, id_, scope, group, due=delay == 0, aside=aside)
                task.priority = priority

    @rule()
    def deaths_get_old(self) -> None:
        """Every dead letter is older than the window: it keeps no id from anybody."""
        for id_ in self.raw.zrange(self.keys("dead"), 0, -1):
            self.raw.zadd(self.keys("dead"), {id_: 1})
            self.promise.tasks[id_.decode()].died_long_ago = True

    # Daemons come, go and lose their leases

    @rule(daemon=daemons, again=st.booleans())
    def start(self, daemon: str, again: bool) -> None:
        """A daemon starts: for the first time, or again under its name after a crash."""
        one = self.daemons[daemon]
        crashed = self._crash_of(one)
        if again:
            self.run(one.sessions.register({"lease": LEASE}))
            crashed_again = self.run(one.sessions.register({"lease": LEASE}))
            assert crashed_again == []
        else:
            handed = self.run(one.sessions.register({"lease": LEASE}))
            assert {each.id for each in handed} == crashed
        one.is_up = True

    @rule(daemon=daemons)
    def lease_runs_out(self, daemon: str) -> None:
        """Its lease ends without a renewal, and somebody reaps."""
        one = self.daemons[daemon]
        if not one.is_up:
            return
        self.raw.zadd(self.keys("daemons"), {daemon: 1})
        expected = self._crash_of(one)
        _, handed = self.run(one.sessions.reap())
        assert {each.id for each in handed} == expected
        with pytest.raises(SessionLost):
            self.run(one.sessions.renew())
        one.is_up = False

    @rule(daemon=daemons)
    def leave(self, daemon: str) -> None:
        """It ends in order; what it still held is handed over."""
        one = self.daemons[daemon]
        if one.is_up:
            expected = self._crash_of(one)
            assert {each.id for each in self.run(one.sessions.leave())} == expected
            assert self.run(one.sessions.leave()) == []
            one.is_up = False

    @rule(daemon=daemons)
    def renew(self, daemon: str) -> None:
        """A renewal tells what could be claimed."""
        one = self.daemons[daemon]
        if one.is_up:
            claimable = self.run(one.sessions.renew())
            if not self.promise.all_paused:
                groups, plain = self._claimable(one, "grouped"), self._claimable(one, "plain")
                assert (claimable.groups, claimable.plain) == (len(groups), len(plain))

    @rule(daemon=daemons)
    def suspect_grows_old(self, daemon: str) -> None:
        """A daemon's suspect has run for a lease: at its first crash, it is none any more."""
        one = self.daemons[daemon]
        if not one.is_up or one.suspect is None:
            return
        key, slot = self.keys("worker", daemon), one.suspect.slot
        checkpoint = self.raw.hget(key, slot)
        self.raw.hset(key, slot, checkpoint[:33] + b"%016d" % 1 + checkpoint[49:])
        mark = self.raw.hget(self.keys("daemon", daemon), "suspect")
        if one.suspect.task.crashes == 1:
            self.raw.hset(self.keys("daemon", daemon), "suspect", mark[:16] + b"%016d" % 1)
            one.suspect = None
        self.renew(daemon)

    def _claimable(self, one: _Daemon, pool: Pool) -> set[str]:
        """The ids of the tasks that a daemon may claim now: no suspect beside another one."""
        heads = self.promise.claimable_heads() if pool == "grouped" else self.promise.lane("")
        if self.promise.all_paused:
            return set()
        return {task.id for task in heads if not (task.crashes and one.suspect)}

    def _crash_of(self, one: _Daemon) -> set[str]:
        """The promise's view of a daemon that dies: its tasks are back, one crash richer."""
        gone = one.forget()
        for claim in gone:
            task = self.promise.tasks[claim.task.id]
            task.state, task.crashes, task.is_due = "waiting", task.crashes + 1, True
        return {claim.task.id for claim in gone}

    # Claims and settles

    @rule(daemon=daemons, pool=pools, count=st.integers(1, WORKERS), again=st.booleans())
    def claim(self, daemon: str, pool: Pool, count: int, again: bool) -> None:
        """Idle workers claim: they get the most that there is, each group's head, once."""
        one = self.daemons[daemon]
        idle = one.idle(pool)[:count]
        if not one.is_up or not idle:
            return
        possible = self._claimable(one, pool)
        suspects = {id_ for id_ in possible if self.promise.tasks[id_].crashes}
        _, claims = self.run(one.claims[pool].exchange([], idle))
        if again:
            _, told = self.run(one.claims[pool].exchange([], idle))
            told_again = {claim.slot: claim.task.id for claim in told}
            assert {c.slot: c.task.id for c in claims}.items() <= told_again.items()
            claims = told
        if suspects:
            first, *others = sorted(claims, key=lambda each: each.fence)
            assert first.task.id in suspects, "a suspect goes first"
            assert others == [] or again, "a suspect comes alone"
            assert not any(claim.task.crashes for claim in others), "one at a time"
            one.suspect = first
        else:
            assert len(claims) == min(len(possible), len(idle))
            assert {claim.task.id for claim in claims} <= possible
        assert one.claims[pool].beside_suspect == (one.suspect is not None)
        for claim in sorted(claims, key=lambda each: each.fence):
            task = self.promise.tasks[claim.task.id]
            assert (claim.task.group or "") == task.group
            self.promise.claim(claim.task.id, claim.fence)
            assert claim.task.attempt == task.attempt
            assert claim.task.crashes == task.crashes
            assert claim.task.stage == task.stage
            one.held[claim.slot] = claim

    @rule(
        daemon=daemons,
        pick=numbers,
        how=st.sampled_from(("complete", "complete", "release", "retry", "advance", "bury")),
        option=st.booleans(),
        again=st.booleans(),
    )
    def settle(self, daemon: str, pick: int, how: str, option: bool, again: bool) -> None:
        """A worker settles what it holds."""
        one = self.daemons[daemon]
        if not one.held:
            return
        worker = sorted(one.held)[pick % len(one.held)]
        claim = one.held.pop(worker)
        if claim is one.suspect:
            one.suspect = None
        task = self.promise.tasks[claim.task.id]
        settlement = self._settle_both(how, claim, task, option=option)
        refused, _ = self.twice(lambda: one.claims["plain"].exchange([settlement], []), again=again)
        assert refused == []
        one.stale.append(claim)

    def _settle_both(
        self, how: str, claim: settlements.Claim, task: ModelTask, *, option: bool
    ) -> settlements.Settlement:
        """What the store is told, and what it means for the promise."""
        standing: Any = "step-aside" if option else "hold"
        if how == "release":
            task.state = "waiting"
            return settlements.Release(claim)
        if how == "retry":
            task.attempt += 1
            task.is_due = False
            task.state = "aside" if option or not task.group else "waiting"
            return settlements.Retry(claim, 3600.0, [], standing)
        if how == "advance":
            task.state, task.attempt, task.stage = "waiting", 1, f"s{task.place}"
            if option and task.group:
                self.promise.line_up_again(task)
            return settlements.Advance(claim, task.stage, b"[1]", standing)
        if how == "bury":
            task.state = "dead"
            if option and task.group:
                self.promise.parked[task.group] = task.id
            return settlements.Bury(claim, "it had to", [], park=option)
        task.state = "done"
        return settlements.Complete(claim)

    @rule(daemon=daemons, pick=numbers, how=st.sampled_from(("complete", "release", "bury")))
    def settle_stale(self, daemon: str, pick: int, how: str) -> None:
        """A zombie settles a claim that is no longer its own: refused, and nothing changes."""
        one = self.daemons[daemon]
        if not one.stale:
            return
        claim = one.stale[pick % len(one.stale)]
        if claim.slot in one.held or self._is_last_settled(daemon, claim):
            return
        late: dict[str, settlements.Settlement] = {
            "complete": settlements.Complete(claim),
            "release": settlements.Release(claim),
            "bury": settlements.Bury(claim, "late", [], park=True),
        }
        settlement = late[how]
        before = self._snapshot()
        try:
            refused, _ = self.run(one.claims["plain"].exchange([settlement], []))
        except (SessionLost, SessionReplaced):
            refused = [settlement]
        assert refused == [settlement]
        assert self._snapshot() == before

    def _is_last_settled(self, daemon: str, claim: settlements.Claim) -> bool:
        """Whether this claim is the one whose settle may rightly be repeated."""
        mark = self.raw.hget(self.keys("worker", daemon), claim.slot)
        return bool(mark == b"S%016d" % claim.fence)

    def _snapshot(self) -> dict[bytes, bytes | None]:
        return {key: self.raw.dump(key) for key in self.raw.keys("*")}

    # Time, and what people do

    @rule()
    def time_passes(self) -> None:
        """Every delay is over."""
        for element in self.raw.zrange(self.keys("delayed"), 0, -1):
            self.raw.zadd(self.keys("delayed"), {element: 1})
            self.raw.hset(self.keys("life", split_element(element)[1]), "due", 1)
        for key in self.raw.scan_iter(self.keys("lane", "*")):
            for element in self.raw.lrange(key, 0, -1):
                life = self.keys("life", split_element(element)[1])
                if self.raw.hexists(life, "due"):
                    self.raw.hset(life, "due", 1)
        for id_ in self.raw.zrange(self.keys("late"), 0, -1):
            self.raw.zadd(self.keys("late"), {id_: 1})
        for group in self.raw.zrange(self.keys("held"), 0, -1):
            self.raw.zadd(self.keys("held"), {group: 1})
        while self.run(self.client.run(Verb.PROMOTE, 2))[0]:
            pass
        for task in self.promise.tasks.values():
            if task.state in ("waiting", "aside"):
                task.state, task.is_due = "waiting", True

    @rule(group=st.sampled_from(("a", "b", "c|||d")))
    def pause(self, group: str) -> None:
        """Somebody holds a group."""
        assert self.run(self.group_verbs.pause(group, "me")) == (group not in self.promise.paused)
        self.promise.paused.add(group)

    @rule(group=st.sampled_from(("a", "b", "c|||d")))
    def resume(self, group: str) -> None:
        """Somebody lets a group go on."""
        assert self.run(self.group_verbs.resume(group)) == (group in self.promise.paused)
        self.promise.paused.discard(group)

    @rule(on=st.booleans())
    def pause_all(self, on: bool) -> None:
        """Somebody holds everything, or lets it go on."""
        if on:
            self.run(self.group_verbs.pause(ALL, "me"))
        else:
            self.run(self.group_verbs.resume(ALL))
        self.promise.all_paused = on

    @rule(pick=numbers, drop=st.booleans(), again=st.booleans())
    def end_a_death(self, pick: int, drop: bool, again: bool) -> None:
        """Somebody redrives a dead letter or drops it."""
        dead = sorted(t.id for t in self.promise.tasks.values() if t.state == "dead")
        if not dead:
            return
        task = self.promise.tasks[dead[pick % len(dead)]]
        letter = self.run(self.letters.get(task.id))
        assert letter is not None
        act = self.letters.drop if drop else self.letters.redrive
        assert self.twice(lambda: act(letter), again=again) == (not again)
        if drop:
            task.state, task.died_long_ago = "dropped", False
            self.promise.unpark(task)
        else:
            self.promise.redrive(task)

    @rule(pick=numbers, drop=st.booleans(), again=st.booleans())
    def act_on_a_waiting_task(self, pick: int, drop: bool, again: bool) -> None:
        """Somebody drops any task that waits, or has one that is delayed run now."""
        if not self.promise.tasks:
            return
        task = self.promise.tasks[sorted(self.promise.tasks)[pick % len(self.promise.tasks)]]
        waits = task.state in ("waiting", "aside")
        act = self.waiting.drop if drop else self.waiting.run_now
        left = self.twice(lambda: act(task.id), again=again)
        if not waits:
            assert left == {"running": "running", "dead": "dead"}.get(task.state, "over")
        elif drop:
            task.state = "dropped"
            assert left == ("over" if again else None)
        else:
            assert left == ("due" if task.is_due or again else None)
            task.state, task.is_due = "waiting", True

    @rule()
    def roll(self) -> None:
        """The history rolls over; nothing within the window is forgotten."""
        self.run(roll_history(self.client, keep=3600.0, size=1))
        self.run(sweep_renamed(self.client))

    # What must hold after every step

    @invariant()
    def structure_is_sound(self) -> None:
        """Each group in one state, each task in one place, the counters right."""
        assert audit(self.raw, self.keys) == []

    @invariant()
    def totals_agree(self) -> None:
        """The status says what the promise says."""
        status = self.run(read_status(self.client))
        promise = self.promise
        assert status.plain.queued == promise.count("waiting", "aside", grouped=False)
        assert status.grouped.queued == promise.count("waiting", "aside", grouped=True)
        assert status.plain.running == promise.count("running", grouped=False)
        assert status.grouped.running == promise.count("running", grouped=True)
        dead = promise.count("dead", grouped=False) + promise.count("dead", grouped=True)
        assert status.dead == dead
        assert status.grouped.ready == len(promise.claimable_groups()) or promise.all_paused

    @invariant()
    def states_are_told(self) -> None:
        """`why` agrees with the promise on whether a group runs, is held, or may be claimed."""
        for group in ("a", "c|||d"):
            state = self.run(self.group_verbs.why(group)).state
            if self.promise.runs(group):
                assert state == "running"
            elif group in self.promise.claimable_groups():
                assert state == "ready"
            else:
                assert state not in ("running", "ready")

    def _drain(self) -> None:
        self.pause_all(on=False)
        for group in ("a", "b", "c|||d"):
            self.resume(group)
        self._end_all_deaths()
        for daemon in DAEMONS:
            self.leave(daemon)
        self.start("d0", again=False)
        for _ in range(10_000):
            self.time_passes()
            self.claim("d0", "plain", WORKERS, again=False)
            self.claim("d0", "grouped", WORKERS, again=False)
            if not self.daemons["d0"].held:
                break
            while self.daemons["d0"].held:
                self.settle("d0", 0, "complete", option=False, again=False)
        self.leave("d0")
        waiting = [t.id for t in self.promise.tasks.values() if t.state not in ("done", "dropped")]
        assert waiting == [], "some tasks could never be claimed"
        assert leftovers(self.raw, self.keys) == []

    def _end_all_deaths(self) -> None:
        while any(t.state == "dead" for t in self.promise.tasks.values()):
            self.end_a_death(0, drop=True, again=False)


@pytest.mark.timeout(300)  # a thousand steps, each audited, where all cores are busy
@pytest.mark.parametrize("order", ["oldest", "fair"])
def test_store_keeps_the_promise(store_server: Any, order: str) -> None:
    """Random histories end as promised."""

    class Machine(StoreMachine):
        pass

    Machine.url = store_server.url
    Machine.order = order
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=int(os.environ.get("GROUPFLOW_MODEL_EXAMPLES", "25")),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
