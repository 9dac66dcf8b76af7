"""Tasks, claims and commands for the tests of the flow, with only what matters spelled out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, cast

import pytest
import uvloop

from groupflow.core.outcome import Done
from groupflow.core.task import Task
from groupflow.flow.exec_handlers import ExecRunner
from groupflow.flow.handling import Failed, Runner
from groupflow.settings.rules import HandlerRule
from groupflow.store.given import Claim
from tests.deadlines import deadline, until

TASK = Task(
    id="t-1", type="import.contacts", group="contact:42", body=b'{"name": "Ada"}', tenant="42",
    attempt=2, crashes=1, stage="check", context={"rows": 3}, fence=7, enqueued_at=1_700_000_000.5,
)  # fmt: skip
FACTS = {
    "id": "t-1", "type": "import.contacts", "group": "contact:42", "tenant": "42", "attempt": "2",
    "crashes": "1", "lost_leases": "0", "stage": "check", "fence": "7",
    "enqueued_at": "1700000000.5",
}  # fmt: skip
"""What handlers outside of the daemon are told of it, beside its context."""


def task(**facts: Any) -> Task:
    """A task with these facts, and without any that it needn't have."""
    return Task(**{"id": "t-1", "type": "t", "group": None, "body": b"{}", "fence": 7, **facts})


def claim(of: Task, *, errors: list[dict[str, Any]] | None = None) -> Claim:
    """A claim of a task by worker ``w``."""
    entry = f"{1_700_000_000_000_000}.{of.id}".encode()
    return Claim("w", of.fence, entry, of, "crm" if of.group else None, errors or [])


async def failure(runner: Runner, of: Task | None = None) -> Failed:
    """How an attempt has failed, as it must."""
    outcome = await runner.handle(of or task())
    assert isinstance(outcome, Failed)
    return outcome


def unnamed(outcomes: Iterable[Any]) -> list[Any]:
    """Outcomes whose follow-up tasks have no ids, which are fresh each time."""
    return [
        replace(each, then=tuple(replace(cast(Any, one), id="") for one in each.then))
        if isinstance(each, Done)
        else each
        for each in outcomes
    ]


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
