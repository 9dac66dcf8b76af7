"""What comes by HTTP: a daemon's page is flooded, and its daemon must not notice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import orjson

from tests.verification.bench.attackers import ATTACKERS
from tests.verification.soak.daemons import ROOT
from tests.verification.soak.faults.base import Fault, Skipped
from tests.verification.soak.world import World

THERE_WITHIN = 20.0  # seconds for a page to listen, whatever else is broken


class HttpFlood(Fault):
    """Chunks, silence, looks at everything, or event streams, without a token."""

    name = "HTTP flood"
    weight = 3.0

    def __init__(self, chance: Random, daemons: int) -> None:
        self.index = chance.randrange(daemons)
        self.kind = chance.choice(sorted(ATTACKERS))
        self.holds = frozenset({f"page {self.index}"})
        self.lasts = chance.uniform(2.0, 6.0)
        self._attackers: asyncio.subprocess.Process | None = None

    async def apply(self, world: World) -> None:
        port = await _port_of_page(world.slots[self.index].log)
        command = [sys.executable, "-m", "tests.verification.bench.attackers", self.kind, str(port)]
        with (world.folder / "attackers.log").open("ab") as log:
            self._attackers = await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    async def undo(self, world: World) -> None:
        assert self._attackers is not None
        if self._attackers.returncode is not None:
            world.broken.append(f"the attackers ended by themselves: {self.kind}")
            return
        self._attackers.kill()
        await self._attackers.wait()


async def _port_of_page(log: Path) -> int:
    """The port that a daemon's page named last.

    Raises:
        Skipped: it has named none for long: a page comes behind its daemon's work.
    """
    until = time.monotonic() + THERE_WITHIN
    while time.monotonic() < until:
        if (said := _last_said(log)) is not None:
            return int(str(said["url"]).rstrip("/").rpartition(":")[2])
        await asyncio.sleep(0.1)
    raise Skipped("its page is not there yet")


def _last_said(log: Path) -> dict[str, Any] | None:
    lines = [line for line in log.read_bytes().splitlines() if b'"http.listening"' in line]
    return dict(orjson.loads(lines[-1])) if lines else None
