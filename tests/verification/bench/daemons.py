"""Ours under measurement: `groupflow run`, as users run it, in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from redis.asyncio import Redis

from groupflow.store.partitions import keys_of
from tests.verification.bench.attackers import port_in
from tests.verification.bench.filling import NAMESPACE, RULE
from tests.verification.bench.load import Load
from tests.verification.bench.records import Records, cpu_of

REPOSITORY = Path(__file__).resolve().parents[3]
LOOK = 0.01  # seconds
START_WITHIN = 60.0  # seconds; to drain and leave, too
WITHIN = 300.0  # seconds for a run; one that takes longer is broken
LOOK_AT_TOTALS = 0.1  # seconds between two looks at a total


class RunFailed(Exception):
    """A run that can't be measured; the message says why."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How a daemon is configured.

    Attributes:
        redis: its store.
        rabbitmq: its broker; without one, only its workers run.
        queue: the queue that it consumes.
        grouped: workers for grouped tasks.
        order: `workers.order`.
        only: half a daemon, or all of it.
        http: what its section `[http]` says; the page is on, as by default, on a port that is free.
        partitions: of its namespace.
        run: of its rule.
        schedules: its sections `[[schedules]]`.
    """

    redis: str
    rabbitmq: str = "amqp://guest:guest@127.0.0.1:1/"
    queue: str = "bench"
    grouped: int = 16
    order: Literal["oldest", "fair"] = "oldest"
    only: Literal["", "intake", "workers"] = ""
    http: str = 'listen = "127.0.0.1:0"'
    partitions: int = 1
    run: int = 1
    schedules: str = ""

    def write(self, path: Path) -> None:
        """Write it as a configuration file."""
        # An older commit, beside which something is measured, may not know more than one.
        run = f"run = {self.run}" if self.run > 1 else ""
        partitions = f"partitions = {self.partitions}" if self.partitions > 1 else ""
        path.write_text(
            f"""[rabbitmq]
url = "{self.rabbitmq}"
queue = "{self.queue}"
[redis]
url = "{self.redis}"
namespace = "{NAMESPACE}"
{partitions}
[workers]
plain = 8
grouped = {self.grouped}
order = "{self.order}"
[http]
{self.http}
[[groups]]
name = "{RULE}"
app = "bench"
key = "{{entity}}"
{run}
{self.schedules}
"""
        )


@dataclass(slots=True)
class Daemon:
    """A running daemon."""

    process: subprocess.Popen[bytes]
    log: Path
    file: Path
    config: Path
    code: Path
    ended: bool = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far, of its page's process too."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return sum(cpu_of(pid) for pid in (self.pid, *map(int, children.read_text().split())))

    @property
    def records(self) -> Records:
        """What it did, once it has ended."""
        return Records.read([self.file])

    async def until(self, seconds: float, what: str = "its tasks") -> None:
        """Wait until it has ended as many tasks as the load has.

        Raises:
            RunFailed: it died, or took longer.
        """

        async def has_reached() -> bool:
            return self.file.with_suffix(".reached").exists()

        await wait_for(has_reached, self, seconds, what)

    async def until_total(self, redis: Redis, name: str, wanted: int, partitions: int = 1) -> None:
        """Wait until a total of the store is as much.

        Raises:
            RunFailed: it died, or took longer.
        """
        keys = [each("count") for each in keys_of(NAMESPACE, partitions)]

        async def is_so() -> bool:
            found = [await redis.hget(key, name) for key in keys]  # one after another: politely
            return sum(int(each or 0) for each in found) >= wanted

        await wait_for(is_so, self, WITHIN, f"{wanted} {name}", LOOK_AT_TOTALS)

    async def stop(self) -> None:
        """End it in order; its records are written then.

        Raises:
            RunFailed: it did not end well.
        """
        if self.ended:
            return
        self.ended = True
        self.process.send_signal(signal.SIGTERM)
        try:
            code = await asyncio.to_thread(self.process.wait, START_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise RunFailed(f"a daemon did not end:\n{self.tail()}") from None
        if code:
            raise RunFailed(f"a daemon ended with {code}:\n{self.tail()}")

    async def page(self) -> int:
        """The port of its page, once that listens.

        Raises:
            RunFailed: it doesn't.
        """

        async def is_there() -> bool:
            return port_in(self.log) is not None

        await wait_for(is_there, self, START_WITHIN, "its page")
        return port_in(self.log) or 0

    async def ask(self, *words: str) -> None:
        """Run a verb of its own version with its configuration; politely, beside what is measured.

        Raises:
            RunFailed: the verb failed.
        """
        command = ["nice", sys.executable, "-m", "groupflow", *words, "--config", str(self.config)]
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.code,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate()
        if process.returncode:
            raise RunFailed(f"groupflow {' '.join(words)}: {said.decode(errors='replace')}")

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-2000:]


async def wait_for(
    condition: Callable[[], Awaitable[bool]],
    daemon: Daemon,
    seconds: float,
    what: str,
    look: float = LOOK,
) -> None:
    """Wait until a condition holds while a daemon lives.

    Raises:
        RunFailed: it died, or took longer than `seconds`.
    """
    try:
        async with asyncio.timeout(seconds):
            while not await condition():
                if daemon.process.poll() is not None:
                    raise RunFailed(f"a daemon died:\n{daemon.tail()}")
                await asyncio.sleep(look)
    except TimeoutError:
        raise RunFailed(f"waited {seconds:g} s for {what}:\n{daemon.tail()}") from None


@asynccontextmanager
async def running(
    setting: Setting,
    load: Load,
    folder: Path,
    name: str,
    *,
    code: Path | None,
    redis: int,
) -> AsyncIterator[Daemon]:
    """Start a daemon, wait until it works, and stop it at the end.

    Args:
        setting: its configuration.
        load: what its handlers have to know.
        folder: of this run.
        name: its name.
        code: where the package is that it runs, if not here.
        redis: the process of its Redis, whose processor time it shall note too.
    """
    code = code or REPOSITORY
    config, log = folder / f"{name}.toml", folder / f"{name}.log"
    setting.write(config)
    records = folder / f"{name}.records"
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GROUPFLOW_")}
    environment = kept | {
        "BENCH_RECORDS": str(records),
        "BENCH_TASKS": str(load.tasks),
        "BENCH_HANDLER_MS": str(load.handler_ms),
        "BENCH_REDIS_PID": str(redis),
    }
    only = ["--only", setting.only] if setting.only else []
    command = [sys.executable, "-m", "groupflow", "run", "--config", str(config), "--name", name]
    command += ["--app", "tests.verification.bench.handlers:app", *only]
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: ASYNC220
            command, cwd=code, env=environment, stdout=output, stderr=output
        )
    daemon = Daemon(process, log, records, config, code)
    try:

        async def has_started() -> bool:
            return b"daemon.started" in log.read_bytes()

        await wait_for(has_started, daemon, START_WITHIN, "start")
        yield daemon
        await daemon.stop()
    finally:
        if process.poll() is None:
            process.kill()
            await asyncio.to_thread(process.wait)
