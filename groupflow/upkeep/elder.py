"""elder: the process that had a daemon's name before this one, and whether it still lives.

Two daemons under one name would take each other's tasks in turns. So the newcomer gives way to an
elder that is seen alive after it came, and takes the name of a dead one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from groupflow.core.errors import NameTaken
from groupflow.store.client import StoreClient
from groupflow.store.sessions import Elder, start

log = structlog.get_logger("groupflow.lease")

SILENT = 3.0  # seconds without a renewal, after which an elder on another machine is taken for dead


def this_process() -> str:
    """What tells this process from all others, dead or alive; empty where that is unknown.

    The kernel's boot, the namespace of its pid, the pid, and when it began.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")[:8]
        space = Path("/proc/self/ns/pid").stat().st_ino
        return f"{boot}:{space}/{os.getpid()}/{_began('self')}"
    except (OSError, ValueError, LookupError):
        return ""


async def come(daemon: str, partitions: Sequence[StoreClient]) -> str:
    """Name a process that starts, as `start` does, once no other lives that has the daemon's name.

    Raises:
        NameTaken: one does.
        StoreUnavailable: no partition answers.
        ServerUnreachable: a Redis refused the credentials.
    """
    known = dict[int, Elder]()
    process, elders = await _look(daemon, partitions)
    # A partition that was away may tell later of one that has long been dead.
    while new := {number: each for number, each in elders.items() if number not in known}:
        known |= new
        wait = max(min(SILENT - each.silent, each.left) for each in new.values())
        if wait > 0:
            held_by = _named(next(iter(new.values())).info)
            log.info("name.awaited", daemon=daemon, held_by=held_by, seconds=round(wait, 3))
            await asyncio.sleep(wait)
        process, elders = await _look(daemon, partitions)
        for number, each in known.items():
            if number in elders and elders[number].ends != each.ends:
                raise _taken(daemon, each.info)
    return process


async def _look(daemon: str, partitions: Sequence[StoreClient]) -> tuple[str, dict[int, Elder]]:
    """As `start`, without elders that are surely dead."""
    process, elders = await start(daemon, partitions)
    return process, {n: each for n, each in elders.items() if _may_live(daemon, each)}


def _may_live(daemon: str, elder: Elder) -> bool:
    """Whether an elder may live, where that can't be seen from here; False where it is dead.

    Raises:
        NameTaken: it lives.
    """
    own, its = this_process(), str(elder.info.get("process", ""))
    if own and own == its:
        return False  # a daemon that ran in this very process
    space, pid, began = _parted(its)
    if not own or space != _parted(own)[0]:
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is another user's
    try:
        is_another = str(_began(pid)) != began
    except (OSError, ValueError, LookupError):
        return True
    if is_another:
        return False
    raise _taken(daemon, elder.info)


def _parted(process: str) -> tuple[str, str, str]:
    """Where a process's pid counts, the pid, and when it began."""
    space, _, rest = process.partition("/")
    pid, _, began = rest.partition("/")
    return space, pid, began


def _began(pid: str) -> int:
    """When a process began, in ticks since the boot.

    Raises:
        OSError, ValueError, LookupError: that can't be seen, or it has ended.
    """
    # Behind the name, which may hold anything: its state, then 18 numbers, then this.
    facts = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return -1 if facts[0] in "ZX" else int(facts[19])


def _taken(daemon: str, info: Mapping[str, Any]) -> NameTaken:
    return NameTaken(
        f"a daemon named {daemon!r} runs already, {_named(info)}: stop that one first, or give "
        "this one a --name of its own"
    )


def _named(info: Mapping[str, Any]) -> str:
    return f"pid {info.get('pid', 'unknown')} on {info.get('host', 'an unknown host')}"
