"""What a simulated world is made of: its time, its processes, its network, its RabbitMQ."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tests.simulation import clock
from tests.simulation.clock import pass_virtual
from tests.simulation.loop import SimulatedLoop, Stuck
from tests.simulation.network import Doom, Network, Transport, Way
from tests.simulation.processes import Process, context_of
from tests.simulation.rabbitmq_side import Published, SimulatedRabbitmq
from tests.simulation.redis_side import NotRendered, changed


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    """A loop at the beginning of time."""
    clock.set_now(clock.BEGIN)
    loop = SimulatedLoop()
    # A dead process's tasks are never done, which is no failure.
    loop.set_exception_handler(
        lambda loop, told: loop.default_exception_handler(told) if "exception" in told else None
    )
    yield loop
    loop.close()


def test_a_loop_with_nothing_to_do_says_so(loop: SimulatedLoop) -> None:
    with pytest.raises(Stuck):
        loop.run(asyncio.Event().wait())


def test_processes_die_at_once_or_by_a_fuse_and_stand_and_go_on(loop: SimulatedLoop) -> None:
    """Nothing of a dead one happens, not even a `finally`; a stopped one has missed nothing."""
    seen: dict[str, list[float]] = {name: [] for name in ("dead", "burning", "stopped", "other")}
    processes = {name: Process(name, number) for number, name in enumerate(seen)}

    async def note_each_tenth(times: list[float]) -> None:
        try:
            while True:
                await pass_virtual(0.1)
                times.append(round(clock.now() - clock.BEGIN, 6))
        finally:
            times.append(0.0)

    async def live() -> dict[str, list[float]]:
        for name, times in seen.items():
            loop.create_task(note_each_tenth(times), context=context_of(processes[name].main))
        processes["burning"].fuse = 5  # its first step, then two for each tenth of a second
        await pass_virtual(0.15)
        loop.kill(processes["dead"])
        loop.stop_process(processes["stopped"])
        await pass_virtual(0.1)
        loop.kill(processes["other"])
        await pass_virtual(3600.0)
        loop.go_on(processes["stopped"])
        await pass_virtual(0.15)
        return {name: [*times] for name, times in seen.items()}

    lived = loop.run(live())
    stopped = [0.1, 3600.25, 3600.35]
    assert lived == {"dead": [0.1], "burning": [0.1], "stopped": stopped, "other": [0.1, 0.2]}
    assert processes["burning"].is_dead


class Echo:
    """A server that answers with what it got, and knows what that was."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.got: dict[bytes, float] = {}
        self.is_over = False

    def receive(self, data: bytes) -> None:
        """Echo; note when that came."""
        self.got[data] = clock.now()
        self.transport.reply(data)

    def hang_up(self) -> None:
        """It is over."""
        self.is_over = True


class Client(asyncio.Protocol):
    """What comes back."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.lost = False

    def data_received(self, data: bytes) -> None:
        """Note it."""
        self.got.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note it."""
        self.lost = True


@pytest.fixture
def sessions() -> list[Echo]:
    """The server's side of each connection."""
    return []


@pytest.fixture
def network(loop: SimulatedLoop, sessions: list[Echo]) -> Network:
    """A network with a server that echoes."""
    network = Network(loop, Random(1))

    def accept(transport: Transport) -> Echo:
        sessions.append(Echo(transport))
        return sessions[-1]

    network.accept = accept
    return network


def test_who_is_blocked_while_it_stands_has_stood_since_before(loop: SimulatedLoop) -> None:
    """Seed 5092: a claim of it was taken over with reason, and the judge knew of none."""
    process = Process("d", 1)
    loop.stop_process(process)
    since = clock.now()
    clock.set_now(since + 1.0)
    process.main.begin_to_stand()
    assert process.main.stands_since == since
    loop.go_on(process)
    process.main.begin_to_stand()
    assert process.main.stands_since == since + 1.0


