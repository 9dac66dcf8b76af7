"""The simulated network: connections whose bytes take their time, and may break at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, Protocol, TypeAlias

from tests.simulation import clock
from tests.simulation.clock import pass_virtual
from tests.simulation.loop import SimulatedLoop
from tests.simulation.processes import OWNER, Process, Thread, own_process

USUAL = (0.00005, 0.0005)  # seconds that bytes take one way
LATE = (0.002, 0.05)
LATE_SHARE = 0.03

Way: TypeAlias = Literal["cut", "cut_behind", "cut_late"]
"""How a connection breaks: what was written is lost, or runs, or runs some time later."""


@dataclass(slots=True)
class Doom:
    """What breaks one of some connections, once, while a call travels on it.

    Attributes:
        way: how.
        writes: at which of its writes, from now on.
        words: only those are counted that have one of these; all of them where there is none.
        seconds: how much later they run, behind a break that has them run late.
    """

    way: Way
    writes: int = 1
    words: Collection[bytes] = ()
    seconds: float = 0.0

    def is_met(self, data: bytes) -> bool:
        """Whether this write is the one."""
        if not self.words or any(word in data for word in self.words):
            self.writes -= 1
            return self.writes == 0
        return False


class Session(Protocol):
    """A server's side of a connection."""

    def receive(self, data: bytes) -> None:
        """Bytes have come."""

    def hang_up(self) -> None:
        """The connection has ended."""


class Network:
    """Carries bytes between processes and one server."""

    def __init__(self, loop: SimulatedLoop, chance: Random) -> None:
        """Nothing answers until `accept` is set."""
        self._loop = loop
        self._chance = chance
        self.accept: Callable[[Transport], Session]
        self.is_down = False
        self.up_since = 0.0
        """Whether the server refuses connections."""
        self.open: dict[Transport, None] = {}
        self._parted: dict[Process, list[tuple[Context, Callable[[bytes], None], bytes]]] = {}
        loop.connect = self._connect

    def delay(self) -> float:
        """Seconds that bytes take one way."""
        draw = self._chance.random
        least, most = LATE if draw() < LATE_SHARE else USUAL
        return least + (most - least) * draw()

    async def _connect(
        self, factory: Callable[[], asyncio.Protocol], *_: Any, **__: Any
    ) -> tuple[Transport, asyncio.Protocol]:
        await pass_virtual(2 * self.delay())
        while own_process() in self._parted:
            await pass_virtual(0.1)
        if self.is_down:
            raise ConnectionRefusedError(111, "Connect call failed")
        protocol = factory()
        transport = Transport(self, self._loop, protocol, OWNER.get())
        self.open[transport] = None
        transport.session = self.accept(transport)
        protocol.connection_made(transport)
        return transport, protocol

    def connections_of(self, process: Process) -> list[Transport]:
        """The open connections of a process, the oldest first."""
        return [each for each in self.open if each.owner and each.owner.process is process]

    def part(self, process: Process) -> None:
        """Nothing goes to a process or comes from it, and no side is told."""
        self._parted.setdefault(process, [])

    def join(self, process: Process) -> None:
        """What was on its way meanwhile arrives now, in its order."""
        for context, arrive, data in self._parted.pop(process, []):
            self._loop.call_soon(arrive, data, context=context)

    def holds(self, owner: Thread | None, arrive: Callable[[bytes], None], data: bytes) -> bool:
        """Whether bytes of a process arrive later, as it is parted."""
        held = self._parted.get(owner.process) if self._parted and owner else None
        if held is not None:
            held.append((copy_context(), arrive, data))
        return held is not None

    def reset(self) -> None:
        """Break all connections: the server is gone."""
        for transport in list(self.open):
            transport.cut()


class Transport(asyncio.Transport):
    """One connection, as its process sees it."""

    def __init__(
        self,
        network: Network,
        loop: SimulatedLoop,
        protocol: asyncio.Protocol,
        owner: Thread | None,
    ) -> None:
        super().__init__()
        self.session: Session
        self.owner = owner
        self._network = network
        self._loop = loop
        self._protocol = protocol
        self._context: Context = copy_context()
        self._closing = False  # by its process
        self._is_cut = False  # for both sides
        self._is_left = False  # by its process, which was told of its end
        self._there = self._back = 0.0  # when the last bytes come, at the server and back
        self.doom: Doom | None = None
        """What is to break it."""

    # What the process does:

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes set out, and arrive behind those before."""
        if self.is_closing():
            return
        data = bytes(data)
        self._there = max(self._there, clock.now() + self._network.delay())
        doom = self.doom if self.doom and self.doom.is_met(data) else None
        if doom and doom.way == "cut_late":
            self._there += doom.seconds
        self._loop.call_at(self._there, self._arrive, data, context=_OUTSIDE)
        if doom:
            getattr(self, doom.way)()

    def close(self) -> None:
        """What was written still arrives."""
        self._close(lose=False)

    def abort(self) -> None:
        """What has not arrived is lost."""
        self._close(lose=True)

    def _close(self, *, lose: bool) -> None:
        if self._closing:
            return
        self._closing = True
        if self._is_left:
            return
        if lose:
            self._end()
        else:
            self._loop.call_at(max(self._there, clock.now()), self._end, context=_OUTSIDE)
        if not self._is_cut or not lose:
            self._loop.call_soon(self._protocol.connection_lost, None, context=self._context)

    def is_closing(self) -> bool:
        """Whether it ends."""
        return self._closing or self._is_left or self._is_cut

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """There is no socket behind it."""
        return default

    def get_write_buffer_size(self) -> int:
        """All sets out at once."""
        return 0

    # What happens to it:

    def _arrive(self, data: bytes) -> None:
        if not self._network.holds(self.owner, self._arrive, data) and not self._is_cut:
            self.session.receive(data)

    def reply(self, data: bytes, later: float = 0.0) -> None:
        """The server answers, after so many seconds; to be called in the order of answers."""
        if not self._is_cut:
            at = max(self._back, clock.now() + later + self._network.delay())
            self._back = at
            self._loop.call_at(at, self._come, data, context=self._context)

    def _come(self, data: bytes) -> None:
        is_over = self._network.holds(self.owner, self._come, data) or self._is_cut or self._closing
        if not is_over:
            self._protocol.data_received(data)

    def cut(self) -> None:
        """Break it: what is on its way, there or back, is lost, and the process hears of it."""
        if self._is_cut:
            return
        self._end()
        self._tell()

    def _tell(self) -> None:
        if not self._closing and not self._is_left:
            self._is_left = True
            why = ConnectionResetError(104, "Connection reset by peer")
            self._loop.call_soon(self._protocol.connection_lost, why, context=self._context)

    def cut_behind(self) -> None:
        """Break it once what was written has run: its replies are lost."""
        self._back = float("inf")  # nothing comes back
        at = max(self._there, clock.now())
        self._loop.call_at(at, self.cut, context=_OUTSIDE)

    def cut_late(self) -> None:
        """Break it, and let what was written arrive all the same, some time later.

        A kernel sends it again for as long as a network is away, though the connection is closed.
        """
        self.cut_behind()
        self._tell()

    def _end(self) -> None:
        if not self._is_cut:
            self._is_cut = True
            self._network.open.pop(self, None)
            self.session.hang_up()


_OUTSIDE = Context()
