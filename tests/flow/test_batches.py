"""A batch: one call takes tasks of one group, in order, and says what became of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from groupflow import Advance, App, Dead, Done, Retry, Task
from groupflow.core.outcome import Outcome
from groupflow.operate.dead import DeadLetters
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from tests.flow.crew import Gate, crew
from tests.store.bench import Bench, arrival


def _arrival(id_: str, type_: str = "t", body: bytes = b"{}") -> Arrival:
    return Arrival(id_, Envelope(type_, "hot", "42", "rule", {}, body))


def _dead(bench: Bench) -> int:
    return int(bench.raw.zcard(bench.keys("dead")))


class Rows(BaseModel):
    """A body that says which row it is."""

    row: int


def _app(calls: list[list[str]], answers: dict[str, Any] | None = None, size: int = 100) -> App:
    """Notes what each call was given; a task's answer at its first attempt is that of its id."""
    app, answers = App(), answers or {}

    @app.batch_handler("t", size=size)
    async def handle(tasks: Sequence[Task]) -> Sequence[Outcome | None]:
        calls.append([task.id for task in tasks])
        return [
            answers.get(task.id) if task.attempt == 1 and task.stage is None else None
            for task in tasks
        ]

    return app


async def test_as_many_as_the_rule_and_the_handler_say(bench: Bench) -> None:
    calls: list[list[str]] = []
    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(25)))
    async with crew(bench, _app(calls, size=8), batch=10) as made:
        await made.until_done(25)
        await made.stop()
    assert [len(call) for call in calls] == [8, 8, 8, 1]
    assert [id_ for call in calls for id_ in call] == [f"t{n}" for n in range(25)]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Retry(after=0), "done"),
        (Dead("no such row"), "dead"),
        (Advance("second"), "done"),
        ("nonsense", "dead"),
    ],
)
async def test_a_failure_in_the_middle_ends_the_batch(
    bench: Bench, answer: Any, outcome: str
) -> None:
    """Those in front are done, it is settled, those behind go back and come again."""
    calls: list[list[str]] = []
    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(6)))
    async with crew(bench, _app(calls, {"t2": answer, "t4": answer}), batch=10) as made:
        await made.until(lambda: bench.count("done") + _dead(bench) == 6)
        await made.stop()
    assert calls[0] == [f"t{n}" for n in range(6)]
    assert calls[1][0] == ("t3" if outcome == "dead" else "t2")
    assert _dead(bench) == (2 if outcome == "dead" else 0)


async def test_one_outcome_is_for_the_first_where_it_is_not_done(bench: Bench) -> None:
    """What failed may be any of them, so the next attempt is the first one's alone."""
    calls: list[list[str]] = []
    app = App()

    @app.batch_handler("t")
    async def handle(tasks: Sequence[Task]) -> Done | Retry:
        calls.append([task.id for task in tasks])
        return Retry(after=0) if len(calls) == 1 else Done()

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(4)))
    async with crew(bench, app, batch=10) as made:
        await made.until_done(4)
        await made.stop()
    assert calls == [["t0", "t1", "t2", "t3"], ["t0"], ["t1", "t2", "t3"]]


async def test_an_answer_of_another_length_is_none(bench: Bench) -> None:
    app = App()

    @app.batch_handler("t")
    def handle(tasks: Sequence[Task]) -> list[None]:
        return [None]

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(3)))
    async with crew(bench, app, batch=10) as made:
        await made.until(lambda: _dead(bench) + bench.count("done") == 3)
        await made.stop()
    assert _dead(bench) == 2  # the last one alone had one answer
    letter = await DeadLetters(bench.namespace).find("t0")
    assert letter is not None
    assert "answers for each of its 3 tasks, and not for 1" in letter.reason


async def test_a_body_that_does_not_fit_ends_the_batch_in_front_of_it(bench: Bench) -> None:
    seen: list[list[int]] = []
    app = App()

    @app.batch_handler("t", model=Rows)
    async def handle(tasks: Sequence[Task], bodies: Sequence[Rows]) -> None:
        assert len(tasks) == len(bodies)
        seen.append([body.row for body in bodies])

    bodies = [b'{"row": %d}' % n if n != 2 else b'{"row": "x"}' for n in range(5)]
    await bench.enqueue(*(_arrival(f"t{n}", body=body) for n, body in enumerate(bodies)))
    async with crew(bench, app, batch=10) as made:
        await made.until(lambda: _dead(bench) + bench.count("done") == 5)
        await made.stop()
    assert seen == [[0, 1], [3, 4]]
    assert _dead(bench) == 1


async def test_other_types_are_not_of_it(bench: Bench) -> None:
    """A handler of one task gets one, and settles it before the next begins."""
    calls: list[list[str]] = []
    app = _app(calls)

    @app.handler("single")
    async def single(task: Task) -> None:
        calls.append([task.id])
        assert bench.count("done") == int(task.id[1:])

    kinds = ["t", "t", "single", "single", "t", "t"]
    await bench.enqueue(*(_arrival(f"t{n}", kind) for n, kind in enumerate(kinds)))
    async with crew(bench, app, batch=10) as made:
        await made.until_done(6)
        await made.stop()
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
