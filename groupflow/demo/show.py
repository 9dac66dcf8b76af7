"""The demo from start to end: servers, two daemons, publishing, a kill, the verdict.

The daemons are real `groupflow run` processes. The servers are private, or those that a
configuration file names, which the demo leaves as they were.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from groupflow.broker import topology
from groupflow.broker.connection import close_quietly, connect
from groupflow.broker.publisher import Outgoing, publishing
from groupflow.core.errors import GroupflowError, reaching
from groupflow.demo.handlers import DAEMON_VARIABLE, DATABASE_VARIABLE
from groupflow.demo.rows import ImportTask, later_tasks, load_tasks, open_database
from groupflow.demo.screen import Screen, intro, print_summary, read_state, step
from groupflow.demo.verdict import judge
from groupflow.ops.signals import cancelled_by_signals
from groupflow.servers import private_servers
from groupflow.servers.process import DaemonProcess
from groupflow.servers.server import free_ports
from groupflow.settings.load import PREFIX, load_settings
from groupflow.settings.transport import address_of, split_files
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys

INTERRUPTED = 130
CONFIG = Path(__file__).parent / "demo.toml"  # of both daemons

_OPTIONS = ("--config", str(CONFIG), "--app", "groupflow.demo.handlers:app")
_WORKERS = 2 * (8 + 16)  # of both daemons, of both kinds: what demo.toml says
_TIMEOUT = 5.0  # seconds for a connection to a server and for each answer
_LOOK_EVERY = 0.1  # seconds
_A_SECOND = 4.0  # rows, on average, once the import is over
_LAST_LINES = 15  # of its log, shown when a daemon has died


def run_demo(config: Path | None, *, keep: bool = False) -> int:
    """Run the demo on the servers that a file names, or on private ones.

    With `keep` the servers and daemons stay after the verdict, for a look at the page, until
    Ctrl-C.

    Returns the exit status: 0 if the result equals a serial import's, 1 if not, 130 if it was
    interrupted. Raises `GroupflowError` where the demo could not run.
    """
    console = Console(highlight=False, soft_wrap=True)
    try:
        return asyncio.run(_demo(console, config, keep=keep))
    except DaemonDied as error:
        console.print(str(error), markup=False)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("Interrupted. Everything that the demo had started is stopped.")
        return INTERRUPTED


async def _demo(console: Console, config: Path | None, *, keep: bool) -> int:
    demo, tasks, ports = cancelled_by_signals(), load_tasks(), free_ports(2)
    token = secrets.token_urlsafe(16)
    console.print(intro(tasks))
    async with AsyncExitStack() as parts:
        folder = Path(parts.enter_context(TemporaryDirectory(prefix="groupflow-demo-")))
        servers = await parts.enter_async_context(servers_for(config, console))
        work = Import(tasks, folder / "imported.db")
        for number, port in enumerate(ports, start=1):
            variables = {
                DATABASE_VARIABLE: str(work.database),
                f"{PREFIX}HTTP__LISTEN": f"127.0.0.1:{port}",
                f"{PREFIX}HTTP__TOKEN": token,
            }
            daemon = DemoDaemon(f"demo-{number}", folder, servers.environment() | variables)
            parts.push_async_callback(daemon.stop)
            await daemon.start()
            work.daemons.append(daemon)
        stopped = await work.run(servers, Screen(console))
        verdict = await asyncio.to_thread(judge, tasks, work.database, _WORKERS)
        print_summary(console, verdict, work.killed, stopped)
        if keep:
            pages = " and ".join(f"http://127.0.0.1:{port}/" for port in ports)
            console.print(
                f"\nIts page is at {pages}\nWith the token {token} it may act.\n"
                "A few more rows come every second. Ctrl-C ends it."
            )
            try:
                await work.trickle(servers)
            except asyncio.CancelledError:
                demo.uncancel()  # the Ctrl-C that we waited for
    return 0 if verdict.equal and not stopped else 1


@dataclass(frozen=True, slots=True)
class Servers:
    """Two running servers, and the demo's own name on them."""

    rabbitmq: str  # its URL, password and TLS files included: never to be shown
    redis: str  # the same
    name: str  # of the queue, and of the keys' namespace; no other program has it

    def environment(self) -> dict[str, str]:
        """The environment of a daemon that works on these servers."""
        # Other variables that configure groupflow are meant for other daemons.
        mine = {key: text for key, text in os.environ.items() if not key.startswith(PREFIX)}
        mine.pop("CREDENTIALS_DIRECTORY", None)
        for section, url in (("RABBITMQ", self.rabbitmq), ("REDIS", self.redis)):
            mine[f"{PREFIX}{section}__URL"], files = split_files(url)
            for name, path in files.items():  # from here, while a daemon runs in its own folder
                mine[f"{PREFIX}{section}__{name.upper()}"] = str(Path(path).absolute())
            mine[f"{PREFIX}{section}__ALLOW_PLAINTEXT"] = "true"  # the file had to say so already
        names = {f"{PREFIX}RABBITMQ__QUEUE": self.name, f"{PREFIX}REDIS__NAMESPACE": self.name}
        return mine | names


