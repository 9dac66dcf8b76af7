"""A session of `groupflow dev`, from the start of its servers to their end."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
import webbrowser
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import watchfiles
from rich.console import Console

from groupflow.core.masking import plain_text
from groupflow.dev.variables import TOKEN, URL, of_daemon, of_verbs
from groupflow.ops.signals import cancelled_by_signals
from groupflow.servers import PrivateServers, private_servers
from groupflow.servers.process import DaemonProcess, ServerProcess
from groupflow.servers.server import free_ports
from groupflow.settings.load import PREFIX

_PORT = 9464  # of the page, unless another process has it
_READY = '"intake.started"'
_LOOK_EVERY = 0.05  # seconds between two looks at its log

# Of its log:
_MARKS = {"complete": "✓", "advance": "→", "retry": "↻", "release": "·"}
_LEFT_OUT = frozenset(("event", "level", "timestamp", "logger", "exception"))
_OF_TASK = frozenset(("task", "type", "group", "fence", "slot", "attempt"))
_MOST_CLAIMS = 10_000  # that are remembered
_SERVERS = frozenset(("doctor.finding",))  # about private servers, which don't last
_LOUD = frozenset(("warning", "error", "critical"))


def run_dev(app: str, config: Path | None, *, shows_page: bool) -> None:
    """Serve an application until Ctrl-C.

    Raises:
        MissingServer: a server's program is not installed.
        ServerFailed: a server did not come up.
    """
    with suppress(asyncio.CancelledError, KeyboardInterrupt):
        console = Console(markup=False, highlight=False, soft_wrap=True)
        asyncio.run(_dev(console, app, config, shows_page=shows_page))


async def _dev(console: Console, app: str, config: Path | None, *, shows_page: bool) -> None:
    cancelled_by_signals()
    console.print("Starting a private RabbitMQ and Redis; they are gone when this ends.")
    async with private_servers() as servers:
        with TemporaryDirectory(prefix="groupflow-dev-") as folder:
            session = Session(console, app, config, servers, Path(folder))
            await session.run(shows_page=shows_page)


class Session:
    """The daemon, its log, and the files that restart it."""

    def __init__(
        self, console: Console, app: str, config: Path | None, servers: PrivateServers, folder: Path
    ) -> None:
        self._console = console
        self._page = f"127.0.0.1:{_page_port()}"
        self._token = secrets.token_urlsafe(16)
        urls = {
            f"{PREFIX}RABBITMQ__URL": servers.rabbitmq.url,
            f"{PREFIX}REDIS__URL": servers.redis.url,
        }
        self._told = {**urls, **of_verbs(config), URL: f"http://{self._page}", TOKEN: self._token}
        ours = of_daemon(config, self._page, self._token)
        options = ["--app", app, "--name", "dev"]
        options += ["--config", str(config)] if config is not None else []
        environment, log = {**os.environ, **ours, **urls}, folder / "daemon.log"
        # In the current directory, where it looks for its application.
        self._child = _Child(options, environment, log, scratch=folder, folder=Path.cwd())

    async def run(self, *, shows_page: bool) -> None:
        """Serve until cancelled."""
        try:
            async with asyncio.TaskGroup() as parts:
                reading = parts.create_task(self._tell(shows_page=shows_page))
                await self._child.start()
                async for changed in self._saves():
                    self._console.print(f"{', '.join(changed)} saved: restarting")
                    await self._child.stop()
                    self._child.renew_log()
                    await self._child.start()
                reading.cancel()  # the watch ended: leave
        finally:
            await self._child.stop()

    async def _saves(self) -> AsyncIterator[list[str]]:
        """The names of files that were saved together."""
        wanted = watchfiles.PythonFilter(extra_extensions=(".toml",))
        here = await asyncio.to_thread(Path.cwd)
        watch = partial(watchfiles.awatch, watch_filter=wanted, debounce=200)
        while True:
            try:
                async for changes in watch(here, ignore_permission_denied=True):
                    yield sorted({path.removeprefix(f"{here}/") for _, path in changes})
            except ExceptionGroup as errors:
                # It ends at a file whose name is no UTF-8, which is none of ours.
                if errors.split(RuntimeError)[1]:
                    raise
            else:
                return

    async def _tell(self, *, shows_page: bool) -> None:
        exports = "\n".join(f"  export {name}={value}" for name, value in self._told.items())
        self._console.print(
            f"\nThe page: http://{self._page}/ (token: {self._token})\nIn another shell, so that "
            f"`groupflow publish`, all other verbs and curl meet it:\n{exports}"
            "\nThe daemon restarts when you save a .py or .toml file. Ctrl-C ends it.\n"
        )
        lines = Lines()
        async for line in self._child.lines():
            if line is None:
                lines = Lines()
                self._console.print("It ended. Save a file to restart it.")
            elif _READY in line:
                self._console.print("Ready.")
                if shows_page:
                    await asyncio.to_thread(webbrowser.open, f"http://{self._page}/")
                    shows_page = False  # once is enough
            elif (shown := lines.shown(line)) is not None:
                self._console.print(shown)


class _Child(DaemonProcess):
    """The daemon that restarts, and what it says."""

    _logs = 1  # so far

    def renew_log(self) -> None:
        """Give what starts next a log of its own, so that a long session fills no disk."""
        self.log.unlink()
        self.log.touch()
        self._logs += 1

    async def lines(self) -> AsyncIterator[str | None]:
        """The logs of all its processes, line by line, for ever; ``None`` where one has ended."""
        self.log.touch()
        told: ServerProcess | None = None  # the last one whose end was told
        while True:
            number, is_renewed = self._logs, False
            with self.log.open(errors="replace") as file:
                while not is_renewed:
                    process = self.process
                    # Both asked first: then all its lines are in the file.
                    has_ended = process not in (None, told) and not process.alive
                    is_renewed = self._logs != number
                    while line := file.readline():
                        yield line.rstrip("\n")
                    if has_ended:
                        told = process
                        yield None
                    await asyncio.sleep(_LOOK_EVERY)


def _page_port() -> int:
    """The page's own port, or a free one where that is taken; it stays over all starts."""
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", _PORT))
        except OSError:
            return free_ports(1)[0]
    return _PORT


