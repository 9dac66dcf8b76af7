"""Bursts: of what waits the newest replaces the others, and who asks for a retry gives way."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from groupflow.core.limits import Debounce
from groupflow.operate.tasks import find_task
from tests.model.arrivals import Arrivals, arrival
from tests.model.claims import ClaimsAndSettles
from tests.model.machine import (
    POOL,
    SCOPES,
    WORKERS,
    Daemon,
    daemons,
    flags,
    named_groups,
    numbers,
    scopes,
)
from tests.model.people import TimeAndPeople

types = st.sampled_from(("t", "t", "u"))
hows = st.frozensets(st.sampled_from(("delayed", "aside", "pooled", "again")))
updates = st.frozensets(st.sampled_from(("running", "running", "delayed", "pooled", "again")))
ends = st.sampled_from(("release", "retry", "advance", "complete"))
newer = st.sampled_from(("", "waits", "waits", "runs too"))


class Bursts(Arrivals, ClaimsAndSettles, TimeAndPeople):
    """Tasks of rules that debounce come, and come again."""

    @rule(group=named_groups, scope=scopes, type_=types, number=st.integers(1, 3), how=hows)
    def enqueue_changed(
        self, group: str, scope: str, type_: str, number: int, how: Set[str]
    ) -> None:
        """Tasks of a rule that debounces: of those that wait the newest replaces the others."""
        pool, delayed, aside = POOL if "pooled" in how else "", "delayed" in how, "aside" in how
        facts: dict[str, Any] = {"delay": 3600.0 if delayed else 0.0, "steps_aside": aside}
        facts |= {"debounce": Debounce(60.0, 3600.0)}
        arrivals = [arrival(id_, group, scope, pool, type_, **facts) for id_ in self.new(number)]
        for _ in range(1 + ("again" in how)):
            self.run(self.enqueuer.enqueue(arrivals))
        for each in arrivals:
            id_ = each.id
            task = self.promise.enqueue(id_, id_, scope, group, due=not delayed, aside=aside)
            task.type, task.pool = type_, pool
            replaced = self.promise.debounce(task, delayed=delayed)
            if aside and not task.is_due:
                task.state = "aside"
            if replaced:
                found = self.run(find_task(self.client, replaced.id))
                assert found is not None
                assert (found.state, found.superseded_by) == ("superseded", task.id)

    @rule(group=named_groups, scope=scopes, type_=types, number=st.integers(1, 2), how=updates)
    def enqueue_update(
        self, group: str, scope: str, type_: str, number: int, how: Set[str]
    ) -> None:
        """The same without quiet; of some rules what runs makes way, too."""
        pool, delay = POOL if "pooled" in how else "", 3600.0 if "delayed" in how else 0.0
        debounce = Debounce(0.0, 0.0, 3600.0 if "running" in how else None)
        facts: dict[str, Any] = {"delay": delay, "debounce": debounce}
        arrivals = [arrival(id_, group, scope, pool, type_, **facts) for id_ in self.new(number)]
        for _ in range(1 + ("again" in how)):
            self.run(self.enqueuer.enqueue(arrivals))
        for each in arrivals:
            task = self.promise.enqueue(each.id, each.id, scope, group, due=not delay, aside=False)
            task.type, task.pool, task.is_update = type_, pool, "running" in how
            self.promise.debounce(task, delayed=bool(delay), quiet=False)
            if task.is_update and not delay:
                self.promise.update(task)

    @rule(daemon=daemons, how=ends, is_back=flags, again=flags)
    def make_way(self, daemon: str, how: str, is_back: bool, again: bool) -> None:
        """A newer task comes while one runs, or hardly any history would come to it; that ends."""
        one = self.working(daemon)
        held = self._running_update(one)
        if held and is_back:  # it was handed back before, and makes way no more
            self._end_update(one, held[0], "release", again=again)
            held = self._running_update(one)
        if not held:
            return
        task = self.promise.tasks[one.held[held[0]].task.id]
        self.enqueue_update(task.group, task.scope, task.type, 1, {"running"})
        by = task.replaced_by
        self._end_update(one, held[0], how, again=again)
        if by and how != "complete":
            found = self.run(find_task(self.client, task.id))
            assert found is not None
            assert (found.state, found.superseded_by) == ("superseded", by)

    def _running_update(self, one: Daemon) -> list[str]:
        """The slots of tasks of a group that newer ones may replace."""
        if not self._at_first_stage(one, "a"):
            self.enqueue_update("a", SCOPES[0], "t", 1, {"running"})
            self.claim(one.name, "grouped", WORKERS, again=False)
        return self._at_first_stage(one, "a")

    def _end_update(self, one: Daemon, slot: str, how: str, *, again: bool) -> None:
        self.settle(one.name, sorted(one.held).index(slot), how, option=False, again=again)

    @rule(daemon=daemons, group=named_groups, pick=numbers, newer=newer, option=flags, again=flags)
    def retry_in_a_burst(  # noqa: PLR0917  what is drawn
        self, daemon: str, group: str, pick: int, newer: str, option: bool, again: bool
    ) -> None:
        """One that runs asks for a retry; a newer one waits, or asks too, or there is none."""
        one = self.working(daemon)
        if newer == "runs too":
            self._retry_all_of("two", one, pick, option=option, again=again)
            return
        if not self._at_first_stage(one):  # or hardly any history would come to it
            self._change(group, "t")
            self._let_run(one)
        held = self._at_first_stage(one)
        if not held:
            return
        slot = held[pick % len(held)]
        if newer:
            task = self.promise.tasks[one.held[slot].task.id]
            self._change(task.group, task.type, task.scope)
        self.settle(one.name, sorted(one.held).index(slot), "retry", option=option, again=again)

    def _retry_all_of(
        self, group: str, one: Daemon, pick: int, *, option: bool, again: bool
    ) -> None:
        """Several of a group run, and each asks for a retry, in some order."""
        for _ in range(2):
            self._change(group, "t")
            self._let_run(one)
        held = self._at_first_stage(one, group)
        for slot in held[pick % 2 :] + held[: pick % 2]:
            self.settle(one.name, sorted(one.held).index(slot), "retry", option=option, again=again)

    def _change(self, group: str, type_: str, scope: str = SCOPES[0]) -> None:
        self.enqueue_changed(group, scope, type_, 1, frozenset())

    def _let_run(self, one: Daemon) -> None:
        self.time_passes()
        self.claim(one.name, "grouped", WORKERS, again=False)

    def _at_first_stage(self, one: Daemon, group: str = "") -> list[str]:
        """The slots that hold a task of such a rule, of a group or of any."""
        tasks = {slot: self.promise.tasks[claim.task.id] for slot, claim in one.held.items()}
        mine = {s: task for s, task in tasks.items() if group in ("", task.group)}
        return sorted(s for s, task in mine.items() if task.debounces and task.stage is None)