@pytest.mark.parametrize("way", ["whole", "cut", "cut_behind", "cut_late"])
def test_a_connection_keeps_its_order_and_may_break_on_either_way(
    loop: SimulatedLoop, network: Network, sessions: list[Echo], way: str
) -> None:
    async def live() -> Client:
        _, client = await loop.create_connection(Client, "anywhere", 1)
        transport = next(iter(network.open))
        for number in range(20):
            transport.write(b"%d" % number)
        if way != "whole":
            getattr(transport, way)()
        await pass_virtual(1.0)
        assert isinstance(client, Client)
        return client

    client = loop.run(live())
    numbers = [b"%d" % number for number in range(20)]
    assert [*sessions[0].got] == ([] if way == "cut" else numbers)
    assert client.got == (numbers if way == "whole" else [])
    assert client.lost == sessions[0].is_over == (way != "whole")


@pytest.mark.parametrize(("way", "arrives"), [("cut", None), ("cut_behind", 0), ("cut_late", 3)])
def test_of_some_connections_that_breaks_on_which_a_call_is_on_its_way(
    loop: SimulatedLoop, network: Network, sessions: list[Echo], way: Way, arrives: int | None
) -> None:
    """A doom counts the claims on all of them: the first passes, the second meets it."""

    async def live() -> list[bool]:
        for _ in range(2):
            await loop.create_connection(Client, "anywhere", 1)
        doomed, sound = network.open
        doomed.doom = sound.doom = Doom(way, 2, (b"claim",), 3.0)
        sound.write(b"claim 1")
        doomed.write(b"a settle")
        doomed.write(b"claim 2")
        was_told = doomed.is_closing()
        sound.write(b"claim 3")
        await pass_virtual(10.0)
        assert was_told == (way != "cut_behind")
        return [doomed.is_closing(), sound.is_closing()]

    assert loop.run(live()) == [True, False]
    assert [*sessions[1].got] == [b"claim 1", b"claim 3"]
    came = sessions[0].got.get(b"claim 2")
    assert (came is None) == (arrives is None)
    assert came is None or round(came - clock.BEGIN) == arrives


def test_what_a_lost_channel_had_not_acked_comes_again_in_its_place(loop: SimulatedLoop) -> None:
    rabbitmq = SimulatedRabbitmq(loop, Random(1), "q")
    got: list[tuple[str, str]] = []

    async def consume(name: str, prefetch: int) -> Any:
        connection = await rabbitmq.connect()
        channel = await connection.channel()
        await channel.basic_qos(prefetch_count=prefetch)

        async def take(message: Any) -> None:
            got.append((name, message.header.properties.message_id))

        await channel.basic_consume("q", take)
        return channel

    async def live() -> None:
        for number in range(6):
            rabbitmq.publish(Published(f"m{number}", "t", b"{}"))
        one = await consume("one", 3)
        await consume("two", 10)  # it stands by
        await pass_virtual(1.0)
        await one.basic_ack(1, multiple=True)
        await pass_virtual(1.0)
        one._connection.cut()
        await pass_virtual(1.0)

    loop.run(live())
    assert [id_ for name, id_ in got if name == "one"] == ["m0", "m1", "m2", "m3"]
    assert [id_ for name, id_ in got if name == "two"] == ["m1", "m2", "m3", "m4", "m5"]
    assert rabbitmq.left == 5


def test_scripts_are_given_the_virtual_clock_and_no_other() -> None:
    text = "#!lua flags=allow-oom\nlocal t = call('TIME')\ncall(PUBLISH, K.wake, what)"
    first, front, *rest = changed(text).split("\n")
    assert first == "#!lua flags=allow-oom"
    assert "KEYS[2]" in front
    assert not any("TIME'" in line or "PUBLISH" in line for line in rest)
    with pytest.raises(NotRendered, match="TIME"):
        changed("local now = redis.call('TIME')[1]")
