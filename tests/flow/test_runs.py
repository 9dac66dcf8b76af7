"""A run: one worker runs tasks of a group one after another, and its settles travel behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from groupflow import Advance, App, Dead, Done, Retry, Task
from groupflow.flow import slots as module
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.settlements import Proceed
from tests.deadlines import deadline
from tests.flow.crew import Crew, crew
from tests.store.bench import Bench, arrival
from tests.store.task_state import letter


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of runs, which goes on as it is read: else a slow machine ends them."""
    now = [0.0]

    def read() -> float:
        now[0] += module.PACE
        return now[0]

    monkeypatch.setattr(module, "monotonic", read)
    return now


async def _is_told(made: Crew) -> None:
    """From a run's second task on, of eight: what is done is told, and answered, before it ends."""
    told = made.claims.told
    if len(made.ran) % 8 > 1:
        await made.until(lambda: made.claims.told > told and made.exchanger.is_settled)


async def test_what_is_done_is_told_while_the_next_one_runs(bench: Bench) -> None:
    """However long that takes: a crash then repeats none of what was done before."""
    may_end = asyncio.Event()

    async def handle(task: Task) -> None:
        if task.id == "t3":
            await may_end.wait()

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(8)))
    async with crew(bench, handle, run=8) as made:
        await made.until_done(3)
        assert bench.lane("hot") == ["t4", "t5", "t6", "t7"]
        may_end.set()
        await made.finish(8)
    assert made.ran == [f"t{n}" for n in range(8)]


async def test_a_run_that_ends_goes_on_as_a_new_claim(bench: Bench) -> None:
    async def handle(_: Task) -> None:
        await _is_told(made)

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(40)))
    async with crew(bench, handle, run=8) as made:
        await made.finish(40)
    assert made.ran == [f"t{n}" for n in range(40)]
    assert sum(made.came()) == 5
    assert made.dispatcher.measures.claimed == 40


async def test_a_run_ends_where_another_group_waits(bench: Bench) -> None:
    """With what it has in hand: one that comes has its turn then."""
    came = list[int]()

    async def handle(_: Task) -> None:
        if came:
            return
        await _is_told(made)
        if len(made.ran) == 20:
            await bench.enqueue(arrival("other", "other", priority=3600.0))
            came.append(len(made.ran))

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(40)))
    async with crew(bench, handle, run=8) as made:
        await made.finish(41)
    assert made.ran.index("other") - came[0] <= 8
    assert [id_ for id_ in made.ran if id_ != "other"] == [f"t{n}" for n in range(40)]


@pytest.mark.parametrize("comes", [True, False])
async def test_a_run_whose_session_ends_as_it_is_told_keeps_no_worker(
    bench: Bench, *, comes: bool
) -> None:
    """It ends here while the store's answer is on its way: nothing is written, and that is said."""
    may_end = asyncio.Event()

    async def handle(task: Task) -> None:
        made.claims.may_answer.clear()
        if task.id == "t2":
            await may_end.wait()

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(3)))
    async with crew(bench, handle, run=8) as made:
        await made.until(lambda: made.claims.told > 0)
        may_end.set()
        await made.until(lambda: not made.workers[0].is_busy)
        made.exchanger.close_session()
        if not comes:
            made.claims.lose |= {*range(made.claims.calls)}
        made.claims.may_answer.set()
        made.exchanger.open_session()
        made.dispatcher.retire({"w-0"})
        await asyncio.wait_for(made.running[0], deadline())
        assert made.dispatcher.measures.lost == 1
    bench.events.clear()


async def test_a_run_ends_with_its_time(bench: Bench, now: list[float]) -> None:
    async def handle(_: Task) -> None:
        now[0] += 1.5

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(8)))
    async with crew(bench, handle, run=8) as made:
        await made.finish(8)
        told = [each for one in made.claims.exchanges for each in one.settled]
    assert made.ran == [f"t{n}" for n in range(8)]
    assert max(len(each.done) for each in told if isinstance(each, Proceed)) <= 3


async def test_a_run_ends_where_its_rule_has_none_any_more(bench: Bench, now: list[float]) -> None:
    """A reload comes while it goes on; from then on, each claim is of one task."""

    async def handle(task: Task) -> None:
        now[0] += 1.0
        if task.id == "t9":
            made.exchanger.adopt({})
        await made.until(lambda: made.exchanger.is_settled)  # what is done before is told meanwhile

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(40)))
    async with crew(bench, handle, run=8) as made:
        await made.finish(40)
    assert made.ran == [f"t{n}" for n in range(40)]
    assert sum(made.came()) == 3 + 28  # a run is over in four seconds
    assert not bench.raw.exists(bench.keys("runs"))


# A batch: one call takes tasks of a run, in order, and says what became of each.


