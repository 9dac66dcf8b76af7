"""The demo from start to end: servers, daemons, publishing, watching, comparing, the summary."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from groupflow.demo.compare import compare
from groupflow.demo.daemons import NAMES, DaemonDied, running_daemons
from groupflow.demo.database import open_database
from groupflow.demo.history import judge, read_attempts
from groupflow.demo.progress import Progress
from groupflow.demo.publish import publish
from groupflow.demo.screen import screen_for
from groupflow.demo.serial import import_serially, total_lookup_seconds
from groupflow.demo.servers import Servers, servers_for
from groupflow.demo.summary import Result, print_intro, print_summary
from groupflow.demo.tasks import ImportTask, load_tasks
from groupflow.demo.ungrouped import finishing_order, import_in_order
from groupflow.demo.watch import Limits, watch

INTERRUPTED = 130

# Workers of both daemons, of both kinds: what demo.toml says.
_WORKERS = 2 * (8 + 16)


def run_demo(config: Path | None = None, limits: Limits | None = None) -> int:
    """Run the demo.

    Args:
        config: a file that names the servers to use; ``None`` starts private ones.
        limits: when to give up.

    Returns:
        The exit status: 0 if all came out as a serial import gives it, 1 if not, 130 if it was
        interrupted.

    Raises:
        GroupflowError: it could not be run.
    """
    console = Console()
    try:
        result = asyncio.run(_demo(console, config, limits or Limits()))
    except DaemonDied as error:
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("Interrupted. Everything that the demo had started is stopped.")
        return INTERRUPTED
    print_summary(console, result)
    return 0 if result.equal else 1


async def _demo(console: Console, config: Path | None, limits: Limits) -> Result:
    _stop_on_termination()
    tasks = load_tasks()
    print_intro(console, tasks)
    run = secrets.token_hex(4)
    async with servers_for(config, run, console) as servers:
        with TemporaryDirectory(prefix="groupflow-demo-") as name:
            imported = Path(name) / "imported.db"
            # The tables are there before the daemons are: they have nothing to create at once.
            open_database(imported).close()
            stopped = await _import(console, servers, tasks, imported, run=run, limits=limits)
            return await asyncio.to_thread(_judge, tasks, imported, stopped)


def _stop_on_termination() -> None:
    """Ctrl-C, a SIGTERM, or a terminal that is closed stops all in good order."""
    demo = asyncio.current_task()
    assert demo is not None  # noqa: S101  we are called from it
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, demo.cancel)


async def _import(
    console: Console,
    servers: Servers,
    tasks: Sequence[ImportTask],
    imported: Path,
    *,
    run: str,
    limits: Limits,
) -> str | None:
    """Let the daemons import all; returns why that was given up, if it was."""
    async with running_daemons(imported.parent, servers.environment(imported)) as daemons:
        progress = Progress(tasks, {each.process.pid: each.name for each in daemons})
        publishing = asyncio.create_task(publish(servers, run, tasks, progress))
        try:
            with screen_for(console) as screen:
                return await watch(
                    imported, progress, screen, daemons, publishing=publishing, limits=limits
                )
        finally:
            publishing.cancel()


def _judge(tasks: Sequence[ImportTask], imported: Path, stopped: str | None) -> Result:
    """Hold what the daemons wrote against a serial import. They have ended: nothing more comes."""
    with closing(sqlite3.connect(imported)) as db:
        verdict = judge(tasks, read_attempts(db))
    serial, ungrouped = (imported.with_name(name) for name in ("serial.db", "ungrouped.db"))
    writing_seconds = import_serially(serial, tasks)
    failed = import_in_order(ungrouped, finishing_order(tasks, _WORKERS))
    return Result(
        tasks=tasks,
        daemons=len(NAMES),
        verdict=verdict,
        tables=compare(serial, imported),
        serial_seconds=total_lookup_seconds(tasks) + writing_seconds,
        ungrouped_failed=failed,
        ungrouped_wrong=sum(table.differing for table in compare(serial, ungrouped)),
        stopped=stopped,
    )
