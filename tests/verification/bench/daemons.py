"""Ours under measurement: `groupflow run`, as users run it, in a process of its own."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.endtoend.process import Process, environment, groupflow
from tests.page.served import toml_of as served_toml_of
from tests.verification.bench.load import Load
from tests.verification.bench.records import Records, cpu_of
from tests.verification.pacing import comes

APP = "tests.verification.bench.handlers:app"
NAMESPACE = "bench"
LOOK = 0.01  # seconds between two looks at whether something has come to pass
START_WITHIN = 60.0  # seconds
WITHIN = 300.0  # seconds for a run; one that takes longer is broken


class RunFailed(Exception):
    """A run that can't be measured; the message says why."""


def toml_of(redis: str, rabbitmq: str, queue: str, **facts: int) -> str:
    """A daemon's configuration; the page is on, as by default, on a port that is free.

    Args:
        redis: its store.
        rabbitmq: its broker.
        queue: the queue that it consumes.
        facts: `grouped`, its workers for grouped tasks; `partitions` of its namespace; `told`:
            whether an exchange is told of all ends; `run` or `batch` of its groups' rule.
    """
    store = {"url": redis, "namespace": NAMESPACE, "partitions": facts.pop("partitions", 1)}
    events = [("[events]", {"exchange": f"{queue}.told"})] if facts.pop("told", 0) else []
    return served_toml_of([
        ("[rabbitmq]", {"url": rabbitmq, "queue": queue}),
        ("[redis]", store),
        ("[workers]", {"plain": 8, "grouped": facts.pop("grouped", 16)}),
        ("[http]", {"listen": "127.0.0.1:0"}),
        *events,
        ("[[groups]]", {"name": "bench", "app": "bench", "key": "{entity}", **facts}),
    ])  # fmt: skip


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running daemon: its process, and its files."""

    process: Process
    file: Path
    config: Path
    code: Path

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far, of its page's process too."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return sum(cpu_of(each) for each in (pid, *map(int, children)))

    @property
    def records(self) -> Records:
        """What it did, once it has ended."""
        return Records.read(self.file)

    async def until_done(self, seconds: float = WITHIN) -> None:
        """Wait until it has ended as many tasks as the load has.

        Raises:
            RunFailed: it died, or took longer.
        """
        reached = self.file.with_suffix(".reached")
        await self.until(partial(asyncio.to_thread, reached.exists), seconds, "its tasks")

    async def until(
        self,
        condition: Callable[[], Awaitable[bool]],
        seconds: float,
        what: str,
        look: float = LOOK,
    ) -> None:
        """Wait until a condition holds.

        Raises:
            RunFailed: the daemon died, or it took longer than `seconds`.
        """

        async def is_so() -> bool:
            if await condition():
                return True
            if not self.process.is_running:
                raise RunFailed(f"a daemon died:\n{self.process.tail()}")
            return False

        if not await comes(is_so, within=seconds, look=look):
            raise RunFailed(f"waited {seconds:g} s for {what}:\n{self.process.tail()}")

    async def stop(self) -> None:
        """End it in order; its records are written then.

        Raises:
            RunFailed: it did not end well.
        """
        try:
            code = await asyncio.to_thread(self.process.stop)
        except AssertionError as error:
            raise RunFailed(str(error)) from None
        if code:
            raise RunFailed(f"a daemon ended with {code}:\n{self.process.tail()}")

    async def ask(self, *words: str) -> None:
        """Run a verb of its own version with its configuration; politely, beside what is measured.

        Raises:
            RunFailed: the verb failed.
        """
        command = ["nice", *groupflow(*words, "--config", self.config)]
        how = {"cwd": self.code, "capture_output": True, "text": True}
        run = partial(subprocess.run, command, timeout=WITHIN, **how)
        done = await asyncio.to_thread(run)
        if done.returncode:
            raise RunFailed(f"groupflow {' '.join(words)}: {done.stderr}")


@asynccontextmanager
async def running(
    configuration: str, load: Load, folder: Path, code: Path, *, redis: int
) -> AsyncIterator[Daemon]:
    """Start a daemon, wait until it and its page work, and stop it at the end.

    Args:
        configuration: its own, as TOML.
        load: what its handlers have to know.
        folder: of this run.
        code: where the package is that it runs.
        redis: the process of its Redis, whose processor time it shall note too.
    """
    config, log, records = (folder / f"daemon.{kind}" for kind in ("toml", "log", "records"))
    config.write_text(configuration)
    told = environment(
        BENCH_RECORDS=str(records),
        BENCH_TASKS=str(load.tasks),
        BENCH_HANDLER_MS=str(load.handler_ms),
        BENCH_REDIS_PID=str(redis),
        PYTHONPATH=str(code),  # for the page's process too, which doesn't look where it stands
    )
    command = groupflow("run", "--config", config, "--name", "d1", "--app", APP)
    process = Process("d1", command, told, log, code)
    daemon = Daemon(process, records, config, code)
    try:

        async def has_started() -> bool:
            said = log.read_bytes()
            return b"daemon.started" in said and b'"http.listening"' in said

        await daemon.until(has_started, START_WITHIN, "start")
        yield daemon
        await daemon.stop()
    finally:
        process.close()
