"""Runs go on: pieces of them are told, once or twice, late or at their end."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from groupflow.store.given import Claim
from groupflow.store.settlements import Proceed
from tests.model.arrivals import Arrivals
from tests.model.claims import ClaimsAndSettles, counts
from tests.model.machine import WORKERS, Daemon, complete, daemons, flags, named_groups, numbers

losses = st.integers(0, 2)


class Runs(Arrivals, ClaimsAndSettles):
    """Workers go on in their runs, and tell of it."""

    @rule(daemon=daemons, group=named_groups, pick=numbers, most=counts, ends=flags, lost=losses)
    def proceed(  # noqa: PLR0917  what is drawn
        self, daemon: str, group: str, pick: int, most: int, ends: bool, lost: int
    ) -> None:
        """Some tasks of a run are done; it goes on, or ends. Some replies are lost."""
        one = self.working(daemon)
        if not any(one.runs.values()):  # or hardly any history would come to it
            self.fill(group)
            self.claim(one.name, "grouped", WORKERS, again=False, runs=True)
        runs = sorted(slot for slot, rest in one.runs.items() if rest)
        if not runs:
            return
        slot = runs[pick % len(runs)]
        rest, group = one.runs[slot], one.held[slot].task.group or ""
        whole = [one.held[slot], *rest]
        done = whole[: min(most, len(whole) if ends else len(rest))]
        following = None if ends else whole[len(done)]
        for number in range(1, min(lost, len(done) - 1) + 1):
            self._tell(one, whole[:number], whole[number])
        for _ in range(1 + (lost > 1)):
            self._tell(one, done, following)
        for n, each in enumerate(done):
            if n:
                self.promise.go_on(group, each.fence)
            task = self.promise.tasks[each.task.id]
            task.state, task.is_asked = "done", False
        one.stale += done
        if following is None:
            del one.runs[slot], one.held[slot]
            self.promise.runs_of.pop(group, None)
            return
        self.promise.go_on(group, following.fence)
        one.held[slot] = following
        one.runs[slot] = whole[len(done) + 1 :]

    def _tell(self, one: Daemon, done: list[Claim], following: Claim | None) -> None:
        told = Proceed([complete(each) for each in done], following)
        answer = self.run(one.claims("grouped").exchange([told], []))
        assert answer.refused == []
        fence = int(self.raw.get(self.keys("fence")) or 0)
        self.promise.last_fence = max(self.promise.last_fence, fence)
