"""What goes wrong with a daemon: killed, told to leave, its clock, its name, its loop, its page."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from random import Random
from typing import ClassVar

from groupflow.servers.process import ServerProcess
from tests.endtoend.process import REPOSITORY
from tests.history.configuration import BLOCKED_PAST, BLOCKED_WITHIN, DRAIN
from tests.verification.pacing import comes, pause
from tests.verification.soak.attackers import ATTACKERS, port_in
from tests.verification.soak.faults.fault import Fault, Skipped
from tests.verification.soak.world import World

# Seconds for a stop, drain and all, whatever else is broken; a loop that stands hears of it late.
LEAVES_WITHIN = DRAIN + 12.0 + BLOCKED_PAST
# Seconds of a store that serves in which a replaced daemon must notice, whatever else is broken.
GOES_WITHIN = 30.0
PAGE_WITHIN = 20.0  # seconds for a page to listen, whatever else is broken


class DaemonFault(Fault):
    """A fault of one daemon: of its process, or of its page."""

    lasting = 0.0, 1.0
    part = "daemon"

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self.index = chance.randrange(daemons)
        self.holds = frozenset({f"{self.part} {self.index}"})


class KillSame(DaemonFault):
    """kill -9, and a new process under the same name."""

    name = "kill-9, same name"
    weight = 6.0

    async def apply(self, world: World) -> None:
        await world.slots[self.index].kill()

    async def undo(self, world: World) -> None:
        await world.slots[self.index].start()


class KillOther(KillSame):
    """kill -9, and a new process under another name: its lease has to run out."""

    name = "kill-9, another name"

    async def undo(self, world: World) -> None:
        world.slots[self.index].rename()
        await super().undo(world)


class Zombie(DaemonFault):
    """SIGSTOP past the lease, then SIGCONT."""

    name = "stopped past the lease"
    weight = 6.0
    lasting = 2.2, 3.4

    async def apply(self, world: World) -> None:
        world.slots[self.index].pause()

    async def undo(self, world: World) -> None:
        world.slots[self.index].resume()


class Nap(Zombie):
    """SIGSTOP for less than the lease."""

    name = "stopped within the lease"
    weight = 3.0
    lasting = 0.3, 1.2


class Terminate(KillSame):
    """SIGTERM, and a new process when it has left."""

    name = "SIGTERM"
    weight = 5.0

    async def apply(self, world: World) -> None:
        slot = world.slots[self.index]
        took = await slot.terminate()
        if took > LEAVES_WITHIN:
            world.broken.append(f"L5: {slot.name} took {took:.1f} s to leave after SIGTERM")


class WrongClock(DaemonFault):
    """The wall clock of a daemon that runs jumps by up to a day, and stays wrong."""

    name = "clock shifted"

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self._shift = chance.uniform(-86_400, 86_400)

    async def apply(self, world: World) -> None:
        clock = world.slots[self.index].clock
        if not clock.can_be_set:
            raise Skipped("libfaketime is not installed")
        clock.set(self._shift)


class Usurper(DaemonFault):
    """A second process under the name of one that is stopped; one of the two must end.

    Nearly always the first does, when it wakes. Where it was stopped before it had registered, it
    is the one that takes over.
    """

    name = "name taken over"
    weight = 2.0
    lasting = 1.0, 2.0
    _first: ServerProcess

    async def apply(self, world: World) -> None:
        slot = world.slots[self.index]
        slot.should_run = False
        slot.pause()
        self._first = await slot.usurp()

    async def undo(self, world: World) -> None:
        slot = world.slots[self.index]
        self._first.signal_group(signal.SIGCONT)
        served = 0.0  # seconds in which the store could have told the first one
        while self._first.alive and slot.is_alive and served < GOES_WITHIN:
            began = time.monotonic()
            serves = await world.serves()
            await pause(0.1)
            served += time.monotonic() - began if serves else 0.0
        if not slot.is_alive:
            await slot.keep(self._first)
        elif self._first.alive:
            world.broken.append(f"L6: two daemons {slot.name} ran on for {GOES_WITHIN} s")
            self._first.signal_group(signal.SIGUSR1)  # its log then says where it stands
            await pause(0.5)
            await self._first.kill()
        slot.should_run = True


class BlockLoop(Fault):
    """A handler that blocks its daemon's event loop for one and a half leases: nothing is lost."""

    name = "event loop blocked"
    kind: ClassVar[str] = "block"
    lasting = BLOCKED_WITHIN, BLOCKED_WITHIN

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self._grouped = chance.random() < 0.5

    async def apply(self, world: World) -> None:
        world.workload.inject(self.kind, grouped=self._grouped)


class BlockLoopPast(BlockLoop):
    """A handler that blocks it past `max_block`: its tasks are taken over while it stands."""

    name = "event loop blocked past max_block"
    weight = 2.0
    kind = "block-past"
    lasting = BLOCKED_PAST, BLOCKED_PAST


class HttpFlood(DaemonFault):
    """Chunks, silence, looks at everything, or event streams, without a token, at its page."""

    name = "HTTP flood"
    lasting = 2.0, 6.0
    part = "page"
    _attackers: asyncio.subprocess.Process

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self.kind = chance.choice(sorted(ATTACKERS))

    async def apply(self, world: World) -> None:
        log = world.slots[self.index].log

        async def is_there() -> bool:
            return await asyncio.to_thread(port_in, log) is not None

        if not await comes(is_there, within=PAGE_WITHIN):
            raise Skipped("its page is not there yet")  # it comes behind its daemon's work
        command = [sys.executable, "-m", "tests.verification.soak.attackers"]
        command += [self.kind, str(port_in(log))]
        with (world.folder / "attackers.log").open("ab") as out:
            self._attackers = await asyncio.create_subprocess_exec(
                *command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    async def undo(self, world: World) -> None:
        if self._attackers.returncode is not None:
            world.broken.append(f"the attackers ended by themselves: {self.kind}")
            return
        self._attackers.kill()
        await self._attackers.wait()
