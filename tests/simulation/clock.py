"""The clock and the chance of a simulated run: both are a seed's, neither is the machine's.

`install` comes before anything of groupflow is imported: modules take `monotonic` and `uuid4` by
name. It changes this process for good, so a simulation has a process of its own.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
import uuid

EPOCH = 1_800_000_000.0  # Unix time of a run's beginning
BEGIN = 1_000.0  # and what `monotonic` says then

real = time.perf_counter  # seconds of the machine, to measure how fast the simulation is


class _Clock:
    """Virtual time, which stands still while code runs."""

    now = BEGIN


_clock = _Clock()


def now() -> float:
    """Virtual seconds, as `time.monotonic` counts them."""
    return _clock.now


def set_now(at: float) -> None:
    """Move on; only the loop does."""
    _clock.now = at


async def pass_virtual(seconds: float) -> None:
    """Wait in the loop's virtual time, which jumps on as soon as nothing is ready: see `loop`."""
    await asyncio.sleep(seconds)


def wall() -> float:
    """Virtual Unix seconds."""
    return EPOCH + _clock.now - BEGIN


def micros() -> int:
    """The same, as Redis's clock has them."""
    return round(wall() * 1_000_000)


def _uuid4() -> uuid.UUID:
    return uuid.UUID(int=random.getrandbits(128), version=4)


def install() -> None:
    """Put virtual time and seeded chance in place of the machine's, for this whole process."""
    time.monotonic = time.perf_counter = now
    time.time = wall
    time.monotonic_ns = time.perf_counter_ns = lambda: int(_clock.now * 1e9)
    time.time_ns = lambda: int(wall() * 1e9)
    uuid.uuid4 = _uuid4
    secrets.token_hex = lambda nbytes=None: random.randbytes(nbytes or 32).hex()
