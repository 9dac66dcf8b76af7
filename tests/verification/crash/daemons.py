"""One life of a daemon: forked from a warmed process, armed, and run with real settings."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import uvloop

from groupflow import Advance, App, Dead, Retry, Task, crashpoints
from groupflow.core.outcome import Outcome
from groupflow.daemon import Daemon
from groupflow.ops.logs import configure_logging
from groupflow.settings.model import Settings
from tests.history.events import Journal, event_of
from tests.verification.crash.plans import Life, Plan

LEASE = 1.0
TYPE = "crash"
FAILED = 3  # the exit code of a daemon that ended with an error
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_LIBC = ctypes.CDLL(None, use_errno=True)


def settings_of(plan: Plan, redis: str, rabbitmq: str, name: str) -> Settings:
    """A trial's settings; `name` is its namespace and its queue."""
    rule = {"app": "grouped", "key": "{group}", "name": "grouped"}
    options = ("run", "debounce", "batch", "batch_wait", "concurrency", "rate")
    workers = {"plain": 2, "grouped": 3, "lease": LEASE, "drain": 0.05, "max_crashes": 99}
    return Settings.model_validate(
        {
            "rabbitmq": {"url": rabbitmq, "queue": name, "prefetch": plan.prefetch},
            "redis": {"url": redis, "namespace": name},
            "workers": {**workers, "order": plan.order},
            "fields": {"delay": "delay"},
            "retry": {"interval": -0.05},
            "history": {"dead_memory": 0} if plan.archives else {},
            "groups": [{**rule, **{option: getattr(plan, option) for option in options}}],
            # A page a life would still be starting, at its low priority, when a hundred have died.
            "http": {"listen": ""},
        }
    )


def die_with_parent() -> None:
    """Be killed as soon as the parent process is gone, however it went."""
    _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)


def fork_daemon(settings: Settings, life: Life, folder: Path) -> int:
    """Start a daemon in a child process. Returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        die_with_parent()
        _live(settings, life, folder)
    finally:
        os._exit(FAILED)


def _live(settings: Settings, life: Life, folder: Path) -> NoReturn:
    log = os.open(folder / "daemons.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 2)
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115  for this whole process
    configure_logging("info", "json")
    crashpoints.arm(str(life.crash or ""))
    code = FAILED
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, life, Journal(folder / "journal.jsonl")))
        code = 0
    os._exit(code)


async def _serve(settings: Settings, life: Life, journal: Journal) -> None:
    app = App()
    started = 0

    async def handle(task: Task) -> Outcome | None:
        nonlocal started
        body = task.json()
        n = body["n"]
        journal.write(event_of("start", task, n))
        how = "cut"
        try:
            started += 1
            if started == life.stop_at:
                daemon.stop()
            if daemon.is_stopping:
                await asyncio.Event().wait()  # past the drain, however long its parts take to end
            await asyncio.sleep(body["seconds"])
            how = "failed"
            if body["what"] == "fail" and task.attempt == 1:
                raise RuntimeError("the first attempt fails")
            if body["what"] == "stage" and task.stage is None:
                how = "advanced"
                return Advance("two", {"n": n})
            if body["what"] == "poison":
                return Dead("poison")
            if body["what"] == "stage" and task.context != {"n": n}:
                raise AssertionError(f"the context is {task.context}")
            how = "done"
        finally:
            journal.write(event_of("end", task, n, how))
        return None

    async def handle_all(tasks: Sequence[Task]) -> list[Outcome | None]:
        """One after another, up to the first that isn't done: as if each came alone."""
        told: list[Outcome | None] = []
        for task in tasks:
            try:
                told.append(await handle(task))
            except RuntimeError:
                told.append(Retry(reason="the first attempt fails"))
            if told[-1] is not None:
                break
        return told + [None] * (len(tasks) - len(told))

    if (batch := settings.groups[0].batch) > 1:
        app.batch_handler(TYPE, size=batch)(handle_all)
    else:
        app.handler(TYPE)(handle)
    # Behind the handler: a daemon looks up the types when it is built.
    daemon = Daemon(settings, app, life.name)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, daemon.stop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _tell_where)
    await daemon.run()


def _tell_where() -> None:
    """Write into the log where every task waits: asked of a daemon that doesn't end."""
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)
