"""Time, and what people do."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from groupflow.core.limits import HandLimit, Limited
from groupflow.operate.cancelling import Several, every_step
from groupflow.operate.groups import ALL
from groupflow.operate.limits import LimitsByHand
from groupflow.operate.tasks import end_cancelled
from groupflow.store.cancelling import Named
from groupflow.store.history import rotate_history, sweep_renamed
from groupflow.store.keys import split_entry
from groupflow.store.scripts import Verb
from tests.model.machine import Machine, flags, named_groups, numbers
from tests.store.story import move_time

HOUR = 3600.0
LONG = 1e6  # seconds, beyond all that a history waits for


class TimeAndPeople(Machine):
    """Time passes; groups are paused, dead letters redriven, tasks dropped."""

    @rule()
    def time_passes(self) -> None:
        """Every delay is over."""
        for entry in self.raw.zrange(self.keys("delayed"), 0, -1):
            self.raw.zadd(self.keys("delayed"), {entry: 1})
            self.raw.hset(self.keys("task_state", split_entry(entry)[1]), "due", 1)
        for key in self.raw.scan_iter(self.keys("lane", "*")):
            for entry in self.raw.lrange(key, 0, -1):
                task_state = self.keys("task_state", split_entry(entry)[1])
                if self.raw.hexists(task_state, "due"):
                    self.raw.hset(task_state, "due", 1)
        for id_ in self.raw.zrange(self.keys("late"), 0, -1):
            self.raw.zadd(self.keys("late"), {id_: 1})
        self._limits_end()
        while self.run(self.client.run(Verb.PROMOTE, 2))[0]:
            pass
        for task in self.promise.tasks.values():
            if task.state in ("waiting", "aside"):
                task.state, task.is_due = "waiting", True

    def _limits_end(self) -> None:
        """All that rates and handlers held back may start."""
        move_time(self.bench, LONG)
        for whose, text in self.raw.hgetall(self.keys("by_hand")).items():
            self.raw.hset(self.keys("by_hand"), whose, b"%016d" % 1 + text[16:])
            self.raw.zadd(self.keys("by_hand_ends"), {whose: 1})
        self.promise.hands.clear()
        self.promise.few_by_hand = self.promise.type_by_hand = None
        self.promise.closed.clear()
        self.promise.closed_tenants.clear()
        self.promise.starts.clear()
        self.promise.starts_of.clear()
        self.promise.starts_of_type.clear()

    @rule(group=named_groups)
    def pause(self, group: str) -> None:
        """An operator holds a group."""
        assert self.run(self.group_verbs.pause(group, "me")) == (group not in self.promise.paused)
        self.promise.paused.add(group)

    @rule(group=named_groups)
    def resume(self, group: str) -> None:
        """An operator lets a group go on."""
        assert self.run(self.group_verbs.resume(group)) == (group in self.promise.paused)
        self.promise.paused.discard(group)

    @rule(group=named_groups, most=st.integers(0, 3), again=flags)
    def limit_group(self, group: str, most: int, again: bool) -> None:
        """An operator limits a group by hand, or ends that."""
        self._limit("group", group, most or None, self.promise.hands.pop(group, None), again=again)
        if most:
            self.promise.hands[group] = most

    @rule(most=st.integers(-1, 5), again=flags)
    def limit_tenant(self, most: int, again: bool) -> None:
        """The same of a tenant, all of which may be lifted."""
        if not self.limited:  # what is ready would come under it as claims meet it
            return
        now = most if most >= 0 else None
        self._limit("tenant", "few", now, self.promise.few_by_hand, again=again)
        self.promise.few_by_hand = now

    @rule(most=st.integers(-1, 4), again=flags)
    def limit_type(self, most: int, again: bool) -> None:
        """The same of a type."""
        if not self.limited:
            return
        now = most if most >= 0 else None
        self._limit("type", "v", now, self.promise.type_by_hand, again=again)
        self.promise.type_by_hand = now

    def _limit(
        self, kind: Limited, whose: str, most: int | None, before: int | None, *, again: bool
    ) -> None:
        by_hand = LimitsByHand(self.bench.namespace)
        if most is None:
            assert self.run(by_hand.end(kind, whose, "me")) == (before is not None)
            return
        limit = HandLimit(kind, whose, most)
        self.twice(lambda: by_hand.begin(limit, "me", HOUR), again=again)

    @rule(on=flags)
    def pause_all(self, on: bool) -> None:
        """An operator holds everything, or lets it go on."""
        if on:
            self.run(self.group_verbs.pause(ALL, "me"))
        else:
            self.run(self.group_verbs.resume(ALL))
        self.promise.all_paused = on

    @rule(pick=numbers, drop=flags, again=flags)
    def end_a_death(self, pick: int, drop: bool, again: bool) -> None:
        """An operator redrives a dead letter or drops it."""
        dead = sorted(t.id for t in self.promise.tasks.values() if t.state == "dead")
        if not dead:
            return
        task = self.promise.tasks[dead[pick % len(dead)]]
        letter = self.run(self.letters.find(task.id))
        assert letter is not None
        act = self.letters.drop if drop else self.letters.redrive
        assert self.twice(lambda: act(letter), again=again) == (not again)
        if drop:
            task.state, task.died_long_ago = "dropped", False
            self.promise.unpark(task)
        else:
            self.promise.redrive(task)

    @rule(pick=numbers, drop=flags, again=flags)
    def act_on_a_waiting_task(self, pick: int, drop: bool, again: bool) -> None:
        """An operator drops any task that waits, or has one that is delayed run now."""
        if not self.promise.tasks:
            return
        task = self.promise.tasks[sorted(self.promise.tasks)[pick % len(self.promise.tasks)]]
        waits = task.state in ("waiting", "aside")
        act = self.waiting.drop if drop else self.waiting.run_now
        left = self.twice(lambda: act(task.id), again=again)
        if not waits:
            assert left == {"running": "running", "dead": "dead"}.get(task.state, "over")
        elif drop and self.promise.is_of_run(task):
            assert left == "running"
        elif drop:
            task.state = "dropped"
            assert left == ("over" if again else None)
        else:
            assert left == ("due" if task.is_due or again else None)
            task.is_hurried = task.is_newest and (task.is_hurried or not task.is_due)
            task.state, task.is_due = "waiting", True

    @rule(pick=numbers, again=flags)
    def cancel(self, pick: int, again: bool) -> None:
        """An operator cancels any task: one that runs ends where it would wait again."""
        tasks = [t for t in self.promise.tasks.values() if not self.promise.is_of_run(t)]
        if not tasks:
            return
        task = sorted(tasks, key=lambda each: each.id)[pick % len(tasks)]
        verdict = self.twice(lambda: self.waiting.cancel(task.id, "me"), again=again)
        if task.state == "running":
            task.is_asked = True
        elif task.state in ("waiting", "aside"):
            task.state = "cancelled"
        assert verdict == ("requested" if task.is_asked else task.state)

    @rule(pick=numbers, by_type=flags, again=flags)
    def cancel_all(self, pick: int, by_type: bool, again: bool) -> None:
        """The same of all tasks of one's type, or of its group."""
        if not self.promise.tasks:
            return
        one = self.promise.tasks[sorted(self.promise.tasks)[pick % len(self.promise.tasks)]]
        meant = Several(type=one.type) if by_type else Several(group=one.group or "none")
        kind, name = ("type", meant.type) if by_type else ("group", meant.group)
        alike = [task for task in self.promise.tasks.values() if getattr(task, kind) == name]
        if any(task.group in self.promise.runs_of for task in alike if task.state == "waiting"):
            return

        async def cancel() -> int:
            steps = every_step(self.bench.namespace, meant, "me")
            return sum([each.waiting async for each in steps])

        for _ in range(1 + again):  # the second time what tells that the group is drained, if any
            alike = [task for task in self.promise.tasks.values() if getattr(task, kind) == name]
            waiting = [task for task in alike if task.state in ("waiting", "aside")]
            assert self.run(cancel()) == len(waiting)
            for task in alike:
                task.is_asked = task.is_asked or task.state == "running"
            for task in waiting:
                task.state = "cancelled"
            self.hear_of_drains()

    @rule(pick=numbers, again=flags)
    def cancel_by_message(self, pick: int, again: bool) -> None:
        """A publisher cancels a task by its message's id: of its own the one that is there."""
        known = sorted({(task.message, task.scope) for task in self.promise.tasks.values()})
        if not known:
            return
        named = Named(*known[pick % len(known)])
        own = [t for t in self.promise.tasks.values() if (t.message, t.scope) == named]
        there = [task for task in own if task.state in ("waiting", "aside", "running")]
        if any(self.promise.is_of_run(task) for task in there):
            return
        [found] = self.twice(lambda: self.enqueuer.cancel([named]), again=again)
        assert found.verdict == ("requested" if there else "over")
        for task in there:
            assert (found.id, found.group) == (task.id, task.group)
            is_gone = self.run(end_cancelled(self.client, found.id, found.group))
            assert is_gone == (task.state != "running")
            task.is_asked = task.state == "running"
            task.state = "running" if task.is_asked else "cancelled"

    @rule()
    def rotate(self) -> None:
        """The history rolls over; nothing within the window is forgotten."""
        self.run(rotate_history(self.client, keep=3600.0, size=1))
        self.run(sweep_renamed(self.client))
