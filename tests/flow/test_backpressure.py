"""When intake has to wait, to the task and the byte, and what it says of itself meanwhile."""

from __future__ import annotations

from typing import Any, cast

import pytest

from groupflow.core.errors import StoreUnavailable
from groupflow.core.measures import IntakeMeasures
from groupflow.flow import backpressure as module
from groupflow.flow.backpressure import LOOK_EVERY, Backpressure, IntakeState, Kind
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import DELAYED_SHARE


class Server:
    """The memory of a Redis, and the clock."""

    def __init__(self) -> None:
        self.now, self.used, self.most, self.looks = 1000.0, 0, 0, 0
        self.is_away = False

    async def info(self, section: str) -> dict[str, Any]:
        assert section == "memory"
        self.looks += 1
        if self.is_away:
            raise StoreUnavailable("away")
        return {"used_memory": self.used, **({"maxmemory": self.most} if self.most else {})}

    def backpressure(self, *, max_memory: int = 0, delayed_memory: int = 10**6) -> Backpressure:
        how: Any = {"max_memory": max_memory, "delayed_memory": delayed_memory}
        return Backpressure(cast(StoreClient, self), max_waiting=100, **how)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    for name in ("monotonic", "time"):
        monkeypatch.setattr(module, name, lambda: server.now)
    return server


async def test_a_limit_is_a_reason_until_it_is_well_below(server: Server) -> None:
    """Of tasks, and of memory; which is looked at now and then."""
    tasks, kinds = server.backpressure(), []
    for queued in (99, 100, 99, 90, 89, 99, 100):
        reason = await tasks.reason(queued)
        assert ("redis.max_waiting" in reason) == bool(tasks.kind)
        kinds.append(tasks.kind)
    assert kinds == ["", "waiting", "waiting", "waiting", "", "", "waiting"]
    memory, kinds = server.backpressure(max_memory=1000), []
    for server.used in (999, 1000, 999, 900, 899, 999):
        server.now += LOOK_EVERY
        reason = await memory.reason(0)
        assert ("redis.max_memory" in reason) == bool(memory.kind)
        kinds.append(memory.kind)
    assert kinds == ["", "memory", "memory", "memory", "", ""]
    server.used = 10**9
    assert await server.backpressure().reason(0) == ""  # without a limit


async def test_it_looks_now_and_then_and_each_time_while_it_waits(server: Server) -> None:
    backpressure = server.backpressure(max_memory=1000)
    await backpressure.reason(0)
    server.now += LOOK_EVERY - 0.001
    await backpressure.reason(0)
    assert server.looks == 1
    server.now, server.used = server.now + 0.001, 1000
    assert await backpressure.reason(0)
    assert await backpressure.reason(0)
    assert server.looks == 3
    server.is_away = True  # a look in vain changes nothing, and is taken again
    assert await backpressure.reason(0)
    other = server.backpressure(max_memory=1000)
    assert await other.reason(0) == ""
    server.is_away = False
    assert await other.reason(0)


async def test_it_looks_at_once_where_what_was_written_may_have_filled_it(server: Server) -> None:
    backpressure = server.backpressure(max_memory=1000)
    await backpressure.reason(0)
    backpressure.wrote(500)
    assert await backpressure.reason(0, 499) == ""
    assert server.looks == 1
    server.used = 600  # what is taken leaves again, so the bytes written are but a guess
    assert await backpressure.reason(0, 500)
    assert server.looks == 2
    server.used = 500
    assert await backpressure.reason(0) == ""
    assert await backpressure.reason(0, 499) == ""
    assert server.looks == 3


async def test_delays_have_their_share_of_what_there_is(server: Server) -> None:
    backpressure = server.backpressure(max_memory=3000)
    for server.most, least in ((0, 3000), (2000, 2000)):
        server.now += LOOK_EVERY
        await backpressure.look()
        assert backpressure.delayed_memory == least * DELAYED_SHARE
    assert server.backpressure(delayed_memory=10).delayed_memory == 10


class State(IntakeState):
    """What intake says of its queues, and how often others were to hear of it."""

    def __init__(self, *queues: str) -> None:
        self.changes, self.measures = 0, IntakeMeasures()
        super().__init__(self.measures, self._heard, queues)

    def _heard(self) -> None:
        self.changes += 1

    @property
    def verdict(self) -> str:
        return self.check("q").verdict


VERDICTS: list[Any] = [
    ("", "ok", False, False),
    ("away", "fail", False, False),
    ("store_unavailable", "fail", False, False),
    ("waiting", "warn", False, True),
    ("memory", "fail", True, True),
    ("store_full", "fail", True, True),
    ("too_few_replicas", "fail", False, True),
]


@pytest.mark.parametrize(("kind", "verdict", "lacks_memory", "is_told"), VERDICTS)
def test_each_kind_has_its_verdict(
    server: Server, kind: Kind, verdict: str, lacks_memory: bool, is_told: bool
) -> None:
    state = State("q")
    assert (state.verdict, state.told()) == ("fail", {})  # it begins away
    state.set(kind, "because", "q")
    assert state.verdict == verdict
    assert ("because" in state.check("q").found) == bool(kind)
    assert state.lacks_memory == lacks_memory
    told = {"intake": {"paused": "because", "since": 1000.0}}
    assert state.told() == (told if is_told else {})
    assert state.changes == is_told
    assert state.measures.paused == ("" if kind == "away" else kind)


def test_others_hear_of_each_change_and_of_the_end(server: Server) -> None:
    """It has stood since the first of several reasons, and again since the next pause."""
    state = State("q")
    pauses: list[tuple[Kind, int, float | None]] = [
        ("waiting", 1, 1000.0),
        ("waiting", 1, 1000.0),
        ("memory", 2, 1000.0),
        ("", 3, None),
        ("away", 3, None),
        ("store_full", 4, 1005.0),
    ]
    for kind, changes, since in pauses:
        state.set(kind, "because", "q")
        assert state.changes == changes
        assert state.told().get("intake", {}).get("since") == since
        server.now += 1.0


def test_of_several_queues_one_that_is_away_is_named() -> None:
    """The others go on, so that this daemon is ready; where all are away it isn't."""
    state = State("q.0", "q.1")
    assert state.verdict == "fail"
    sets: list[tuple[str, Kind, str]] = [
        ("q.0", "", "warn"),
        ("q.1", "", "ok"),
        ("q.1", "away", "warn"),
        ("q.0", "away", "fail"),
        ("q.0", "", "warn"),
    ]
    for queue, kind, verdict in sets:
        state.set(kind, "no leader", queue)
        assert state.verdict == verdict
    assert state.check("q").found == "consumes q, but not q.1: no leader"
    state.forget("q.1")  # it is over, and nothing to stand for
    assert state.verdict == "ok"


@pytest.mark.parametrize("kind", ["waiting", "memory", "store_full", "store_unavailable"])
def test_of_several_queues_the_worst_counts(kind: Kind) -> None:
    """From the first intake that stands until the last one goes on."""
    state = State("q.0", "q.1")
    state.set("away", "gone", "q.0")
    state.set(kind, "because", "q.1")
    assert "because" in state.check("q").found
    state.set(kind, "because", "q.0")
    state.set("", queue="q.1")
    assert "because" in state.check("q").found
    state.set("", queue="q.0")
    assert state.verdict == "ok"
