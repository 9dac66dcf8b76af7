"""Claims and settles, those of zombies among them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from groupflow.core.errors import SessionLost, SessionReplaced, StoreUnavailable
from groupflow.store import given, settlements
from groupflow.store.envelope import Pool
from groupflow.store.keys import split_element
from tests.model.machine import NAMED, WORKERS, Machine, daemons, numbers, pools
from tests.model.promise import FEW, SLOW, ModelTask

WAYS = (
    "complete", "complete", "release", "retry", "retry all", "retry tenant", "advance", "bury",
)  # fmt: skip


class ClaimsAndSettles(Machine):
    """Workers claim, and settle in every way."""

    @rule(
        daemon=daemons,
        pool=pools,
        count=st.integers(1, WORKERS),
        again=st.booleans(),
        behind=st.sampled_from(("", "ahead", "run", "run")),
    )
    def claim(self, daemon: str, pool: Pool, count: int, again: bool, behind: str = "") -> None:
        """Idle workers claim: they get the most that there is, each group's head, once."""
        one = self.working(daemon)
        idle = one.idle(pool)[:count]
        if not one.is_up or not idle:
            return
        possible = self.claimable(one, pool)
        suspects = {id_ for id_ in possible if self.promise.tasks[id_].crashes}
        one.claims["grouped"].adopt(dict.fromkeys(NAMED, 4) if behind == "run" else {})
        answer = self.run(one.claims[pool].exchange([], idle, ahead=behind == "ahead"))
        if again:
            first_told = {claim.slot: claim.task.id for claim in answer.claims}
            answer = self.run(one.claims[pool].exchange([], idle))
            assert first_told.items() <= {c.slot: c.task.id for c in answer.claims}.items()
        claims = answer.claims
        if suspects:
            first, *others = sorted(claims, key=lambda each: each.fence)
            assert first.task.id in suspects, "a suspect goes first"
            assert others == [] or again, "a suspect comes alone"
            assert not any(claim.task.crashes for claim in others), "one at a time"
            one.suspect = first
        assert answer.beside_suspect == (one.suspect is not None)
        for claim in sorted(claims, key=lambda each: each.fence):
            task = self.promise.tasks[claim.task.id]
            assert (claim.task.group or "") == task.group
            self.promise.claim(claim.task.id, claim.fence)
            assert claim.task.attempt == task.attempt
            assert claim.task.crashes == task.crashes
            assert claim.task.lost_leases == task.lost_leases
            assert claim.task.stage == task.stage
        if len(claims) < len(idle) and not suspects:
            left = {id_ for id_ in self.claimable(one, pool) if not self.promise.tasks[id_].crashes}
            assert left == set(), "more could be claimed"
        for claim in claims:
            self.begin(one, claim)

    @rule(
        daemon=daemons,
        pick=numbers,
        how=st.sampled_from(WAYS),
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
        settlement = self.settle_both(how, claim, task, option=option)
        self.promise.runs_of.pop(task.group, None)
        if one.runs.pop(worker, None) is not None and isinstance(settlement, settlements.Complete):
            settlement = settlements.Proceed([settlement], None)
        answer = self.twice(lambda: one.claims["plain"].exchange([settlement], []), again=again)
        assert answer.refused == []
        one.stale.append(claim)

    def settle_both(
        self, how: str, claim: given.Claim, task: ModelTask, *, option: bool
    ) -> settlements.Settlement:
        """What the store is told, and what it means for the promise."""
        standing: Any = "step-aside" if option else "hold"
        if how == "release":
            task.state = "waiting"
            return settlements.Release(claim)
        if how.startswith("retry"):
            return self._retry_both(how, claim, task, standing)
        if how == "advance":
            return self._advance_both(claim, task, standing)
        if how == "bury":
            task.state, task.errors = "dead", len(b"[]")
            if option and task.group:
                self.promise.parked[task.group] = task.id
            return settlements.Bury(claim, "it had to", [], park=option)
        task.state = "done"
        return settlements.Complete(claim)

    def _advance_both(
        self, claim: given.Claim, task: ModelTask, standing: Any
    ) -> settlements.Settlement:
        """Where there is no room for what it hands on, its attempt has failed instead."""
        stage, context = f"s{task.place}", b"[1]" if task.place % 2 else b"[1,2]"
        otherwise = settlements.Retry(claim, 3600.0, [], standing)
        if self.promise.has_room(task, stage, len(context)):
            task.state, task.attempt, task.stage = "waiting", 1, stage
            task.context = len(context)
            if standing == "step-aside" and task.group:
                self.promise.line_up_again(task)
        else:
            self._retry_both("retry", claim, task, standing)
        return settlements.Advance(claim, stage, context, standing, otherwise=otherwise)

    def _retry_both(
        self, how: str, claim: given.Claim, task: ModelTask, standing: Any
    ) -> settlements.Settlement:
        task.attempt += 1
        task.is_due, task.errors = False, len(b"[]")
        task.state = "aside" if standing == "step-aside" or not task.group else "waiting"
        if task.debounces and task.stage is None:
            self.promise.debounce_retry(task)
        scope: Any = "task"
        if how == "retry all" and task.group:
            scope = "group"
            self.promise.closed.add(task.group)
        # Of a tenant without limits what is ready is held back as claims meet it.
        if how == "retry tenant" and task.scope in (FEW, SLOW) and self.limited:
            scope = "tenant"
            self.promise.closed_tenants.add(task.scope)
        return settlements.Retry(claim, 3600.0, [], standing, scope)

    @rule(daemon=daemons, pick=numbers, again=st.booleans())
    def hand_on(self, daemon: str, pick: int, again: bool) -> None:
        """A worker goes on with the next task of its group, where nobody goes before."""
        one = self.working(daemon)
        hot = sorted(slot for slot, claim in one.held.items() if claim.behind)
        if not hot:  # or hardly any history would come to it
            self.claim(one.name, "grouped", WORKERS, again=False, behind="ahead")
            return
        slot = hot[pick % len(hot)]
        claim = one.held.pop(slot)
        settlement = settlements.Complete(claim)
        handed = self.run(one.claims["grouped"].hand_on(settlement))
        if again:
            told = self.run(one.claims["grouped"].hand_on(settlement))
            fence = handed.claim and handed.claim.fence
            assert told.is_open or (told.claim and told.claim.fence) == fence
        if handed.is_open:
            answer = self.run(one.claims["grouped"].exchange([settlement], []))
            assert answer.refused == []
        assert not handed.is_refused
        self.promise.tasks[claim.task.id].state = "done"
        if claim is one.suspect:
            one.suspect = None
        one.stale.append(claim)
        possible = self.claimable(one, "grouped")
        next_id = split_element(claim.behind[0][0])[1]
        if handed.claim is None:
            promise = self.promise
            holds_back = promise.closed or promise.closed_tenants or promise.hands
            assert holds_back or possible != {next_id}, "nobody else could be claimed"
            return
        assert handed.claim.task.id == next_id in possible
        suspects = {id_ for id_ in possible if self.promise.tasks[id_].crashes}
        assert not suspects, "a suspect goes first"
        self.promise.claim(next_id, handed.claim.fence)
        one.held[slot] = handed.claim

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
            refused = self.run(one.claims["plain"].exchange([settlement], [])).refused
        except (SessionLost, SessionReplaced):
            refused = [settlement]
        except StoreUnavailable:  # this server leads since it was last heard of: it isn't asked
            leads = (self.raw.hget(self.keys("epoch"), "id") or b"").decode()
            assert one.session.epoch.id not in ("", leads)
            refused = [settlement]
        assert refused == [settlement]
        assert self._snapshot() == before

    def _is_last_settled(self, daemon: str, claim: given.Claim) -> bool:
        """Whether this claim is the one whose settle may rightly be repeated."""
        mark = self.raw.hget(self.keys("worker", daemon), claim.slot)
        return bool(mark == b"S%016d" % claim.fence)

    def _snapshot(self) -> dict[bytes, bytes | None]:
        return {key: self.raw.dump(key) for key in self.raw.keys("*")}
