"""What the nemesis has found, each as a test of its own (and tests/broker/test_deaths.py)."""

from __future__ import annotations

import asyncio

import pytest
from aiormq.connection import FrameReceiver

from groupflow.broker.connection import connect
from groupflow.core.errors import BrokerUnavailable
from groupflow.store.settlements import Release
from tests.flow.crew import crew
from tests.store.bench import Bench, arrival


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_server_that_hangs_up_at_once_is_only_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Below us a connection that ends before the greeting is a StopAsyncIteration.

    It went through all of the daemon and ended it. Found by seed 2001: RabbitMQ restarts, and
    daemons connect while it accepts and hangs up.
    """

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)  # the greeting; unread, it would make this a reset
        writer.close()

    get_frame = FrameReceiver.get_frame

    async def late(receiver: FrameReceiver) -> object:
        while not receiver.reader.at_eof():  # the hang-up is there before anybody reads
            await asyncio.sleep(0.001)
        return await get_frame(receiver)

    monkeypatch.setattr(FrameReceiver, "get_frame", late)
    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(BrokerUnavailable):
            await connect(f"amqp://127.0.0.1:{port}/", heartbeat=10, timeout=5.0, name="test")


async def test_a_claim_that_was_slept_over_is_not_begun(bench: Bench) -> None:
    """A zombie began whatever claims had come while it was frozen, beside who had taken over.

    Found by seed 1001: a handler ran for 20 ms, until the renewal cancelled it, while its group had
    gone on elsewhere. Seed 6002 found the same of an attempt (tests/flow/test_worker.py).
    """
    await bench.enqueue(arrival("a1", "a"))
    async with crew(bench, by_hand=True) as made:
        made.claims.may_answer.clear()
        waits = await made.waiting("w-0")
        exchanging = asyncio.ensure_future(made.exchanger.run_once())
        await made.until(lambda: made.claims.calls == 1)
        made.holds_lease = False
        made.claims.may_answer.set()
        await exchanging
        await made.exchanger.run_once()
        assert not waits.done()
        assert made.kinds == [Release]
        assert bench.lane("a") == ["a1"]  # at its place
        made.holds_lease = True
        await made.exchanger.run_once()
        slot = await waits
        assert slot is not None
        assert slot.held.task.crashes == 0
