"""The demo from start to end: servers, daemons, publishing, a kill, the verdict."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from groupflow.broker.publisher import Outgoing, publishing
from groupflow.demo.daemons import Daemon, DaemonDied, running_daemons
from groupflow.demo.handlers import DATABASE_VARIABLE
from groupflow.demo.imports import open_database
from groupflow.demo.screen import Screen, intro, print_summary, read_state, tell
from groupflow.demo.servers import Servers, servers_for
from groupflow.demo.tasks import ImportTask, load_tasks
from groupflow.demo.verdict import judge
from groupflow.ops.signals import Ending

INTERRUPTED = 130

# Workers of both daemons, of both kinds: what demo.toml says.
_WORKERS = 2 * (8 + 16)

_LOOK_EVERY = 0.1  # seconds


def run_demo(config: Path | None, *, keep: bool = False) -> int:
    """Run the demo on the servers that a file names, or on private ones.

    With `keep` the servers and daemons stay after the verdict, for a look at the page, until
    Ctrl-C.

    Returns the exit status: 0 if the result equals a serial import's, 1 if not, 130 if it was
    interrupted. Raises `GroupflowError` where the demo could not run.
    """
    console = Console()
    try:
        return asyncio.run(_demo(console, config, keep=keep))
    except DaemonDied as error:
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        tell(console, "Interrupted. Everything that the demo had started is stopped.")
        return INTERRUPTED


async def _demo(console: Console, config: Path | None, *, keep: bool) -> int:
    demo = asyncio.current_task()
    assert demo is not None  # noqa: S101  we are called from it
    # Ctrl-C, a SIGTERM, or a terminal that is closed stops all in good order.
    Ending(demo.cancel, lambda _: demo.cancel()).listen(
        (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    )
    tasks = load_tasks()
    tell(console, intro(tasks))
    with TemporaryDirectory(prefix="groupflow-demo-") as folder:
        work = Import(tasks, Path(folder) / "imported.db")
        code = 1

        async def conclude(stopped: str, daemons: Sequence[Daemon]) -> None:
            nonlocal code
            verdict = await asyncio.to_thread(judge, tasks, work.database, _WORKERS)
            print_summary(console, verdict, work.killed, stopped)
            code = 0 if verdict.equal and not stopped else 1
            if keep:
                await _stay(console, demo, daemons)

        async with servers_for(config, console) as servers:
            await work.run(servers, Screen(console), conclude)
    return code


async def _stay(console: Console, demo: asyncio.Task[Any], daemons: Sequence[Daemon]) -> None:
    """Print where the page is, and wait for Ctrl-C."""
    pages = " and ".join([await daemon.page() for daemon in daemons])
    tell(console, f"\nIts page is at {pages}\nCtrl-C ends it.")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        demo.uncancel()  # the Ctrl-C that we waited for


class Import:
    """One import."""

    def __init__(self, tasks: Sequence[ImportTask], database: Path) -> None:
        # The tables exist before the daemons start, so that these don't create them at once.
        open_database(database, tasks).close()
        self.database = database
        self.killed = ""  # the name of the daemon that was killed, once one was
        self._tasks = tasks
        self._published = 0  # messages that the broker has confirmed

    async def run(
        self,
        servers: Servers,
        screen: Screen,
        conclude: Callable[[str, Sequence[Daemon]], Awaitable[None]],
    ) -> None:
        """Let the daemons import all; conclude while they still run.

        `conclude` gets why the import was given up, or "".
        """
        environment = servers.environment() | {DATABASE_VARIABLE: str(self.database)}
        async with running_daemons(self.database.parent, environment) as daemons:
            publishing = asyncio.create_task(self._publish(servers))
            try:
                with screen.open():
                    stopped = await self.watch(screen, daemons, publishing)
            finally:
                publishing.cancel()
            await conclude(stopped, daemons)

    async def _publish(self, servers: Servers) -> None:
        """Publish as a client would: in order, each message confirmed."""

        def count() -> None:
            self._published += 1

        messages = (
            Outgoing(task.body, task.type, f"{servers.name}-{task.number}") for task in self._tasks
        )
        async with publishing(servers.rabbitmq, servers.name) as publisher:
            await publisher.publish_all(messages, on_confirm=count)

    async def watch(
        self,
        screen: Screen,
        daemons: Sequence[Daemon],
        publishing: asyncio.Task[None],
        standstill: float = 30.0,
    ) -> str:
        """Follow the handlers' log until every task was handled; half-way, kill the last daemon.

        Fails as the publishing does, and with `DaemonDied` if a daemon ends by itself. Returns why
        it gave up, which it does after `standstill` seconds without a task handled; else "".
        """
        handled, last_news, happened = 0, time.monotonic(), ""
        with closing(sqlite3.connect(self.database)) as db:
            while True:
                now = time.monotonic()
                state = read_state(db, now)
                screen.show(state, self._published, happened)
                if state.handled == state.total:
                    return ""
                if state.handled > handled:
                    handled, last_news = state.handled, now
                if now - last_news > standstill:
                    done = f"{handled:,} of {state.total:,} tasks were handled"
                    return f"Gave up after {standstill:g} s without progress: {done}."
                for daemon in daemons:
                    daemon.check()
                if publishing.done():
                    publishing.result()
                if daemons and not self.killed and handled > state.total / 2:
                    self.killed = daemons[-1].name
                    await daemons[-1].crash()
                    happened = f"[yellow]{self.killed} killed with -9, and started again[/]"
                await asyncio.sleep(_LOOK_EVERY)
