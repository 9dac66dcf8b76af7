"""Daemons that don't know the types of tasks that they claim, and others that come to know them."""

from __future__ import annotations

from hypothesis.stateful import rule

from groupflow.store import settlements
from groupflow.store.clock import MICROSECONDS
from groupflow.store.scripts import Verb
from tests.model.machine import LEASE, Daemon, Machine, daemons, flags, numbers
from tests.model.promise import ModelTask

WITHIN = 3600.0  # seconds for which a type may be unknown


class Unknown(Machine):
    """What becomes of such tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.clocks: dict[str, bool] = {}  # by type that has one, whether it has run out

    @rule(daemon=daemons, pick=numbers, again=flags)
    def defer(self, daemon: str, pick: int, again: bool) -> None:
        """A daemon hands a task back, as it has no handler of its type."""
        one = self.daemons[daemon]
        if not one.held:
            return
        worker = sorted(one.held)[pick % len(one.held)]
        claim = one.let_go(worker)
        task = self.promise.tasks[claim.task.id]
        self.promise.runs_of.pop(task.group, None)
        one.runs.pop(worker, None)
        buried = settlements.Bury(claim, "nobody knew it", [])
        deferred = settlements.Defer(claim, WITHIN, buried)
        is_dead = self._defer(one, task)
        answer = self.run(one.claims("plain").exchange([deferred], []))
        assert [*answer.given_up] == [deferred] * is_dead
        assert [*answer.unknown] == [deferred] * task.is_unknown
        if again:
            assert self.run(one.claims("plain").exchange([deferred], [])).refused == []
        self._promote()

    def _defer(self, one: Daemon, task: ModelTask) -> bool:
        """What the promise makes of it; whether the task is dead."""
        if task.is_to_end:
            task.wait()
            return False
        others = [each for each in self.daemons.values() if each is not one and each.is_up]
        if any(task.type in each.types for each in others):
            self._release(task.type)
        elif self.clocks.setdefault(task.type, False):
            task.state, task.errors = "dead", len(b"[]")
            return True
        else:
            task.is_unknown = True
        task.state, task.is_due = "waiting" if task.group else "aside", False
        return False

    @rule(daemon=daemons, knows=flags)
    def announce(self, daemon: str, knows: bool) -> None:
        """A daemon says which types it knows."""
        one = self.daemons[daemon]
        if not one.is_up:
            return
        one.types = ["t", "never"] if knows else []
        self.run(one.sessions.tell({"lease": LEASE}, {}))  # by which the auditor knows old marks
        for type_ in one.types:
            self._release(type_)
        self._promote()

    @rule()
    def types_stay_unknown(self) -> None:
        """All clocks of types run out."""
        since = self.raw.time()[0] - WITHIN - 1
        for type_ in self.clocks:
            self.raw.zadd(self.keys("unknown"), {type_: since * MICROSECONDS}, xx=True)
            self.clocks[type_] = True

    def _release(self, type_: str) -> None:
        """A daemon knows the type: what waits for that is due."""
        self.clocks.pop(type_, None)
        for task in self.promise.tasks.values():
            if task.is_unknown and task.type == type_ and task.state in ("waiting", "aside"):
                task.state, task.is_due = "waiting", True

    def _promote(self) -> None:
        """Nothing else is due."""
        while self.run(self.client.run(Verb.PROMOTE, 2))[1] == 0:
            pass
