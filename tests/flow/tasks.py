"""Tasks and claims for the tests of the flow, with only what matters to a test spelled out."""

from __future__ import annotations

from typing import Any

from groupflow.core.task import Task
from groupflow.flow.handling import Failed, Runner
from groupflow.store.given import Claim

TASK = Task(
    id="t-1",
    type="import.contacts",
    group="contact:42",
    body=b'{"name": "Ada"}',
    tenant="42",
    attempt=2,
    crashes=1,
    stage="check",
    context={"rows": 3},
    fence=7,
    enqueued_at=1_700_000_000.5,
)


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
