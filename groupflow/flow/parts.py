"""Runs the parts of a daemon side by side; the end of one may end the others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import structlog

from groupflow.core.errors import GroupflowError

log = structlog.get_logger("groupflow.daemon")


async def wait_for(tasks: Sequence[asyncio.Task[None]], seconds: float) -> bool:
    """Wait for tasks to end. True where some did not."""
    if not tasks:
        return False
    _, pending = await asyncio.wait(tasks, timeout=seconds)
    return bool(pending)


async def run_part(name: str, run: Coroutine[Any, Any, None]) -> None:
    """Run a part of the daemon. A task group ignores a child that is cancelled.

    Raises:
        GroupflowError: a library cancelled the part, and not the daemon.
    """
    try:
        await run
    except asyncio.CancelledError as error:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        raise GroupflowError(f"{name} was cancelled by a library, not by the daemon") from error


async def run_for_ever(name: str, run: Coroutine[Any, Any, None]) -> None:
    """Run a part that is to run for ever; it is an error if it ends by itself."""
    await run_part(name, run)
    raise GroupflowError(f"{name} ended by itself")


def last_word(group: ExceptionGroup[Exception]) -> GroupflowError:
    """The error that ended the daemon: the first root cause only."""
    error: Exception = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, GroupflowError):
        return error
    # Not foreseen: the traceback goes to the log, and the supervisor restarts the daemon.
    log.critical("daemon.failed", error=repr(error), exc_info=error)
    return GroupflowError(f"the daemon failed: {error!r}")
