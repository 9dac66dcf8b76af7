"""What comes in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from tests.model.machine import SCOPES, TENANTS, Machine, flags, groups, numbers, scopes


def arrival(id_: str, group: str, scope: str, pool: str, type_: str = "t", **facts: Any) -> Arrival:
    """A task as intake hands it to the store."""
    envelope = Envelope(type_, group or None, TENANTS[scope], group or None, {}, b"{}", scope)
    return Arrival(id_, replace(envelope, named_pool=pool or None), **facts)


types = st.sampled_from(("t", "t", "v", "v", "w1"))  # the latter two with a limit
priorities = st.sampled_from((0.0, 0.0, 30.0, -5.0))


class Arrivals(Machine):
    """Tasks come: at once, delayed, again."""

    @rule(group=groups, scope=scopes, priority=priorities, again=flags, type_=types)
    def enqueue(self, group: str, scope: str, priority: float, again: bool, type_: str) -> None:
        """A batch of new tasks."""
        self.enqueue_tasks(self.new(2), group, priority, scope=scope, again=again, type_=type_)

    @rule(group=groups)
    def fill(self, group: str) -> None:
        """A batch of tasks of which none is special."""
        self.enqueue_tasks(self.new(4), group)

    @rule(group=groups, aside=flags)
    def enqueue_delayed(self, group: str, aside: bool) -> None:
        """A task that is not to run before a time."""
        self.enqueue_tasks(self.new(1), group, delay=3600.0, aside=aside)

    @rule(group=groups, pick=numbers, scope=scopes)
    def enqueue_duplicate(self, group: str, pick: int, scope: str) -> None:
        """An id that has come before, in any state of its task, from its sender or another."""
        if self.promise.tasks:
            known = sorted({task.message for task in self.promise.tasks.values()})
            self.enqueue_tasks([known[pick % len(known)]], group, scope=scope, again=True)

    def enqueue_tasks(
        self,
        ids: list[str],
        group: str,
        priority: float = 0.0,
        *,
        delay: float = 0.0,
        scope: str = SCOPES[0],
        aside: bool = False,
        again: bool = False,
        pool: str = "",
        expires: float = 0.0,
        type_: str = "t",
    ) -> None:
        """Take new tasks in, and check which are new."""
        facts: dict[str, Any] = {"priority": priority, "delay": delay, "steps_aside": aside}
        facts["expires"] = expires
        arrivals = [arrival(id_, group, scope, pool, type_, **facts) for id_ in ids]
        expected = [not self.promise.knows(id_, scope) for id_ in ids]
        answer = self.run(self.enqueuer.enqueue(arrivals))
        assert answer.taken == expected
        if again:
            assert not any(self.run(self.enqueuer.enqueue(arrivals)).taken)
        for n, id_ in enumerate(ids):
            if expected[n]:
                name = answer.renamed.get(n, id_)
                task = self.promise.enqueue(name, id_, scope, group, due=delay == 0, aside=aside)
                task.priority, task.pool, task.type = priority, pool, type_
                task.expires = expires > 0

    @rule()
    def deaths_get_old(self) -> None:
        """Every dead letter is older than the window: it keeps no id from anybody."""
        for id_ in self.raw.zrange(self.keys("dead"), 0, -1):
            self.raw.zadd(self.keys("dead"), {id_: 1})
            self.promise.tasks[id_.decode()].died_long_ago = True
