"""What the nemesis has found, each as a test of its own (and tests/broker/test_publisher.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from aiormq.connection import FrameReceiver

from groupflow import App, Task
from groupflow.broker.connection import connect
from groupflow.core.errors import BrokerUnavailable
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.exchange import Exchanger
from groupflow.flow.python_handlers import PythonRunners
from groupflow.flow.worker import LocalWorker, Rules
from groupflow.settings.model import Settings
from groupflow.store.claims import Claims, ExchangeReply
from groupflow.store.settlements import Settlement
from tests.deadlines import deadline
from tests.store.bench import Bench, Daemon, arrival


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


class _SleepsOverReply(Claims):
    """Claims whose reply is read only when the lease has long been over."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon.bench.client, daemon.session, "grouped")
        self.holds_lease = True
        self.was_settled = asyncio.Event()

    async def exchange(
        self, settlements: Sequence[Settlement], slots: Sequence[str]
    ) -> ExchangeReply:
        answer = await super().exchange(settlements, slots)
        if answer.claims and not self.was_settled.is_set():
            self.holds_lease = False
        if settlements:
            self.was_settled.set()
        return answer


async def test_a_claim_that_was_slept_over_is_not_begun(bench: Bench) -> None:
    """A zombie began whatever claims had come while it was frozen, beside who had taken over.

    Found by seed 1001: a handler ran for 20 ms, until the renewal cancelled it, while its group had
    gone on elsewhere.
    """
    await bench.enqueue(arrival("a1", "a"))
    claims = _SleepsOverReply(await bench.daemon())
    dispatcher = Dispatcher()
    exchanger = Exchanger(dispatcher, claims, lambda: claims.holds_lease)
    serving = asyncio.create_task(exchanger.run())
    claiming = asyncio.create_task(dispatcher.next("w-0"))
    async with asyncio.timeout(deadline()):
        await claims.was_settled.wait()
    assert not claiming.done()
    assert bench.lane("a") == ["a1"]  # released, at its place
    claims.holds_lease = True
    dispatcher.wake()
    async with asyncio.timeout(deadline()):
        slot = await claiming
    assert slot is not None
    assert slot.held.task.crashes == 0
    for each in (serving, claiming):
        each.cancel()


async def test_an_attempt_that_was_slept_over_is_not_begun(bench: Bench) -> None:
    """The same, where a handler blocks the loop between another's claim and its beginning.

    Found by seed 6002: of four claims that came at once, the first blocked its daemon.
    """
    app, began = App(), list[str]()
    lease = {"holds": True}

    @app.handler("t")
    async def block(task: Task) -> None:
        began.append(task.id)
        lease["holds"] = False

    await bench.enqueue(arrival("a1", "a"), arrival("b1", "b"))
    claims = Claims(bench.client, (await bench.daemon()).session, "grouped")
    dispatcher = Dispatcher()
    exchanger = Exchanger(dispatcher, claims, lambda: lease["holds"])
    with ThreadPoolExecutor(1) as threads:
        rules = Rules(PythonRunners(app, threads), Settings().policies(), 3)
        work = [LocalWorker(f"w-{n}", dispatcher, rules).run() for n in range(2)]
        running = [asyncio.create_task(each) for each in (*work, exchanger.run())]
        async with asyncio.timeout(deadline()):
            while not began or bench.lane("b") != ["b1"]:
                await asyncio.sleep(0.01)
        for each in running:
            each.cancel()
        await asyncio.wait(running)
    assert began == ["a1"]
