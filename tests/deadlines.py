"""How long tests wait for what must happen: one deadline, and one scale for all of them.

A deadline is reached only where something is broken, so a long one costs nothing. How long it is
follows the machine's load, since the same work takes as many times longer as there are processes to
a core. `TEST_SCALE=8 make test` says that all takes eight times as long, for a machine that is slow
rather than busy.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

SECONDS = 60.0  # where nothing but the tests runs
LOOK = 0.005  # between two looks at what sends no signal
MOST = 5.0  # by which the load stretches it, at most; TEST_SCALE may say more


def scale() -> float:
    """By how much work may take longer just now; at least 1."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return max(1.0, min(MOST, load), float(os.environ.get("TEST_SCALE") or 1))


def deadline(seconds: float = SECONDS) -> float:
    """How many seconds from now on a test waits for something that must happen."""
    return seconds * scale()


def short_lease(seconds: float = 1.0) -> float:
    """A lease that is soon over, and that a daemon which works renews in time all the same."""
    return seconds * scale()


async def until(is_so: Callable[[], Any], look: float = LOOK) -> None:
    """Wait until something is so that sends no signal: a process, a server's state, a log."""
    async with asyncio.timeout(deadline()):
        while not (await found if isawaitable(found := is_so()) else found):
            await asyncio.sleep(look)
