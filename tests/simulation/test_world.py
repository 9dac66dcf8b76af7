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
    yield loop
    loop.close()


def since() -> float:
    """Virtual seconds since the beginning."""
    return round(clock.now() - clock.BEGIN, 6)


def test_time_jumps_to_the_next_timer(loop: SimulatedLoop) -> None:
    began = clock.real()

    async def sleep() -> list[float]:
        seen = []
        for seconds in (3600.0, 0.5):
            await pass_virtual(seconds)
            seen.append(since())
        return seen

    assert loop.run(sleep()) == [3600.0, 3600.5]
    assert clock.real() - began < 60


def test_a_loop_with_nothing_to_do_says_so(loop: SimulatedLoop) -> None:
    with pytest.raises(Stuck):
        loop.run(asyncio.Event().wait())


def counting(loop: SimulatedLoop, process: Process, seen: list[str]) -> None:
    """A task of a process that notes each tenth of a second, and its end."""

    async def count() -> None:
        try:
            while True:
                await pass_virtual(0.1)
                seen.append(f"{process.name} {since()}")
        finally:
            seen.append(f"{process.name} ended")

    loop.create_task(count(), context=context_of(process.main))


def test_nothing_of_a_dead_process_happens(loop: SimulatedLoop) -> None:
    seen: list[str] = []
    dead, other = Process("dead", 1), Process("other", 2)
    counting(loop, dead, seen)
    counting(loop, other, seen)

    async def live() -> list[str]:
        await pass_virtual(0.15)
        loop.kill(dead)
        await pass_virtual(0.1)
        return list(seen)

    assert loop.run(live()) == ["dead 0.1", "other 0.1", "other 0.2"]


def test_a_fuse_ends_a_process_after_so_many_steps(loop: SimulatedLoop) -> None:
    seen: list[str] = []
    process = Process("p", 1)
    counting(loop, process, seen)
    process.fuse = 5  # its first step, then two for each tenth of a second
    loop.run(pass_virtual(10.0))
    assert seen == ["p 0.1"]
    assert process.is_dead


def test_a_stopped_process_goes_on_with_what_it_missed(loop: SimulatedLoop) -> None:
    seen: list[str] = []
    process = Process("p", 1)
    counting(loop, process, seen)

    async def live() -> list[str]:
        await pass_virtual(0.15)
        loop.stop_process(process)
        await pass_virtual(5.0)
        loop.go_on(process)
        await pass_virtual(0.15)
        return list(seen)

    assert loop.run(live()) == ["p 0.1", "p 5.15", "p 5.25"]


class Echo:
    """A server that answers with what it got, and knows what that was."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.got: list[bytes] = []
        self.is_over = False

    def receive(self, data: bytes) -> None:
        """Echo."""
        self.got.append(data)
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


@pytest.mark.parametrize("way", ["whole", "cut", "cut_behind", "cut_late"])
def test_a_connection_keeps_its_order_and_may_break_on_either_way(
    loop: SimulatedLoop, way: str
) -> None:
    network = Network(loop, Random(1))
    sessions: list[Echo] = []

    def accept(transport: Transport) -> Echo:
        sessions.append(Echo(transport))
        return sessions[-1]

    network.accept = accept

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
    assert sessions[0].got == ([] if way == "cut" else numbers)
    assert client.got == (numbers if way == "whole" else [])
    assert client.lost == sessions[0].is_over == (way != "whole")


@pytest.mark.parametrize(
    ("way", "arrive"), [("cut", []), ("cut_behind", [0.0]), ("cut_late", [3.0])]
)
def test_of_some_connections_that_breaks_on_which_a_call_is_on_its_way(
    loop: SimulatedLoop, way: Way, arrive: list[float]
) -> None:
    network = Network(loop, Random(1))
    arrived: list[float] = []

    class Noting(Echo):
        def receive(self, data: bytes) -> None:
            super().receive(data)
            if data == b"a claim":
                arrived.append(round(clock.now() - begun, 1))

    network.accept = Noting
    begun = 0.0

    async def live() -> list[bool]:
        nonlocal begun
        for _ in range(2):
            await loop.create_connection(Client, "anywhere", 1)
        begun = clock.now()
        transports = list(network.open)
        doom = Doom(way, 2, (b"claim",), 3.0)
        for each in transports:
            each.doom = doom
        transports[1].write(b"a claim")
        await pass_virtual(1.0)
        arrived.clear()
        begun = clock.now()
        transports[0].write(b"a settle")
        transports[0].write(b"a claim")
        was_told = transports[0].is_closing()
        transports[1].write(b"a claim")
        await pass_virtual(1.0)
        assert was_told == (way != "cut_behind")
        await pass_virtual(9.0)
        return [each.is_closing() for each in transports]

    assert loop.run(live()) == [True, False]
    assert sorted(arrived) == sorted([0.0, *arrive])


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
