"""Commands for the tests of what runs them, and how a test waits for processes and ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import pytest
import uvloop

from groupflow.flow.exec_handlers import ExecRunner
from groupflow.settings.rules import HandlerRule
from tests.deadlines import deadline

P = ParamSpec("P")


def on_uvloop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on the daemon's own loop: each kind of loop runs processes in its own way."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            loop.run(test(*args, **kwargs))

    return run


def runner(*command: str, **words: Any) -> ExecRunner:
    return ExecRunner(HandlerRule(exec=command, **words), command)


def shell(script: str) -> ExecRunner:
    return runner("/bin/sh", "-c", script)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something outside of this process is so."""
    async with asyncio.timeout(deadline()):
        while not is_so():
            await asyncio.sleep(0.005)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    return False


async def cancelled(handling: Awaitable[Any], is_running: Callable[[], bool]) -> None:
    """Cancel a handling once its processes run, and wait until it has ended so."""
    running = asyncio.ensure_future(handling)
    await until(is_running)
    running.cancel()
    async with asyncio.timeout(deadline()):
        with pytest.raises(asyncio.CancelledError):
            await running
