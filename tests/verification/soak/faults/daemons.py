"""What goes wrong with a daemon: killed, told to leave, its clock, its name, its loop, its page."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from tests.endtoend.process import REPOSITORY
from tests.history.configuration import BLOCKED_PAST, BLOCKED_WITHIN, DRAIN
from tests.verification.pacing import comes, pause
from tests.verification.soak.attackers import ATTACKERS, port_in
from tests.verification.soak.faults.fault import Fault, Kind, Skipped, fault
from tests.verification.soak.world import World

# Seconds for a stop, drain and all, beside other faults; a loop that stands hears of it late.
LEAVES_WITHIN = DRAIN + 12.0 + BLOCKED_PAST
# Seconds of a store that serves in which a replaced daemon must notice, beside other faults.
GOES_WITHIN = 30.0
PAGE_WITHIN = 20.0  # seconds for a page to listen, beside other faults
DAEMON, PAGE = "daemon {daemon}", "page {daemon}"


def killed(then: str) -> Kind:
    """kill -9, and a new process under that name; behind another one the lease has to run out."""

    @fault(f"kill-9, {then} name", DAEMON, weight=6.0, lasting=(0.0, 1.0))
    async def happen(world: World, fault: Fault) -> AsyncIterator[None]:
        slot = fault.one_of(world.slots)
        await slot.kill()
        yield
        if then == "another":
            slot.rename()
        await slot.start()

    return happen


kill_same, kill_other = killed("same"), killed("another")


async def _stopped(world: World, fault: Fault) -> AsyncIterator[None]:
    """SIGSTOP, then SIGCONT."""
    slot = fault.one_of(world.slots)
    slot.pause()
    yield
    slot.resume()


zombie = fault("stopped past the lease", DAEMON, weight=6.0, lasting=(2.2, 3.4))(_stopped)
nap = fault("stopped within the lease", DAEMON, lasting=(0.3, 1.2))(_stopped)


@fault("SIGTERM", DAEMON, weight=5.0, lasting=(0.0, 1.0))
async def terminate(world: World, fault: Fault) -> AsyncIterator[None]:
    """SIGTERM, and a new process when it has left."""
    slot = fault.one_of(world.slots)
    took = await slot.terminate()
    if took > LEAVES_WITHIN:
        world.broken.append(f"L5: {slot.name} took {took:.1f} s to leave after SIGTERM")
    yield
    await slot.start()


@fault("clock shifted", DAEMON, lasting=(0.0, 1.0))
async def wrong_clock(world: World, fault: Fault) -> AsyncIterator[None]:
    """The wall clock of a daemon that runs jumps by up to a day, and stays wrong."""
    clock = fault.one_of(world.slots).clock
    if not clock.can_be_set:
        raise Skipped("libfaketime is not installed")
    clock.set(fault.chance.uniform(-86_400, 86_400))
    yield


@fault("name taken over", DAEMON, weight=2.0, lasting=(1.0, 2.0))
async def usurper(world: World, fault: Fault) -> AsyncIterator[None]:
    """A second process under the name of one that is stopped; one of the two must end.

    Nearly always the first does, when it wakes. Where it was stopped before it had registered, it
    is the one that takes over.
    """
    slot = fault.one_of(world.slots)
    slot.should_run = False
    slot.pause()
    first = await slot.usurp()
    yield
    first.signal_group(signal.SIGCONT)
    served = 0.0  # seconds in which the store could have told the first one
    while first.alive and slot.is_alive and served < GOES_WITHIN:
        began = time.monotonic()
        serves = await world.serves()
        await pause(0.1)
        served += time.monotonic() - began if serves else 0.0
    if not slot.is_alive:
        await slot.keep(first)
    elif first.alive:
        world.broken.append(f"L6: two daemons {slot.name} ran on for {GOES_WITHIN} s")
        first.signal_group(signal.SIGUSR1)  # its log then says where it stands
        await pause(0.5)
        await first.kill()
    slot.should_run = True


def blocked(name: str, type_: str, weight: float, seconds: float) -> Kind:
    """A handler blocks its daemon's event loop."""

    @fault(name, weight=weight, lasting=(seconds, seconds))
    async def happen(world: World, fault: Fault) -> AsyncIterator[None]:
        world.workload.inject(type_, grouped=fault.share < 0.5)
        yield

    return happen


# For one and a half leases: nothing is lost. Past it: its tasks are taken over while it stands.
block_loop = blocked("event loop blocked", "block", 3.0, BLOCKED_WITHIN)
block_loop_past = blocked("event loop blocked past max_block", "block-past", 2.0, BLOCKED_PAST)


@fault("HTTP flood", PAGE, lasting=(2.0, 6.0))
async def http_flood(world: World, fault: Fault) -> AsyncIterator[None]:
    """Chunks, silence, looks at everything, or event streams, without a token, at its page."""
    log = fault.one_of(world.slots).log

    async def is_there() -> bool:
        return await asyncio.to_thread(port_in, log) is not None

    if not await comes(is_there, within=PAGE_WITHIN):
        raise Skipped("its page is not there yet")  # it comes behind its daemon's work
    what = fault.chance.choice(sorted(ATTACKERS)), str(port_in(log))
    command = (sys.executable, "-m", "tests.verification.soak.attackers", *what)
    with (world.folder / "attackers.log").open("ab") as out:
        streams: Any = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
        attackers = await asyncio.create_subprocess_exec(*command, cwd=REPOSITORY, **streams)
    yield
    if attackers.returncode is not None:
        world.broken.append(f"the attackers ended by themselves: {what[0]}")
        return
    attackers.kill()
    await attackers.wait()
