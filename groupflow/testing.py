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
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson

from groupflow.core.app import App
from groupflow.core.outcome import Dead, Outcome
from groupflow.core.task import Task
from groupflow.flow.batches import Together
from groupflow.flow.handling import AttemptTimeout, Failed, Runner
from groupflow.flow.python_handlers import PythonRunners

__all__ = ["Failed", "make_task", "run", "run_batch"]


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
        The outcome; `Failed` where the handler raised, answered nonsense or ran over its time;
        `Dead` at once where the application has no handler of that type. A daemon lets such a task
        wait for `workers.unknown_for` first: another one may have a handler.
    """
    return (await _run(app, [task], state))[0]


async def run_batch(
    app: App, tasks: Sequence[Task], state: Mapping[str, Any] | None = None
) -> list[Outcome | Failed]:
    """Run the batch handler of the tasks' type once on all of them, as a worker would.

    Args:
        app: the application under test; its lifespan is not run.
        tasks: one or more, of one type and one group.
        state: put into ``app.state`` first, in place of what the lifespan would.

    Returns:
        The outcomes up to the first that isn't done; those behind it would come again. `Dead` as
        of `run`.

    Raises:
        ValueError: there are no tasks, or they have several types.
    """
    if len({task.type for task in tasks}) != 1:
        raise ValueError("a batch has tasks of one type, and at least one")
    return await _run(app, tasks, state)


async def _run(
    app: App, tasks: Sequence[Task], state: Mapping[str, Any] | None
) -> list[Outcome | Failed]:
    app.state.update(state or {})
    with ThreadPoolExecutor(1) as threads:
        runner = PythonRunners(app, threads).find(tasks[0].type)
        if runner is None:
            return [Dead(f"no handler for type {tasks[0].type!r}")]
        # In a task of its own, as a worker's attempts are: nothing of it is left in the test's.
        return await asyncio.create_task(_attempt(runner, tasks))


async def _attempt(runner: Runner, tasks: Sequence[Task]) -> list[Outcome | Failed]:
    limit = None if runner.timeout is None else AttemptTimeout(tasks[0], runner.timeout)
    try:
        if isinstance(runner, Together):
            return await runner.handle_all(tasks)
        return [await runner.handle(tasks[0])]
    except asyncio.CancelledError:
        if limit is None or not limit.is_over:
            raise
        return [Failed("TimeoutError", f"it ran over its {runner.timeout} s")]
    finally:
        if limit is not None:
            limit.lift()
