"""The server loses what it had written last, and leads anew: from an older state of its own."""

from __future__ import annotations

from copy import deepcopy
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import rule

from groupflow.core.errors import SessionLost
from groupflow.store.epochs import Epoch
from groupflow.store.given import Claim
from tests.model.machine import DAEMONS, LEASE, POOLS, Daemon, Machine
from tests.model.promise import Promise


def _name(number: int) -> str:
    """Redis names epochs itself: those that are over get these names in its place."""
    return f"{number:040x}"


class Member(NamedTuple):
    """A daemon that was up: its process, its session, and what it held."""

    process: str
    number: str
    held: dict[str, Claim]
    quarantined: Claim | None
    runs: dict[str, list[Claim]]


class Kept(NamedTuple):
    """A state that a server may fall back to.

    Attributes:
        epoch: in which it was, by number.
        dump: all keys.
        promise: what was promised then.
        members: the daemons that were up.
        pulled: what workers held that pull.
    """

    epoch: int
    dump: dict[bytes, bytes]
    promise: Promise
    members: dict[str, Member]
    pulled: dict[str, list[Claim]]


class Losses(Machine):
    """What is kept, and what is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: Kept | None = None
        self.epoch = 0

    @rule()
    def keep(self) -> None:
        """A replica, or a disk, has all up to here."""
        self.kept = Kept(
            self.epoch,
            {key: self.raw.dump(key) for key in self.raw.keys("*")},
            deepcopy(self.promise),
            {name: self._member(one) for name, one in self.daemons.items() if one.is_up},
            {name: list(one.held.values()) for name, one in self.pullers.items()},
        )

    def _member(self, one: Daemon) -> Member:
        session = one.session
        runs = deepcopy(one.runs)
        return Member(session.process, session.number, dict(one.held), one.quarantined, runs)

    @rule(order=st.permutations(DAEMONS))
    def lose(self, order: list[str]) -> None:
        """All since is lost; daemons come in some order, and those that died don't."""
        kept = self.kept
        if kept is None:
            return
        self._fall_back(kept)
        found = int(self.raw.get(self.keys("fence")) or 0)
        enrolled = (self.raw.hget(self.keys("epoch"), "enrolled") or b"0" * 16).decode()
        was_led = self.raw.exists(self.keys("epoch"))
        missing = {name for name in order if self.daemons[name].is_up}
        proofs = set[str]()
        for name in order:
            one = self.daemons[name]
            if one.is_up:
                missing.discard(name)
                shown = one.session.seen.enrolled  # before it is told of its own new one
                if self._come(one, kept, found) and shown <= enrolled:
                    proofs.add(name)
                self._claim_beside(missing, order)
        self.run(self.daemons[order[0]].sessions.reap())  # enters it, if nobody has
        is_whole = bool(kept.members) and kept.members.keys() <= proofs
        assert self.raw.exists(self.keys("recovering")) == (was_led and not is_whole)
        self._end_recovery(kept)
        if was_led:
            self._let_pullers_come(kept)
        self.witness()

    def _let_pullers_come(self, kept: Kept) -> None:
        """All that they held waits again, and nothing is given until their lease has passed."""
        for name, one in self.pullers.items():
            key = self.keys("daemon", one.puller.daemon)
            if self.raw.exists(key):
                self.raw.hset(key, "epoch", _name(kept.epoch))
            assert self.run(one.store.poll(one.puller, opens=False)).session is None
            one.forget()
            for claim in kept.pulled[name]:
                self._put_back(claim, crashed=False)
        for one in self.pullers.values():
            assert self.run(one.store.poll(one.puller, 5)).heads == []
        self.raw.hset(self.keys("epoch"), "since", 1)

    def _fall_back(self, kept: Kept) -> None:
        real = (self.raw.hget(self.keys("epoch"), "id") or b"").decode()
        last = self.promise.last_fence
        self.promise = deepcopy(kept.promise)
        self.promise.last_fence = last
        for key in self.raw.keys("*"):
            if key not in kept.dump:
                self.raw.delete(key)
        for key, value in kept.dump.items():
            self.raw.restore(key, 0, value, replace=True)
        if self.raw.exists(self.keys("epoch")):
            self.raw.hset(self.keys("epoch"), "id", _name(kept.epoch))
        for name in kept.members:
            self.raw.hset(self.keys("daemon", name), "epoch", _name(kept.epoch))
        for one in self.daemons.values():
            if real and one.session.epoch.id == real:
                one.session.epoch = Epoch(_name(self.epoch))
        self.epoch += 1

    def _come(self, one: Daemon, kept: Kept, found: int) -> bool:
        """A daemon renews; if it can't go on it drops all, and begins anew. Whether it proves."""
        name, session = one.session.daemon, one.session
        was = kept.members.get(name, Member("", "", {}, None, {}))
        is_same = was.process == session.process
        is_next = session.epoch.id == _name(kept.epoch)
        is_known = is_same and was.number == session.number  # else it has come back since
        goes_on = is_known and is_next and session.seen.fence <= found
        try:
            self.run(one.sessions.renew())
        except SessionLost:
            assert not goes_on
        else:
            assert goes_on
            one.stale += [claim for slot, claim in one.held.items() if was.held.get(slot) != claim]
            one.held, one.quarantined = dict(was.held), was.quarantined
            one.runs = deepcopy(was.runs)
            return True
        one.forget()
        handed = self.run(one.sessions.register({"lease": LEASE}))
        self.promise.show(name, session.process)
        assert {each.id for each in handed} == {claim.task.id for claim in was.held.values()}
        for claim in was.held.values():
            self._put_back(claim, crashed=not is_same)
        return is_same and is_next

    def _put_back(self, claim: Claim, *, crashed: bool) -> None:
        task = self.promise.tasks[claim.task.id]
        task.state, task.is_due = "waiting", True
        task.crashes += crashed
        self.promise.runs_of.pop(task.group, None)

    def _claim_beside(self, missing: set[str], order: list[str]) -> None:
        """Whoever has come claims; nothing of a group that another one may still run."""
        for name in order:
            one = self.daemons[name]
            if not one.is_up or name in missing:
                continue
            for pool in POOLS:
                idle = one.idle(pool)
                claims = self.run(one.claims[pool].exchange([], idle)).claims if idle else []
                running = [c for other in missing for c in self.daemons[other].held.values()]
                for claim in claims:
                    assert claim.task.id not in {each.task.id for each in running}
                    groups = {each.task.group for each in running if each.task.group}
                    assert claim.task.group not in groups
                self._take(one, claims)

    def _take(self, one: Daemon, claims: list[Claim]) -> None:
        for claim in sorted(claims, key=lambda each: each.fence):
            self.promise.claim(claim.task.id, claim.fence)
            if claim.task.crashes:
                one.quarantined = claim
        for claim in claims:  # the fences of runs are above those of all claims
            self.begin(one, claim)

    def _end_recovery(self, kept: Kept) -> None:
        """A lease passes; who has died since is taken over."""
        reaper = self.daemons[DAEMONS[0]].sessions
        if self.raw.exists(self.keys("recovering")):
            self.raw.set(self.keys("recovering"), 1)
        self.run(reaper.reap())
        gone = {n: was for n, was in kept.members.items() if not self.daemons[n].is_up}
        for name in gone:
            self.raw.zadd(self.keys("daemons"), {name: 1})
        lost = {n: [claim.task.id for claim in was.held.values()] for n, was in gone.items()}
        assert {each.id for each in self.run(reaper.reap())[1]} == set().union(*lost.values())
        for name, ids in lost.items():
            self.promise.lose(name, gone[name].process, ids)
        assert not self.raw.exists(self.keys("recovering"))
