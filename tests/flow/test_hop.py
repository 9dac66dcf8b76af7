"""A hot group: its slot goes on with its next task, in one small call, and nothing is lost."""

from __future__ import annotations

import asyncio

import pytest

from groupflow import App, Task
from groupflow.core.errors import SessionLost
from groupflow.flow import prefetch
from groupflow.store import claims as claims_module
from groupflow.store.claims import Claims
from tests.flow.hot import crew
from tests.store.bench import Bench, arrival


def _app(ran: list[str]) -> App:
    app = App()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)

    return app


async def test_a_hot_group_goes_on_by_itself(bench: Bench) -> None:
    """One small call a task, but for the first ones."""
    ran: list[str] = []
    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(200)))
    async with crew(bench, _app(ran), count=4) as made:
        await made.until_done(200)
        assert ran == [f"t{n}" for n in range(200)]
        assert made.claims.hopped > 150
        assert made.claims.exchanged < 40
        await made.stop()
    assert made.exchanger.held == 0


async def test_who_got_its_group_again_hops(bench: Bench) -> None:
    """Not behind the first task, nor where it got another group's."""
    ran: list[str] = []
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(5)))
    async with crew(bench, _app(ran)) as made:
        await made.until_done(5)
        assert made.claims.hopped == 0
        await bench.enqueue(*(arrival(f"h{n}", "hot") for n in range(3)))
        made.exchanger.wake()
        await made.until_done(8)
        await made.stop()
    assert ran[5:] == ["h0", "h1", "h2"]
    assert made.claims.hopped in {1, 2}  # from h1 to h2, and maybe from there to nothing


@pytest.mark.parametrize(("beside", "hops"), [(0.0, 2), (1000.0, 1)])
async def test_nobody_hops_for_a_while_where_others_were_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, beside: float, hops: int
) -> None:
    monkeypatch.setattr(claims_module, "BESIDE", beside)
    monkeypatch.setattr(prefetch, "MOST", 0)
    app, ran = App(), list[str]()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)
        await asyncio.sleep(0.05)

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(3)))
    await bench.enqueue(arrival("other", "other"))
    async with crew(bench, app) as made:
        await made.until_done(4)
        await made.stop()
    assert ran == ["t0", "t1", "t2", "other"]
    assert made.claims.hopped == hops


@pytest.mark.parametrize("groups", [1, 2, 7])
async def test_lost_replies_cost_nothing(bench: Bench, groups: int) -> None:
    ran: list[str] = []
    await bench.enqueue(*(arrival(f"t{n}", f"g{n % groups}") for n in range(140)))
    async with crew(bench, _app(ran), count=3) as made:
        made.claims.lose = set(range(1, 200, 9))
        await made.until_done(140)
        await made.stop()
    assert sorted(ran) == sorted(f"t{n}" for n in range(140))
    for group in range(groups):
        numbers = [int(id_[1:]) for id_ in ran if int(id_[1:]) % groups == group]
        assert numbers == sorted(numbers)


async def test_a_stop_meanwhile_hands_the_next_one_back(bench: Bench) -> None:
    ran: list[str] = []
    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(50)))
    async with crew(bench, _app(ran)) as made:

        def stop() -> None:
            if made.claims.hopped == 5:
                made.dispatcher.stop_claiming()

        made.claims.meanwhile = stop
        await asyncio.gather(*made.running)
    assert bench.count("done") == len(ran) < 50
    assert bench.count("running_grouped") == 0
    assert bench.lane("hot")[0] == f"t{len(ran)}"


async def test_a_session_that_goes_meanwhile_takes_the_next_one_along(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim that comes back is somebody else's by then: it is not begun."""
    ran: list[str] = []
    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(50)))
    async with crew(bench, _app(ran)) as made:

        def close() -> None:
            if made.claims.hopped == 5:
                made.exchanger.close_session()

        made.claims.meanwhile = close
        await made.until(lambda: made.dispatcher.measures.lost > 0)
        assert len(ran) == bench.count("done")
        await made.daemon.register()
        made.exchanger.open_session()
        await made.until_done(50)
        await made.stop()
    assert ran == [f"t{n}" for n in range(50)]


async def test_a_lease_that_ends_meanwhile_hands_the_next_one_back(bench: Bench) -> None:
    ran: list[str] = []
    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(50)))
    async with crew(bench, _app(ran)) as made:

        def end() -> None:
            if made.claims.hopped == 5:
                made.holds_lease = False

        made.claims.meanwhile = end
        await made.until(lambda: not made.holds_lease and bench.count("running_grouped") == 0)
        assert len(ran) == bench.count("done") < 50
        made.holds_lease = True
        made.exchanger.wake()
        await made.until_done(50)
        await made.stop()
    assert ran == [f"t{n}" for n in range(50)]


async def test_a_refusal_is_told_and_the_worker_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session is over, as the store says: what it held is lost, and settled by nobody."""
    ran: list[str] = []
    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(20)))
    sound = Claims.hop

    async with crew(bench, _app(ran)) as made:

        async def refused(self: Claims, settlement: object) -> object:
            if made.claims.hopped == 3:
                raise SessionLost("gone")
            return await sound(self, settlement)  # type: ignore[arg-type]

        monkeypatch.setattr(Claims, "hop", refused)
        await made.until_done(20)
        await made.stop()
    assert ran == [f"t{n}" for n in range(20)]