def _arrival(id_: str, type_: str = "t", body: bytes = b"{}") -> Arrival:
    return Arrival(id_, Envelope(type_, "hot", "42", "rule", {}, body))


def _names(*numbers: int) -> list[str]:
    return [f"t{n}" for n in numbers]


async def _run(bench: Bench, app: App, *arrivals: Arrival) -> list[str]:
    """Run all of these to their ends; the ids of the dead ones."""
    await bench.enqueue(*arrivals)

    def dead() -> list[str]:
        found: Any = bench.raw.zrange(bench.keys("dead"), 0, -1)
        return [id_.decode() for id_ in found]

    async with crew(bench, app, batch=10) as made:
        await made.until(lambda: bench.count("done") + len(dead()) == len(arrivals))
        await made.stop()
    return dead()


CALLS: list[Any] = [
    # As many as the rule and the handler say.
    (8, {}, [range(8), range(8, 12)], []),
    (100, {}, [range(10), range(10, 12)], []),
    # Those in front of a failure are done, it is settled, those behind go back and come again.
    (4, {2: Retry(after=0)}, [range(4), [2], range(3, 7), range(7, 11), [11]], []),
    (6, {2: Advance("second")}, [range(6), [2], range(3, 9), range(9, 12)], []),
    (6, {2: Dead("no such row")}, [range(6), range(3, 9), range(9, 12)], [2]),
    (6, {2: "nonsense", 4: "nonsense"}, [range(6), range(3, 9), range(5, 11), [11]], [2, 4]),
    # One outcome is for the first: what failed may be any, so its next attempt is its alone.
    (6, {None: Retry(after=0)}, [range(6), [0], range(1, 7), range(7, 12)], []),
]


@pytest.mark.parametrize(("size", "answers", "expected", "dead"), CALLS)
async def test_what_each_call_gets(
    bench: Bench, size: int, answers: dict[Any, Any], expected: list[Any], dead: list[int]
) -> None:
    calls, app = list[list[str]](), App()

    @app.batch_handler("t", size=size)
    async def handle(tasks: Sequence[Task]) -> Any:
        calls.append([task.id for task in tasks])
        if None in answers and len(calls) == 1:
            return answers[None]
        return [
            answers.get(int(task.id[1:])) if task.attempt == 1 and task.stage is None else None
            for task in tasks
        ]

    assert await _run(bench, app, *(arrival(f"t{n}", "hot") for n in range(12))) == _names(*dead)
    assert calls == [_names(*call) for call in expected]


async def test_an_answer_of_another_length_is_none(bench: Bench) -> None:
    app = App()

    @app.batch_handler("t")
    def handle(tasks: Sequence[Task]) -> list[None]:
        return [None]

    # The last one alone had one answer.
    dead = await _run(bench, app, *(arrival(f"t{n}", "hot") for n in range(3)))
    assert dead == ["t0", "t1"]
    reason = (await letter(bench, "t0")).reason
    assert "answers for each of its 3 tasks, and not for 1" in reason


class Rows(BaseModel):
    """A body that says which row it is."""

    row: int


async def test_a_body_that_does_not_fit_ends_the_batch_in_front_of_it(bench: Bench) -> None:
    seen: list[list[int]] = []
    app = App()

    @app.batch_handler("t", model=Rows)
    async def handle(tasks: Sequence[Task], bodies: Sequence[Rows]) -> None:
        assert len(tasks) == len(bodies)
        seen.append([body.row for body in bodies])

    bodies = [b'{"row": %d}' % n if n != 2 else b'{"row": "x"}' for n in range(5)]
    arrivals = [_arrival(f"t{n}", body=body) for n, body in enumerate(bodies)]
    assert await _run(bench, app, *arrivals) == ["t2"]
    assert seen == [[0, 1], [3, 4]]


async def test_other_types_are_not_of_it(bench: Bench) -> None:
    """A handler of one task gets one, and settles it before the next begins."""
    calls, app = list[list[str]](), App()

    @app.batch_handler("t")
    async def handle(tasks: Sequence[Task]) -> Done:
        calls.append([task.id for task in tasks])
        return Done()

    @app.handler("single")
    async def single(task: Task) -> None:
        calls.append([task.id])
        assert bench.count("done") == int(task.id[1:])

    kinds = ["t", "t", "single", "single", "t", "t"]
    assert not await _run(bench, app, *(_arrival(f"t{n}", kind) for n, kind in enumerate(kinds)))
    assert calls == [["t0", "t1"], ["t2"], ["t3"], ["t4", "t5"]]


@pytest.mark.parametrize("size", [0, 501])
def test_sizes_have_bounds(size: int) -> None:
    with pytest.raises(ValueError, match=f"size = {size} of handler 't': from 1 to 500"):
        App().batch_handler("t", size=size)
