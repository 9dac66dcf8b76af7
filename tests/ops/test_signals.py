"""Signals that ask a process to end: the first one, its echoes, and one in a hurry."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from groupflow.ops.signals import ECHO, Ending
from tests.deadlines import deadline


class Heard:
    """What was called, by a clock of its own."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls: list[str] = []
        self.ending = Ending(
            lambda: self.calls.append("stop"),
            lambda number: self.calls.append(number.name),
            clock=lambda: self.now,
        )

    def signal(self, after: float) -> None:
        self.now = 100.0 + after
        self.ending.on_signal(signal.SIGTERM)


@pytest.mark.parametrize("after", [0.0, 0.05, ECHO - 0.001])
def test_an_echo_changes_nothing(after: float) -> None:
    heard = Heard()
    for each in (0.0, after, after):
        heard.signal(each)
    assert heard.calls == ["stop"]


@pytest.mark.parametrize("after", [ECHO, 60.0])
def test_a_later_one_is_in_a_hurry(after: float) -> None:
    """Counted from the first one: echoes don't put it off."""
    heard = Heard()
    for each in (0.0, 0.5, 0.9, after):
        heard.signal(each)
    assert heard.calls == ["stop", "SIGTERM"]


async def test_it_hears_what_the_process_is_sent() -> None:
    came = asyncio.Event()
    Ending(came.set, lambda _: None).listen([signal.SIGUSR2])
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        async with asyncio.timeout(deadline()):
            await came.wait()
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR2)
