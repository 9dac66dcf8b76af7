"""Signals that ask a process to end: the first one, its echoes, and one in a hurry."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from groupflow.ops.signals import ECHO, Ending
from tests.deadlines import deadline


@pytest.mark.parametrize("after", [0.0, 0.05, ECHO - 0.001, ECHO, 60.0])
def test_an_echo_changes_nothing_and_a_later_one_is_in_a_hurry(after: float) -> None:
    """Counted from the first one: echoes don't put it off."""
    calls, now = list[str](), [100.0]
    ending = Ending(
        lambda: calls.append("stop"), lambda number: calls.append(number.name), lambda: now[0]
    )
    for seconds in (0.0, 0.0, min(0.9, after), after):
        now[0] = 100.0 + seconds
        ending.on_signal(signal.SIGTERM)
    assert calls == ["stop", *(["SIGTERM"] if after >= ECHO else [])]


async def test_it_hears_what_the_process_is_sent() -> None:
    came = asyncio.Event()
    Ending(came.set, lambda _: None).listen([signal.SIGUSR2])
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        async with asyncio.timeout(deadline()):
            await came.wait()
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR2)
