"""The real scripts against the promise: random histories, on Redis and on Valkey.

Several daemons with several workers enqueue, claim, settle in every way, crash, lose their lease
and come back, while groups are paused and dead letters redriven. Time is moved by hand: a lease is
made to have run out, a delay to be over. Any call may be made a second time, as after a lost reply.
What a server may lose is told in tests/store/test_epochs.py.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, run_state_machine_as_test

from groupflow.core.events import Told
from groupflow.store.scripts import Verb
from tests.history.stored import Stored
from tests.model.bursts import Bursts
from tests.model.expiry import Expiry
from tests.model.lives import Lives
from tests.model.machine import DAEMONS, NAMED, PULLERS, WORKERS
from tests.model.people import TimeAndPeople
from tests.model.pulling import Pulls
from tests.model.runs import Runs
from tests.model.unknown import Unknown

TOTALS = {"dead": "buried"} | {
    how: how for how in ("done", "cancelled", "expired", "superseded", "drained")
}
"""How the store's totals call ends; it counts what is dropped of dead letters too."""


class StoreMachine(Runs, Pulls, Bursts, Expiry, Lives, TimeAndPeople, Unknown):
    """All rules, what must hold after every step, and the end that every history must come to."""

    @initialize(filled=st.sets(st.sampled_from(NAMED), max_size=2))
    def there_is_work(self, filled: set[str]) -> None:
        """Groups have tasks, and daemons work: or half of a history would only wait for that."""
        for group in sorted(filled):
            self.fill(group)
        for daemon in DAEMONS[:2]:
            self.start(daemon, again=False)

    def teardown(self) -> None:
        """Drain what is left, and see that nothing but totals remains."""
        try:
            self._drain()
        finally:
            self.run(self.bench.close())
            self.runner.close()

    @invariant()
    def structure_is_sound(self) -> None:
        """Each group in one state, each task in one place, the counters right."""
        # Where fewer may run than did, more do until they end: claims are judged one by one.
        assert [each for each in self.bench.audit() if "more than may" not in each.text] == []

    @invariant()
    def totals_agree(self) -> None:
        """The status says what the promise says."""
        self.hear_of_drains()
        status = self.run(self.bench.status())
        promise = self.promise
        assert status.queued_plain == promise.count("waiting", "aside", grouped=False)
        assert status.queued_grouped == promise.count("waiting", "aside", grouped=True)
        assert status.running_plain == promise.count("running", grouped=False)
        assert status.running_grouped == promise.count("running", grouped=True)
        dead = promise.count("dead", grouped=False) + promise.count("dead", grouped=True)
        assert status.dead == dead
        assert status.superseded_total == promise.count("superseded", grouped=True)
        assert status.carried_bytes == promise.carried()
        # What stands where claims look, or waits for its tenant, asks for its type when it is met.
        least = self.without_due({head.id for head in promise.claimable_heads()})
        most = promise.claimable_groups(of_all_types=True)
        assert promise.all_paused or len(least) <= status.ready <= len(most)

    @invariant()
    def ends_are_told(self) -> None:
        """Each end is told, once."""
        told = Counter(
            Told.of(entry).event for entry in self.raw.lrange(self.keys("outbox"), 0, -1)
        )
        totals = {name.decode(): int(n) for name, n in self.raw.hgetall(self.keys("count")).items()}
        for event, total in TOTALS.items():
            assert told[event] == totals.get(total, 0), event

    @invariant()
    def states_are_told(self) -> None:
        """`why` agrees with the promise on whether a group runs, is held, or may be claimed."""
        self.hear_of_drains()
        for group in ("a", "c|||d", "two", "paced"):
            why = self.run(self.group_verbs.why(group))
            state = why.state
            assert why.running == self.promise.running(group)
            if why.running:
                assert state == "running"
            elif group in self.promise.claimable_groups():
                assert state == "ready"
            elif group not in self.promise.claimable_groups(of_all_types=True):
                assert state not in ("running", "ready")

    def _drain(self) -> None:
        self.pause_all(on=False)
        for group in NAMED:
            self.resume(group)
        self._end_all_deaths()
        for daemon in DAEMONS:
            self.leave(daemon)
        for name in PULLERS:
            self.hand_back_pulled(name, 0)
        self.start("d0", again=False)
        for _ in range(10_000):
            self.time_passes()
            self.claim("d0", "plain", WORKERS, again=False)
            self.claim("d0", "grouped", WORKERS, again=False)
            self.pull("anna", 6, again=False)
            if not (self.daemons["d0"].held or self.pullers["anna"].held):
                break
            while self.pullers["anna"].held:
                self.settle_pulled("anna", 0, "complete", option=False)
            while self.daemons["d0"].held:
                self.settle("d0", 0, "complete", option=False, again=False)
        self.leave("d0")
        self.hand_back_pulled("anna", 0)
        over = ("done", "dropped", "superseded", "cancelled", "expired")
        waiting = [t.id for t in self.promise.tasks.values() if t.state not in over]
        assert waiting == [], "some tasks could never be claimed"
        self.run(self.client.run(Verb.PROMOTE, 1000, "tell"))  # what people did, for a log
        assert Stored(self.raw, [self.keys]).leftovers() == []

    def _end_all_deaths(self) -> None:
        while any(t.state == "dead" for t in self.promise.tasks.values()):
            self.end_a_death(0, drop=True, again=False)


@pytest.mark.timeout(600)  # a failure is made smaller for up to 300 s, by hypothesis
@pytest.mark.parametrize("limited", [False, True], ids=["free", "limited"])
@pytest.mark.parametrize("order", ["oldest", "fair", "tenants"])
def test_store_keeps_the_promise(store_server: Any, order: str, limited: bool) -> None:
    """Random histories end as promised."""

    class Machine(StoreMachine):
        pass

    Machine.url = store_server.url.removesuffix("/0") + "/1"  # the others' namespaces are in 0
    Machine.order = order
    Machine.limited = limited
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=int(os.environ.get("GROUPFLOW_MODEL_EXAMPLES", "8")),
            stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
        ),
    )
