"""Calls whose replies are lost, or come behind the end of a lease, a session or the claiming."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupflow import App, Retry, Task
from groupflow.core.errors import SessionLost, StoreUnavailable
from groupflow.core.outcome import Advance
from groupflow.core.policy import Policy
from groupflow.core.retry import RetryPolicy
from groupflow.flow import dispatcher as dispatcher_module
from groupflow.flow import exchange as module
from groupflow.flow.dispatcher import READY_FOR
from groupflow.flow.settling import Ran, settlement_of
from groupflow.flow.workforce import Holding
from groupflow.operate.tasks import find_task
from groupflow.store.claims import Claims
from groupflow.store.settlements import Complete
from tests.deadlines import deadline
from tests.flow.crew import Crew, Gate, crew, in_order, noting, quick
from tests.store.bench import Bench, arrival
from tests.store.task_state import Bounded, letter, pass_time


@pytest.mark.parametrize(
    ("groups", "facts"), [(1, {}), (30, {}), (4, {"run": 12}), (4, {"batch": 12})]
)
async def test_they_cost_nothing(bench: Bench, groups: int, facts: dict[str, Any]) -> None:
    """Settlements and claims go into another call, and count once; some tasks fail once."""
    chance, ran, app = Random(groups), list[str](), App()

    async def handle(task: Task) -> Retry | None:
        await asyncio.sleep(0)
        if task.attempt == 1 and chance.random() < 0.05:
            return Retry(after=0)
        ran.append(task.id)
        return None

    async def batch(tasks: Any) -> list[Retry | None]:
        told: list[Retry | None] = []
        for task in tasks:
            told.append(await handle(task))
            if told[-1]:
                break
        return told + [None] * (len(tasks) - len(told))

    if "batch" in facts:
        app.batch_handler("t")(batch)
    else:
        app.handler("t")(handle)
    await bench.enqueue(*(arrival(f"t{n}", f"g{n % groups}") for n in range(150)))
    async with crew(bench, app, count=3, **facts) as made:
        made.claims.lose = {0} | {n for n in range(400) if chance.random() < 0.15}
        await made.until_done(150)
        await made.stop()
    assert in_order(ran, groups, 150)


def lease(made: Crew) -> None:
    made.holds_lease = False


def session(made: Crew) -> None:
    made.exchanger.close_session()


def claiming(made: Crew) -> None:
    made.dispatcher.stop_claiming()


End = Callable[[Crew], None]


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize(("groups", "run"), [(1, 1), (50, 1), (1, 8)])
@pytest.mark.parametrize("end", [lease, session, claiming])
async def test_what_comes_behind_an_end_does_not_begin(
    bench: Bench, end: End, groups: int, run: int, is_lost: bool
) -> None:
    """By an exchange, a hop or a run, with what was ready: it goes back, or with its session."""
    ran: list[str] = []
    await bench.enqueue(*(arrival(f"t{n}", f"g{n % groups}") for n in range(50)))
    async with crew(bench, noting(ran), run=run) as made:
        calls, begun = 0, list[int]()

        def meanwhile() -> None:
            nonlocal calls
            calls += 1
            if calls == 5:
                end(made)
                begun.append(len(ran))

        made.claims.meanwhile = meanwhile
        made.claims.lose = {4} if is_lost else set()
        await made.until(lambda: bool(begun) and (is_lost or end is session or not _runs(bench)))
        if end is session:
            await made.daemon.register()
            made.exchanger.open_session()
        if end is claiming:
            await made.stop()
            assert (bench.count("done"), _runs(bench)) == (len(ran), 0)
            assert len(ran) - begun[0] <= 1  # the one whose handler was running
            return
        if end is lease:
            assert len(ran) - begun[0] <= 1
            made.holds_lease = True
            made.exchanger.wake()
        await made.until_done(50)
        await made.stop()
    once = [*dict.fromkeys(ran)]  # what had no settlement accepted under its session ran again,
    assert in_order(once, groups, 50)
    assert len(ran) - len(once) <= (run * made.lost if end is session else 0)  # as after a crash


def _runs(bench: Bench) -> int:
    return bench.count("running_grouped")


async def test_a_refusal_is_told_and_the_worker_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session is over, as the store says: what it held is lost, and settled by nobody."""
    ran: list[str] = []
    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(20)))
    sound = Claims.hop

    async with crew(bench, noting(ran)) as made:

        async def refused(self: Claims, settlement: object) -> object:
            if made.claims.hops == 3:
                raise SessionLost("gone")
            return await sound(self, settlement)  # type: ignore[arg-type]

        monkeypatch.setattr(Claims, "hop", refused)
        await made.until_done(20)
        await made.stop()
    assert in_order(ran, 1, 20)


