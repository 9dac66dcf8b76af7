"""Daemons come, go and lose their leases."""

from __future__ import annotations

import pytest
from hypothesis.stateful import rule

from groupflow.core.errors import SessionLost
from groupflow.store.clock import MICROSECONDS
from groupflow.store.epochs import NEVER
from tests.model.machine import LEASE, Machine, daemons, flags


class Lives(Machine):
    """A daemon's life, from its start to its crash or its leave."""

    aged = 0  # quarantined tasks that were made to have run for long

    @rule(daemon=daemons, again=flags)
    def start(self, daemon: str, again: bool) -> None:
        """A daemon starts: for the first time, or again under its name after a crash."""
        one = self.daemons[daemon]
        crashed = self.crash_of(one)
        one.begin()
        handed = self.run(one.sessions.register({"lease": LEASE}))
        assert {each.id for each in handed} == crashed
        if again:
            assert self.run(one.sessions.register({"lease": LEASE})) == []
        self.promise.show(daemon, one.session.process)
        one.is_up = True

    @rule(daemon=daemons)
    def lease_runs_out(self, daemon: str) -> None:
        """Its lease ends without a renewal, and a daemon reaps."""
        one = self.daemons[daemon]
        if not one.is_up:
            return
        self.raw.zadd(self.keys("daemons"), {daemon: 1})
        gone = [claim.task.id for claim in one.forget()]
        self.promise.lose(daemon, one.session.process, gone)
        _, handed = self.run(one.sessions.reap())
        assert {each.id for each in handed} == set(gone)
        with pytest.raises(SessionLost):
            self.run(one.sessions.renew())
        one.is_up = False

    @rule(daemon=daemons, again=flags)
    def come_back(self, daemon: str, again: bool) -> None:
        """It was only slow: the same process opens a session once more."""
        one = self.daemons[daemon]
        if one.is_up or one.session.number == NEVER:
            return
        self.twice(lambda: one.sessions.register({"lease": LEASE}), again=again)
        self.promise.show(daemon, one.session.process)
        one.is_up = True

    @rule()
    def stay_silent(self) -> None:
        """Nothing comes for ten leases of those that lost one."""
        lost = self.raw.zrange(self.keys("losing"), 0, -1)
        assert {name.decode() for name in lost} == self.promise.losses.keys()
        if lost:
            self.raw.zadd(self.keys("losing"), dict.fromkeys(lost, 1))
        for name in sorted(self.promise.losses):
            self.run(self.daemons["d0"].sessions.reap())
            self.promise.count_deaths(name)
        assert not self.raw.exists(self.keys("losing"))

    @rule(daemon=daemons)
    def leave(self, daemon: str) -> None:
        """It ends in order; what it still held is handed over."""
        one = self.daemons[daemon]
        if one.is_up:
            expected = self.crash_of(one, left=True)
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
                groups, plain = self.claimable(one, "grouped"), self.claimable(one, "plain")
                assert bool(claimable.groups) == bool(groups)
                assert bool(claimable.plain) == bool(plain)

    @rule(daemon=daemons)
    def quarantined_grows_old(self, daemon: str) -> None:
        """A daemon's quarantined task has run for a lease: after one crash, that ends it."""
        one = self.daemons[daemon]
        if not one.is_up or one.quarantined is None:
            return
        key, slot = self.keys("worker", daemon), one.quarantined.slot
        checkpoint = self.raw.hget(key, slot)
        self.aged += 1  # a lease behind the one that grew old before
        since = b"%016d" % int(self.aged * LEASE * MICROSECONDS)
        self.raw.hset(key, slot, checkpoint[:33] + since + checkpoint[49:])
        mark = self.raw.hget(self.keys("daemon", daemon), "quarantined")
        if one.quarantined.task.crashes == 1:
            self.raw.hset(self.keys("daemon", daemon), "quarantined", mark[:16] + since)
            one.quarantined = None
        self.renew(daemon)
