"""Runs go on: pieces of them are told, once or twice, late or at their end."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from groupflow.store.given import Claim
from groupflow.store.settlements import Complete, Proceed, Settlement
from tests.model.arrivals import Arrivals
from tests.model.claims import ClaimsAndSettles
from tests.model.machine import WORKERS, Daemon, daemons, named_groups, numbers


class Runs(Arrivals, ClaimsAndSettles):
    """Workers go on in their runs, and tell of it."""

    @rule(
        daemon=daemons,
        group=named_groups,
        pick=numbers,
        most=st.integers(1, 4),
        ends=st.booleans(),
        lost=st.integers(0, 2),
        more=st.integers(0, 3),
    )
    def proceed(  # noqa: PLR0917  what is drawn
        self, daemon: str, group: str, pick: int, most: int, ends: bool, lost: int, more: int
    ) -> None:
        """Some tasks of a run are done; it goes on, maybe with more, or ends.

        Some replies are lost.
        """
        one = self.working(daemon)
        if not any(one.runs.values()):  # or hardly any history would come to it
            self.fill(group)
            self.claim(one.name, "grouped", WORKERS, again=False, runs=True)
        runs = sorted(slot for slot, rest in one.runs.items() if rest)
        if not runs:
            return
        slot = runs[pick % len(runs)]
        rest, group = one.runs[slot], one.held[slot].task.group or ""
        if more:
            self.fill(group)  # so that there is something behind it
        whole = [one.held[slot], *rest]
        done = whole[: min(most, len(whole) if ends else len(rest))]
        following = None if ends else whole[len(done)]
        for number in range(1, min(lost, len(done) - 1) + 1):
            self._tell(one, self._proceed(whole, number, more))
        settlement = Proceed([Complete(each) for each in done], None)
        if following is not None:
            settlement = self._proceed(whole, len(done), more)
        further: list[Claim] = []
        for _ in range(1 + (lost > 1)):
            further = self._tell(one, settlement)
        for n, each in enumerate(done):
            if n:
                self.promise.go_on(group, each.fence)
            self.promise.tasks[each.task.id].state = "done"
        one.stale += done
        if following is None:
            del one.runs[slot], one.held[slot]
            self.promise.runs_of.pop(group, None)
            return
        self.promise.go_on(group, following.fence)
        one.held[slot] = following
        one.runs[slot] = [*whole[len(done) + 1 :], *further]
        self.promise.lengthen_run(group, [(each.task.id, each.fence) for each in further])

    @staticmethod
    def _proceed(whole: list[Claim], done: int, more: int) -> Proceed:
        """So many of a run are done, and it goes on, maybe with more."""
        settled = [Complete(each) for each in whole[:done]]
        return Proceed(settled, whole[done], more, len(whole) - done - 1, whole[-1].entry)

    def _tell(self, one: Daemon, settlement: Settlement) -> list[Claim]:
        """What the run has more now."""
        answer = self.run(one.claims["grouped"].exchange([settlement], []))
        assert answer.refused == []
        fence = int(self.raw.get(self.keys("fence")) or 0)
        self.promise.last_fence = max(self.promise.last_fence, fence)
        return list(answer.further.get(settlement.claim.slot, ()))