def has_display() -> bool:
    """Whether a user at a terminal can see a page here."""
    shown = sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return bool(shown and sys.stdout.isatty())


class Lines:
    """The log as it is shown."""

    def __init__(self) -> None:
        self._claims: dict[str, dict[str, Any]] = {}  # by task, what its own lines say of it

    def shown(self, line: str) -> str | None:
        """A line as it is shown; ``None`` for lines that only operators want.

        A line that isn't an event is a handler's `print`, or an interpreter's last words: shown as
        it is.
        """
        try:
            event = orjson.loads(line)
        except orjson.JSONDecodeError:
            event = None
        told = event if isinstance(event, dict) else {}  # a handler prints what it likes
        if not all(isinstance(told.get(each), str) for each in ("event", "level")):
            return plain_text(line)
        name, claim = event["event"], self._claim_of(event)
        if name == "task.settled":
            return None if event.get("outcome") == "turn" else _settled(event)
        if name == "task.buried":
            return _with_traceback(f"{_start(event, '✗')}  dead: {_plain(event, 'reason')}", event)
        if name in _SERVERS:
            return None
        is_handlers = "task" in event or "logger" in event
        if event.get("level") not in _LOUD and not (event.get("level") == "info" and is_handlers):
            return None
        # A handler may log a field of such a name, and of another value.
        own = {key for key in _OF_TASK if claim is not None and event.get(key) == claim.get(key)}
        facts = {key: fact for key, fact in event.items() if key not in _LEFT_OUT | own}
        said = "  ".join(f"{key}={fact}" for key, fact in facts.items() if fact is not None)
        return _with_traceback(f"{_clock(event)}   {plain_text(f'{name}  {said}'.rstrip())}", event)

    def _claim_of(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """What was told of the claim that an event is of, if it is of one."""
        id_ = str(event.get("task"))
        if event["event"] == "task.claimed":
            self._claims[id_] = event
            if len(self._claims) > _MOST_CLAIMS:
                self._claims.pop(next(iter(self._claims)))
        is_over = event["event"] in ("task.settled", "task.buried")
        return self._claims.pop(id_, None) if is_over else self._claims.get(id_)


def _settled(event: dict[str, Any]) -> str:
    outcome = str(event.get("outcome"))
    start = _start(event, _MARKS.get(outcome, "·"))
    if outcome != "retry":
        # A pulled task, and one of a run before its last, are told of without a time.
        return f"{start}  {float(event['seconds']):.2f} s" if "seconds" in event else start
    words = f"{_plain(event, 'error')}: {_plain(event, 'message')}".removesuffix(": ")
    again = f"attempt {event.get('attempt')}, again in {event.get('after'):g} s"
    return _with_traceback(f"{start}  {words}  ({again})", event)


def _start(event: dict[str, Any], mark: str) -> str:
    group = _plain(event, "group")
    who = "  ".join(each for each in (_plain(event, "type") or "no type", group) if each)
    return f"{_clock(event)} {mark} {who}  {_plain(event, 'task')}"


def _with_traceback(text: str, event: dict[str, Any]) -> str:
    traceback = str(event.get("exception") or "").rstrip()
    return "\n".join([text, *(f"           {plain_text(each)}" for each in traceback.splitlines())])


def _clock(event: dict[str, Any]) -> str:
    return plain_text(str(event.get("timestamp", ""))[11:19])


def _plain(event: dict[str, Any], name: str) -> str:
    return plain_text(str(event.get(name) or ""))
