"""Workers that pull: they claim from one pool alone, settle, fall silent and leave."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from groupflow.core.errors import PoolFull, SessionLost
from groupflow.store.pulling import Puller
from tests.model.arrivals import Arrivals, types
from tests.model.claims import ClaimsAndSettles
from tests.model.machine import (
    LEASE,
    POOL,
    PULLERS,
    PullingWorker,
    complete,
    flags,
    groups,
    numbers,
    scopes,
)

pullers = st.sampled_from(PULLERS)


ways = st.sampled_from(("complete", "complete", "release", "retry", "advance", "bury"))


class Pulls(Arrivals, ClaimsAndSettles):
    """What such workers do."""

    @rule(group=groups, scope=scopes, priority=st.sampled_from((0.0, 30.0)), type_=types)
    def enqueue_pooled(self, group: str, scope: str, priority: float, type_: str) -> None:
        """Tasks of a type that the pool has, for all tenants."""
        self.enqueue_tasks(self.new(2), group, priority, scope=scope, pool=POOL, type_=type_)

    @rule(name=pullers, limit=st.integers(1, 6), again=flags)
    def pull(self, name: str, limit: int, again: bool) -> None:
        """A worker tops up: it gets the heads of its pool, the quarantined tasks one at a time."""
        one = self.pullers[name]
        if self.limited and not self.raw.exists(self.keys("limits")):
            return  # no daemon has said yet what may run at once
        self.hear_of_drains()
        room = max(0, limit - len(one.held))
        possible = self.claimable_in_pool(one)
        poll = self.twice(lambda: one.store.poll(one.puller, limit), again=again)
        assert set(poll.held) == set(one.held)
        assert set(poll.cancelled) == {
            (claim.task.id, fence)
            for fence, claim in one.held.items()
            if self.promise.tasks[claim.task.id].is_to_end
        }
        # Of what waits for the limit of its type, heads are told that have room one by one.
        capped = {id_ for id_ in possible if self.promise.tasks[id_].type != "t"}
        free = possible - capped if self.limited else possible
        assert min(room, len(free)) <= len(poll.heads) <= min(room, len(possible))
        assert poll.heads or not (room and self.without_due(possible))
        of_groups = sum(head.is_group for head in poll.heads)
        plain = len(poll.heads) - of_groups
        claims = self.run(one.store.claim(poll, groups=of_groups, plain=plain))
        has_quarantined = any(self.promise.tasks[id_].crashes for id_ in possible)
        assert has_quarantined or len(claims) >= min(room, len(free))
        assert has_quarantined or claims or not poll.heads
        for claim in sorted(claims, key=lambda each: each.fence):
            task = self.promise.tasks[claim.task.id]
            assert task.pool == POOL
            self.promise.claim(task.id, claim.fence)
            if task.crashes:
                assert one.quarantined is None, "one quarantined task at a time"
                one.quarantined = claim
            one.held[claim.fence] = claim

    @rule(name=pullers, pick=numbers, how=ways, option=flags)
    def settle_pulled(self, name: str, pick: int, how: str, option: bool) -> None:
        """It settles what it holds, through a process that has never heard of it."""
        one = self.pullers[name]
        if not one.held:
            return
        claim = one.let_go(sorted(one.held)[pick % len(one.held)])
        settlement = self.settle_both(how, claim, self.promise.tasks[claim.task.id], option=option)
        poll = self.run(one.store.poll(one.puller))
        # No worker may speak of what was given back, so that isn't said twice.
        again = option and how != "release"
        assert self.twice(lambda: one.store.settle(poll, [settlement]), again=again) == []
        self.hear_of_drains()

    @rule(name=pullers, pick=numbers)
    def settle_pulled_late(self, name: str, pick: int) -> None:
        """What it doesn't hold any more it can't settle, except what its slot settled last."""
        one = self.pullers[name]
        if not one.stale:
            return
        claim = one.stale[pick % len(one.stale)]
        before = [task.state for task in self.promise.tasks.values()]
        poll = self.run(one.store.poll(one.puller))
        if claim.fence not in poll.settled:
            late = complete(claim)
            assert self.run(one.store.settle(poll, [late])) == [late]
        assert [task.state for task in self.promise.tasks.values()] == before

    @rule(name=pullers, reaps=flags)
    def fall_silent(self, name: str, reaps: bool) -> None:
        """Its lease ends; a daemon takes over, or it comes back itself: all of it is gone."""
        one = self.pullers[name]
        if not self.raw.zscore(self.keys("pool_pullers", POOL), one.puller.daemon):
            return
        self.raw.zadd(self.keys("pool_pullers", POOL), {one.puller.daemon: 1})
        if reaps:
            handed = self.run(self.daemons["d0"].sessions.reap())[1]
            assert {each.id for each in handed} == {c.task.id for c in one.held.values()}
        poll = self.run(one.store.poll(one.puller, opens=False))
        assert poll.session is None
        if one.held:
            with pytest.raises(SessionLost):
                self.run(one.store.settle(poll, []))
        self._give_back(one, crashed=True)

    @rule(room=st.integers(0, 1), again=flags)
    def come_as_another(self, room: int, again: bool) -> None:
        """A worker under a new name gets in where its pool may have one more, and leaves."""
        known = self.raw.zcard(self.keys("pool_pullers", POOL))
        if known + room == 0:
            return  # any number may be
        one = Puller(POOL, f"guest{next(self.ids)}", LEASE, known + room)
        store = self.pullers[PULLERS[0]].store
        if room:
            poll = self.twice(lambda: store.poll(one), again=again)
            assert (bool(poll.session), poll.held) == (True, {})
            self.run(store.leave(poll))
        else:
            with pytest.raises(PoolFull):
                self.run(store.poll(one))
        assert self.raw.zcard(self.keys("pool_pullers", POOL)) == known

    @rule(name=pullers, limit=st.integers(0, 2))
    def hand_back_pulled(self, name: str, limit: int) -> None:
        """It wants less than it holds, or leaves."""
        one = self.pullers[name]
        poll = self.run(one.store.poll(one.puller))
        if limit == 0:
            self.run(one.store.leave(poll))
            self._give_back(one, crashed=False)
            return
        self.run(one.store.hand_back(poll, max(0, len(one.held) - limit)))
        for fence in sorted(one.held)[limit:]:
            self.promise.tasks[one.let_go(fence).task.id].wait()

    def _give_back(self, one: PullingWorker, *, crashed: bool) -> None:
        for claim in one.forget():
            task = self.promise.tasks[claim.task.id]
            task.is_due, task.crashes = True, task.crashes + crashed
            task.wait()
