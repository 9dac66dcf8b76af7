"""Claims and settles, those of zombies among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from hypothesis import strategies as st
from hypothesis.stateful import rule

from groupflow.core.errors import SessionLost, SessionReplaced
from groupflow.core.task import Task
from groupflow.store import given, settlements
from groupflow.store.envelope import Pool
from groupflow.store.keys import SEQUENCE_DIGITS
from groupflow.store.settlements import Settlement
from tests.model.machine import (
    NAMED,
    WORKERS,
    Daemon,
    Machine,
    complete,
    daemons,
    flags,
    numbers,
    pools,
)
from tests.model.promise import FEW, SLOW, ModelTask

WAYS = (
    "complete", "complete", "release", "retry", "retry all", "retry tenant", "advance", "bury",
)  # fmt: skip
_LIVES = ord("+")  # in an entry: more is known of its task
Ends: TypeAlias = Sequence[str]
ends_of_some = st.lists(st.sampled_from(("complete", "complete", "release")), max_size=2)
counts = st.integers(1, WORKERS)
ways = st.sampled_from(WAYS)
# Where one of these is, limits hold, or did for something that still runs or waits.
_LIMITING = (
    "limits", "by_hand", "sharing", "rates", "closed", "charged", "turns", "standing", "caps",
    "cap_charged", "cap_lines",
)  # fmt: skip


def _progress_of(task: Task | ModelTask) -> tuple[object, ...]:
    return task.stage, task.attempt, task.crashes, task.lost_leases


class ClaimsAndSettles(Machine):
    """Workers claim, and settle in every way."""

    @rule(daemon=daemons, pool=pools, count=counts, again=flags, runs=flags, ends=ends_of_some)
    def claim(  # noqa: PLR0917  what is drawn
        self, daemon: str, pool: Pool, count: int, again: bool, runs: bool = False, ends: Ends = ()
    ) -> None:
        """Idle workers claim: they get the most that there is, each group's head, once.

        So do some that have ended just now, in the same call.
        """
        one = self.working(daemon)
        if not one.is_up:
            return
        holding = sorted(slot for slot in one.held if slot not in one.runs)
        ended = [self._end(one, slot, how) for slot, how in zip(holding, ends, strict=False)]
        idle = one.idle(pool)[:count]
        one.claims("grouped").adopt(dict.fromkeys(NAMED, 4) if runs else {})
        self._exchange(one, pool, ended, idle, again=again)

    def _end(self, one: Daemon, slot: str, how: str, *, option: bool = False) -> Settlement:
        """A worker's task has ended, as the promise has it; the store is still to hear of it."""
        claim = one.let_go(slot)
        return self.settle_both(how, claim, self.promise.tasks[claim.task.id], option=option)

    def _exchange(
        self, one: Daemon, pool: Pool, ended: list[Settlement], idle: list[str], *, again: bool
    ) -> None:
        """What has ended is settled, then idle workers are given all that they may have."""
        possible = self.claimable(one, pool)
        quarantined = {id_ for id_ in possible if self.promise.tasks[id_].crashes}
        may_come = self.without_due(quarantined)
        are_alike = self._are_alike(possible)
        answer = self.run(one.claims(pool).exchange(ended, idle))
        assert answer.refused == []
        self.hear_of_drains()
        if are_alike:
            freed = {each.claim.task.group or "" for each in ended} - {""}
            best = sorted(possible, key=lambda id_: self._turn(id_, freed))[: len(idle)]
            turns = sorted(self._turn(claim.task.id, freed) for claim in answer.claims)
            assert turns == [self._turn(id_, freed) for id_ in best], "others go first"
        if not idle:
            return
        if again:
            first_told = {claim.slot: claim.task.id for claim in answer.claims}
            answer = self.run(one.claims(pool).exchange(ended, idle))
            assert answer.refused == []
            assert first_told.items() <= {c.slot: c.task.id for c in answer.claims}.items()
        claims = answer.claims
        if not (may_come or any(claim.task.crashes for claim in claims)):
            quarantined = set()
        if quarantined:
            first, *others = sorted(claims, key=lambda each: each.fence)
            assert first.task.id in quarantined, "the quarantined go first"
            assert others == [] or again, "a quarantined task comes alone"
            assert not any(claim.task.crashes for claim in others), "one at a time"
            one.quarantined = first
        assert answer.beside_quarantined == (one.quarantined is not None)
        for claim in sorted(claims, key=lambda each: each.fence):
            task = self.promise.tasks[claim.task.id]
            self.promise.claim(claim.task.id, claim.fence)
            assert (claim.task.group or "") == task.group
            assert _progress_of(claim.task) == _progress_of(task)
        if len(claims) < len(idle) and not quarantined:
            left = {id_ for id_ in self.claimable(one, pool) if not self.promise.tasks[id_].crashes}
            assert self.without_due(left) == set(), "more could be claimed"
        for claim in claims:
            self.begin(one, claim)

    def _are_alike(self, ids: set[str]) -> bool:
        """Whether nothing but its arrival says of some heads or plain tasks which goes first."""
        special = *_LIMITING, "ordered", "quarantined_plain"
        if self.order == "tenants" or self.raw.exists(*map(self.keys, special)):
            return False
        tasks = [self.promise.tasks[id_] for id_ in ids]
        groups = [task.group for task in tasks if task.group]
        heads = [self.raw.lindex(self.keys("lane", group), -1) for group in groups]
        is_new = not any(task.fences for task in tasks)
        return is_new and all(head[SEQUENCE_DIGITS] != _LIVES for head in heads)

    def _turn(self, id_: str, freed: set[str]) -> int:
        """When it is a head's turn, or a plain task's; in fair order, behind who has waited."""
        task = self.promise.tasks[id_]
        return task.group in freed if task.group and self.order == "fair" else task.place

    @rule(daemon=daemons, pick=numbers, how=ways, option=flags, again=flags)
    def settle(self, daemon: str, pick: int, how: str, option: bool, again: bool) -> None:
        """A worker settles what it holds."""
        one = self.daemons[daemon]
        if not one.held:
            return
        worker = sorted(one.held)[pick % len(one.held)]
        settlement = self._end(one, worker, how, option=option)
        self.promise.runs_of.pop(settlement.claim.task.group or "", None)
        if one.runs.pop(worker, None) is not None and isinstance(settlement, settlements.Complete):
            settlement = settlements.Proceed([settlement], None)
        answer = self.twice(lambda: one.claims("plain").exchange([settlement], []), again=again)
        assert answer.refused == []
        self.hear_of_drains()

    def settle_both(
        self, how: str, claim: given.Claim, task: ModelTask, *, option: bool
    ) -> Settlement:
        """What the store is told, and what it means for the promise."""
        standing: Any = "step-aside" if option else "hold"
        if task.is_to_end and how in ("retry", "retry all", "retry tenant", "advance"):
            task.wait()  # and nothing of that is closed
            return settlements.Retry(claim, 3600.0, [], standing, "group")
        if how == "release":
            task.wait()
            return settlements.Release(claim)
        if how in ("bury", "complete"):
            task.is_asked, task.replaced_by = False, ""
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
        return complete(claim)

    def _advance_both(self, claim: given.Claim, task: ModelTask, standing: Any) -> Settlement:
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
    ) -> Settlement:
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

    @rule(daemon=daemons, pick=numbers, again=flags)
    def swap(self, daemon: str, pick: int, again: bool) -> None:
        """A worker's task of a group is done, and its slot asks for another one."""
        one = self.working(daemon)
        claims = {slot: claim for slot, claim in one.held.items() if slot not in one.runs}
        hot = sorted(slot for slot, claim in claims.items() if claim.task.group)
        if not hot:  # or hardly any history would come to it
            self.claim(one.name, "grouped", WORKERS, again=False)
            return
        # Rather where something comes behind it.
        hot = [slot for slot in hot if self.promise.lane(claims[slot].task.group or "")] or hot
        slot = hot[pick % len(hot)]
        one.claims("grouped").adopt({})
        settlement = self._end(one, slot, "complete")
        self._exchange(one, "grouped", [settlement], [slot], again=again)

    @rule(daemon=daemons, pick=numbers, how=st.sampled_from(("complete", "release", "bury")))
    def settle_stale(self, daemon: str, pick: int, how: str) -> None:
        """A zombie settles a claim that is no longer its own: refused, and nothing changes."""
        one = self.daemons[daemon]
        if not one.stale:
            return
        claim = one.stale[pick % len(one.stale)]
        if claim.slot in one.held or self._is_last_settled(daemon, claim):
            return
        late: dict[str, Settlement] = {
            "complete": complete(claim),
            "release": settlements.Release(claim),
            "bury": settlements.Bury(claim, "late", [], park=True),
        }
        settlement = late[how]
        before = self.bench.dump()
        try:
            refused = self.run(one.claims("plain").exchange([settlement], [])).refused
        except (SessionLost, SessionReplaced):
            refused = [settlement]
        assert refused == [settlement]
        assert self.bench.dump() == before

    def _is_last_settled(self, daemon: str, claim: given.Claim) -> bool:
        """Whether this claim is the one whose settle may rightly be repeated."""
        mark = self.raw.hget(self.keys("worker", daemon), claim.slot)
        return bool(mark == b"S%016d" % claim.fence)