async def test_a_session_that_is_lost_takes_all_claims_along(bench: Bench) -> None:
    """Those that are ready, those in workers' hands, and those that are on their way."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(400)))
    bench.with_faults = True
    gate = Gate()
    async with crew(bench, quick(300, gate), count=4) as made:
        await made.until(lambda: gate.running == 4)
        made.exchanger.close_session()
        assert not made.dispatcher.ready
        lost = made.lost
        await made.daemon.register()
        made.exchanger.open_session()
        gate.opened.set()  # four of them settle what isn't theirs any more
        await made.until_done(400)
        await made.stop()
    assert lost
    assert made.lost == lost + 4
    assert _runs(bench) == 0


async def _lose_the_first(made: Crew) -> asyncio.Task[Any]:
    """A worker waits, and the reply of the exchange for it is lost."""
    made.claims.lose = {0}
    waits = await made.waiting("w-0")
    with pytest.raises(StoreUnavailable):
        await made.exchanger.run_once()
    assert _runs(made.bench) == 1
    return waits


@pytest.mark.parametrize("goes", ["retires", "stops"])
async def test_what_a_lost_reply_gave_is_found_out_where_no_worker_is_left(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, goes: str
) -> None:
    """It never began: handed over at the end of the session, it would count as a crash."""
    monkeypatch.setattr(dispatcher_module, "READY_FOR", READY_FOR)
    await bench.enqueue(arrival("t0", "a"))
    async with crew(bench, by_hand=True) as made:
        waits = await _lose_the_first(made)
        made.claims.lose = {0, 1}  # the next one is lost too
        if goes == "retires":
            made.dispatcher.retire({"w-0"})
            await waits
        else:
            made.dispatcher.stop_claiming()
        serving = asyncio.create_task(made.exchanger.run())
        await made.until(lambda: _runs(bench) == 0)
        assert await waits is None
        serving.cancel()
        await made.daemon.sessions.leave()
    (found,) = await (await bench.daemon("d2")).claim("grouped", "v")
    assert (found.task.id, found.task.crashes) == ("t0", 0)


@pytest.mark.parametrize("how", ["lease", "session"])
async def test_a_stop_ends_where_nothing_can_be_found_out(bench: Bench, how: str) -> None:
    """The store is away until the lease is over, or the session gone: others take it from there."""
    async with crew(bench) as made:
        made.claims.lose = set(range(10**4))
        await made.until(lambda: bool(made.claims.exchanges))
        made.dispatcher.stop_claiming()
        await made.until(lambda: len(made.claims.exchanges) > 5)  # it is asked again and again
        assert not made.running[0].done()
        (lease if how == "lease" else session)(made)
        async with asyncio.timeout(deadline()):
            await made.running[0]


async def test_the_unsure_are_asked_once_the_lease_is_renewed(bench: Bench) -> None:
    """No call comes for them; and without the lease none is asked."""
    ran: list[str] = []
    await bench.enqueue(arrival("t0", "a"))
    async with crew(bench, noting(ran)) as made:
        made.claims.lose = {0}
        made.claims.meanwhile = lambda: setattr(made, "holds_lease", False)
        await made.until(lambda: not made.holds_lease)
        made.claims.meanwhile = lambda: None
        asked = len(made.claims.exchanges)
        made.exchanger.stir()
        await asyncio.sleep(0)
        assert len(made.claims.exchanges) == asked
        made.holds_lease = True
        await made.until_done(1)
        await made.stop()
    assert ran == ["t0"]


async def test_a_claim_that_ran_late_comes_to_light_with_the_next_renewal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel sends again what was written on a connection that has long been given up."""
    monkeypatch.setattr(module, "LATE", 0.0)
    ran: list[str] = []
    async with crew(bench, noting(ran)) as made:
        made.claims.lose = {0}
        holding = Holding({"grouped": made.exchanger}, list, lambda: None)
        await made.until(lambda: len(made.claims.exchanges) == 2)
        (slot,) = made.claims.exchanges[0].asked
        await bench.enqueue(arrival("t0", "a"))
        answer = await Claims.exchange(made.claims, [], [slot])
        assert [claim.task.id for claim in answer.claims] == ["t0"]
        assert ran == []
        holding.claimable(0, 0)
        await made.until_done(1)
        assert ran == ["t0"]
        holding.claimable(0, 0)  # by now it would have come
        assert not made.exchanger._slots.unsure
        await made.stop()


