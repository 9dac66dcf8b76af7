"""When intake has to wait, to the task and the byte: by a clock that the test moves."""

from __future__ import annotations

from typing import Any, cast

import pytest

from groupflow.core.errors import StoreUnavailable
from groupflow.flow import backpressure as module
from groupflow.flow.backpressure import LOOK_EVERY, Backpressure
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import DELAYED_SHARE


class Server:
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
        client = cast(StoreClient, self)
        return Backpressure(
            client, max_waiting=100, max_memory=max_memory, delayed_memory=delayed_memory
        )


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(module, "monotonic", lambda: server.now)
    return server


async def test_tasks_are_a_reason_from_the_limit_until_well_below(server: Server) -> None:
    backpressure, kinds = server.backpressure(), []
    for queued in (99, 100, 99, 90, 89, 99, 100):
        assert bool(await backpressure.reason(queued)) == bool(backpressure.kind)
        kinds.append(backpressure.kind)
    waiting = "waiting"
    assert kinds == ["", waiting, waiting, waiting, "", "", waiting]


async def test_memory_is_a_reason_from_the_limit_until_well_below(server: Server) -> None:
    backpressure, kinds = server.backpressure(max_memory=1000), []
    for server.used in (999, 1000, 999, 900, 899, 999):
        server.now += LOOK_EVERY
        await backpressure.reason(0)
        kinds.append(backpressure.kind)
    assert kinds == ["", "memory", "memory", "memory", "", ""]
    server.used = 10**9
    unlimited = server.backpressure()
    assert await unlimited.reason(0) == ""


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


async def test_a_look_in_vain_changes_nothing_and_is_taken_again(server: Server) -> None:
    backpressure = server.backpressure(max_memory=1000)
    server.used = 1000
    assert await backpressure.reason(0)
    server.is_away = True
    assert await backpressure.reason(0)
    other = server.backpressure(max_memory=1000)
    assert await other.reason(0) == ""
    server.is_away = False
    assert await other.reason(0)


async def test_delays_have_their_share_of_what_there_is(server: Server) -> None:
    backpressure = server.backpressure(max_memory=3000)
    await backpressure.look()
    assert backpressure.delayed_memory == 3000 * DELAYED_SHARE
    server.now, server.most = server.now + LOOK_EVERY, 2000
    await backpressure.look()
    assert backpressure.delayed_memory == 2000 * DELAYED_SHARE
    assert server.backpressure(delayed_memory=10).delayed_memory == 10