@asynccontextmanager
async def servers_for(config: Path | None, console: Console) -> AsyncIterator[Servers]:
    """The servers that a file names, or private ones, which end with the block.

    The demo's queue and keys on the former go at the end. Raises what `load_settings` and
    `private_servers` do, and `ServerUnreachable`.
    """
    name = f"groupflow-demo-{secrets.token_hex(4)}"
    async with AsyncExitStack() as parts:
        if config is None:
            with step(console, "Starting a private RabbitMQ and Redis"):
                started = await parts.enter_async_context(private_servers())
            yield Servers(started.rabbitmq.url, started.redis.url, name)
            return
        settings = load_settings(config)
        servers = Servers(settings.rabbitmq_url(), settings.redis_url(), name)
        store = StoreClient(servers.redis, Keys(name), timeout=_TIMEOUT)
        parts.push_async_callback(store.close)
        reach = partial(
            connect, servers.rabbitmq, heartbeat=10, timeout=_TIMEOUT, name="groupflow demo"
        )
        shown = f"Using {settings.rabbitmq.url} and {settings.redis.url} under the name {name}"
        with step(console, shown), reaching("RabbitMQ", address_of(servers.rabbitmq)):
            await close_quietly((await reach()).close())
            with reaching("Redis", store.address):
                await store.ping()
        try:
            yield servers
        finally:
            with suppress(GroupflowError):  # RabbitMQ may be gone by now, and Redis too
                connection = await reach()
                await topology.delete(connection, name)
                await close_quietly(connection.close())
            with suppress(GroupflowError):
                await store.erase_namespace()


class DaemonDied(GroupflowError):
    """A daemon ended although the demo was not over; its last words are shown."""


class DemoDaemon(DaemonProcess):
    """A daemon under a name that it keeps over its processes."""

    def __init__(self, name: str, folder: Path, environment: Mapping[str, str]) -> None:
        """Starts nothing yet; the folder goes too, where the demo itself is killed."""
        self.name = name
        options = [*_OPTIONS, "--name", name]
        named = {**environment, DAEMON_VARIABLE: name}
        super().__init__(options, named, folder / f"{name}.log", scratch=folder)

    def check(self) -> None:
        """Raise `DaemonDied` unless it runs."""
        if self.process is None or not self.process.alive:
            said = self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
            raise DaemonDied("\n".join([f"The daemon {self.name} ended. Its last words:", *said]))


class Import:
    """One import: its publishing, and the watch over the daemons that do it."""

    def __init__(self, tasks: Sequence[ImportTask], database: Path) -> None:
        # The tables exist before the daemons start, so that these don't create them at once.
        open_database(database, tasks).close()
        self.database = database
        self.daemons: list[DemoDaemon] = []
        self.killed = ""  # the name of the daemon that was killed, once one was
        self._tasks = tasks
        self._published = 0  # messages that the broker has confirmed

    async def run(self, servers: Servers, screen: Screen) -> str:
        """Publish all while the daemons import it. Returns and raises what `watch` does."""
        publishing = asyncio.create_task(self._publish(servers))
        try:
            with screen.open():
                return await self.watch(screen, publishing)
        finally:
            publishing.cancel()

    async def _publish(self, servers: Servers) -> None:
        """Publish as a client would: in order, each message confirmed."""

        def count() -> None:
            self._published += 1

        messages = (
            Outgoing(task.body, task.type, f"{servers.name}-{task.number}") for task in self._tasks
        )
        async with publishing(servers.rabbitmq, servers.name) as publisher:
            await publisher.publish_all(messages, on_confirm=count)

    async def trickle(self, servers: Servers) -> None:
        """Publish rows for ever, a few a second, so that there is something to see."""
        async with publishing(servers.rabbitmq, servers.name) as publisher:
            for number, task in enumerate(later_tasks(self._tasks), start=len(self._tasks)):
                id_ = f"{servers.name}-{number}"
                await publisher.publish_all([Outgoing(task.body, task.type, id_)])
                await asyncio.sleep(random.expovariate(_A_SECOND))

    async def watch(
        self, screen: Screen, publishing: asyncio.Task[None], standstill: float = 30.0
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
                for daemon in self.daemons:
                    daemon.check()
                if publishing.done():
                    publishing.result()
                if self.daemons and not self.killed and handled > state.total / 2:
                    self.killed = self.daemons[-1].name
                    await self.daemons[-1].start()
                    happened = f"[yellow]{self.killed} killed with -9, and started again[/]"
                await asyncio.sleep(_LOOK_EVERY)