class TestNoRoom:
    """An advance for which there is no room, on its way through an exchange."""

    POLICY = Policy(RetryPolicy(2, -60.0, 0.0), "hold", parks=False, stage_order="hold")

    async def advance(self, made: Crew) -> None:
        """A worker gets a task, comes to its next stage, and settles that."""
        slot = await made.next("w-0")
        outcome = Advance("two", "x" * 100)
        settlement = settlement_of(slot.held, outcome, self.POLICY, Ran(0.0, 0.0, "d1"))
        waits = await made.waiting("w-0", slot, settlement)
        try:
            await made.exchanger.run_once()
        finally:
            waits.cancel()

    async def test_it_is_tried_again_and_dies_by_the_policy(self, bench: Bench) -> None:
        await bench.enqueue(arrival("a0", "a"))
        async with crew(bench, by_hand=True) as made:
            made.claims._carrying = Bounded(50, 50)
            settled = made.dispatcher.measures.types.of("t").settled
            with capture_logs() as logs:
                await self.advance(made)
            assert (settled["retry"], settled["advance"]) == (1, 0)
            [line] = [each for each in logs if each["event"] == "task.no_room_to_carry"]
            assert (line["task"], line["tenant"], line["outcome"]) == ("a0", "42", "retry")
            found = await find_task(bench.client, "a0")
            assert found is not None
            assert (found.state, found.attempt, found.stage) == ("delayed", 2, None)
            assert "no room" in found.errors[-1]["message"]
            await pass_time(bench)
            made.exchanger.wake()
            await self.advance(made)
            assert (settled["retry"], settled["bury"]) == (1, 1)
        dead = await letter(bench, "a0")
        assert "no room for the 102 bytes" in dead.reason
        assert [each["attempt"] for each in dead.errors] == [1, 2]
        bench.events.clear()

    @pytest.mark.parametrize(("room", "expected"), [(10_000, "advanced"), (50, "retried")])
    async def test_a_lost_reply_changes_no_decision(
        self, bench: Bench, room: int, expected: str
    ) -> None:
        """What was accepted stays so, though there is no room by then; and the other way round."""
        await bench.enqueue(arrival("a0", "a"), arrival("b0", "b"))
        async with crew(bench, by_hand=True) as made:
            made.claims._carrying = Bounded(room, room)
            made.claims.lose = {1}
            with pytest.raises(StoreUnavailable):
                await self.advance(made)
            written = {name: bench.count(name) for name in ("advanced", "retried", "carried_bytes")}
            assert written[expected] == 1
            made.claims._carrying = Bounded(10_050 - room, 10_050 - room)
            await made.exchanger.run_once()
            assert {name: bench.count(name) for name in written} == written
        bench.events.clear()


async def test_what_the_store_refuses_is_lost(bench: Bench) -> None:
    await bench.enqueue(arrival("t0", "a"))
    bench.with_faults = True
    async with crew(bench, by_hand=True) as made:
        slot = await made.next("w-0")
        bench.raw.delete(bench.keys("worker", "d1"))
        await made.waiting("w-0", slot, Complete(slot.held))
        with capture_logs() as logs:
            await made.exchanger.run_once()
        assert [(log["event"], log["slot"]) for log in logs] == [("claim.lost", slot.name)]
    await bench.close()
