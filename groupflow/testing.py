"""For the tests of handlers: run one on a task, without servers, and look at its outcome.

```python
from groupflow.testing import make_task, run

async def test_a_contact_without_a_name_is_dead():
    outcome = await run(app, make_task("import.contacts", {"id": 7}))
    assert outcome == Dead("the contact has no name")
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson

from groupflow.core.app import App
from groupflow.core.outcome import Dead, Outcome
from groupflow.core.task import Task
from groupflow.flow.handling import Failed
from groupflow.flow.python_handlers import PythonRunners

__all__ = ["Failed", "make_task", "run"]


def make_task(type: str, body: Any = None, **facts: Any) -> Task:
    """A task as a handler would get it.

    Args:
        type: the task type.
        body: its bytes as they are; anything else is written as JSON.
        facts: further attributes of `Task`: group, tenant, attempt, stage, context, fence …
    """
    raw = body if isinstance(body, bytes) else orjson.dumps({} if body is None else body)
    facts.setdefault("id", "test")
    return Task(type=type, body=raw, **facts)


async def run(app: App, task: Task, state: Mapping[str, Any] | None = None) -> Outcome | Failed:
    """Run the handler of the task's type once, as a worker would.

    Args:
        app: the application under test; its lifespan is not run.
        task: see `make_task`.
        state: put into ``app.state`` first, in place of what the lifespan would.

    Returns:
        The outcome; `Failed` where the handler raised, answered nonsense or ran over its time.
    """
    app.state.update(state or {})
    with ThreadPoolExecutor(1) as threads:
        runner = PythonRunners(app, threads).find(task.type)
        if runner is None:
            return Dead(f"no handler for type {task.type!r}")
        try:
            async with asyncio.timeout(runner.timeout):
                return await runner.handle(task)
        except TimeoutError:
            return Failed("TimeoutError", f"it ran over its {runner.timeout} s")
