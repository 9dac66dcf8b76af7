"""A batch: one call takes tasks of one group, in order, and says what became of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from groupflow import Advance, App, Dead, Done, Retry, Task
from groupflow.operate.dead import DeadLetters
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from tests.flow.crew import Gate, crew
from tests.store.bench import Bench, arrival


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


@pytest.mark.parametrize(
    ("size", "answers", "expected", "dead"),
    [
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
    ],
)
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
    letter = await DeadLetters(bench.namespace).find("t0")
    assert letter is not None
    assert "answers for each of its 3 tasks, and not for 1" in letter.reason


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


async def test_a_stop_hands_back_all_of_it(bench: Bench) -> None:
    app, gate = App(), Gate()

    @app.batch_handler("t")
    async def handle(tasks: Sequence[Task]) -> None:
        await gate.passed()

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(4)))
    async with crew(bench, app, batch=10) as made:
        await gate.until_reached()
        made.dispatcher.stop_claiming()
        made.workers[0].hand_back()
        await made.stop()
        await made.until(lambda: bench.count("running_grouped") == 0)
    assert bench.lane("hot") == ["t0", "t1", "t2", "t3"]
    assert bench.count("done") == 0


@pytest.mark.parametrize("size", [0, 501])
def test_sizes_have_bounds(size: int) -> None:
    with pytest.raises(ValueError, match=f"size = {size} of handler 't': from 1 to 500"):
        App().batch_handler("t", size=size)
