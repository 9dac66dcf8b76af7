"""What a daemon does with tasks whose type it has no handler for."""

from __future__ import annotations

from structlog.testing import capture_logs

from groupflow.flow.workforce import Holding
from groupflow.store.settlements import Complete, Defer
from tests.flow.crew import crew, named
from tests.store.bench import Bench
from tests.store.task_state import found, pass_time


def test_a_server_that_may_have_lost_what_a_daemon_knows_is_told_again() -> None:
    told = list[str]()
    Holding({}, list, lambda: told.append("again")).session_continued()
    assert told == ["again"]


async def test_they_wait_and_are_dead_later(bench: Bench) -> None:
    """The log says it once a type, and each death; neither is a handler's attempt."""
    ids = ["one", "two"]
    await bench.enqueue(*(named(id_, "u") for id_ in ids), named("known"))
    with capture_logs() as logs:
        async with crew(bench, pool="plain", unknown_for=30.0) as made:
            await made.until_settled(3)
            assert [(await found(bench, id_)).state for id_ in ids] == ["delayed"] * 2
            clock = bench.server_time() - 30_000_000
            bench.raw.zadd(bench.keys("unknown"), {"u": clock})
            await pass_time(bench)
            made.exchanger.wake()
            await made.until_settled(5)
            await made.stop()
    assert made.kinds == [Defer, Defer, Complete, Defer, Defer]
    lines = [each for each in logs if each["event"] == "type.unknown"]
    assert [(each["type"], each["task"], each["unknown_for"]) for each in lines] == [
        ("u", "one", 30.0)
    ]
    reason = "no daemon has known its type 'u' for 30 s"
    dead = [await found(bench, id_) for id_ in ids]
    assert [(each.state, each.reason, each.attempt) for each in dead] == [("dead", reason, 1)] * 2
    buried = [(e["task"], e["reason"]) for e in logs if e["event"] == "task.buried"]
    assert buried == [(id_, reason) for id_ in ids]
    settled = made.dispatcher.measures.types.of("u").settled
    assert (settled["defer"], settled["bury"]) == (2, 2)
