"""Health and metrics: what the daemon answers, and nothing else by HTTP.

For probes: is the process alive, has it started, is it ready for work. They are answered at an
address of the daemon's own, `[http] health`, with as little HTTP as a probe needs: `Responder`
reads the head of a request, answers, and closes the connection. No request may cost tasks their
loop. At each `PACE` it accepts and reads all waiting connections, as bare sockets, at some
microseconds each; it keeps silent ones for the next time. At the limit it closes the connection
that has been open longest: so neither silence nor connects alone keep a probe out.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

import orjson
import structlog

from groupflow.core.checkup import Check
from groupflow.core.errors import GroupflowError
from groupflow.operate.namespace import Namespace
from groupflow.ops.listening import BACKLOG, listening
from groupflow.ops.metrics import CONTENT_TYPE
from groupflow.ops.snapshots import Snapshot
from groupflow.store.client import StoreClient

log = structlog.get_logger("groupflow.http")

PATHS = ("/livez", "/startupz", "/readyz", "/metrics")
_STORE_WITHIN = 2.0  # seconds for the store's answer: below any probe's own limit
# Seconds for which an answer is given again: a thousand requests a second cost no more.
_READY_AGE = 0.25
_METRICS_AGE = 0.5
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

MOST = 64  # requests that are answered in a pass
OPEN = BACKLOG + MOST  # connections at a time, silent ones and those that are answered
BATCH = BACKLOG + 1  # connections accepted at a time: as many as the system lets wait
HEAD = 4096  # bytes of a request's head: a probe's has a few hundred
REQUEST_WITHIN = 5.0  # seconds for a whole request, and as many for the caller to take its answer
PACE = 0.05  # seconds between two times of accepting and reading


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    status: int  # the HTTP status
    type: str  # the content type
    body: str  # the content


class Health(Protocol):
    """Knows how the daemon is."""

    async def of(self, path: str) -> HealthAnswer:
        """The answer to one of `PATHS`; raises nothing."""


class DaemonHealth:
    """The health of a daemon's own process."""

    def __init__(
        self,
        started: Callable[[], bool],
        checks: Callable[[], list[Check]],
        namespace: Namespace,
        metrics: Callable[[], Awaitable[bytes]],
    ) -> None:
        """Binds the sources; it asks each partition, and `metrics` raises nothing."""
        self._started = started
        self._checks = checks
        self._store = Snapshot[Check](lambda: check_store(namespace), _READY_AGE)
        self._metrics = Snapshot[bytes](metrics, _METRICS_AGE)

    async def of(self, path: str) -> HealthAnswer:
        """The answer to one of `PATHS`."""
        if path == "/metrics":
            return HealthAnswer(HTTPStatus.OK, CONTENT_TYPE, (await self._metrics.get()).decode())
        if path == "/readyz":
            return self._ready([await self._store.get(), *self._checks()])
        if path == "/startupz" and not self._started():
            return HealthAnswer(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, "not started yet\n")
        return ALIVE

    def _ready(self, checks: list[Check]) -> HealthAnswer:
        is_ready = all(check.verdict != "fail" for check in checks)
        found = {"ready": is_ready, "checks": checks}
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return HealthAnswer(status, JSON, orjson.dumps(found).decode())


ALIVE = HealthAnswer(HTTPStatus.OK, TEXT, "ok\n")
"""An answer shows that the loop runs; nothing else is asked."""


async def check_store(namespace: Namespace) -> Check:
    """Does Redis answer, in some partition at least."""
    name = "redis.answers"
    try:
        answers = await namespace.ask_all(StoreClient.ping, _STORE_WITHIN)
    except (GroupflowError, TimeoutError) as error:
        found = str(error) or f"no answer within {_STORE_WITHIN:g} s"
        return Check(name, "fail", found, "Is it running? Tasks wait, none is lost.")
    if answers.away:
        found = "; ".join(map(str, answers.away))
        return Check(name, "warn", found, "Tasks in there wait, none is lost; the others go on.")
    return Check(name, "ok", namespace.clients[0].address)


@dataclass(slots=True)
class _Caller:
    """A connection that is open."""

    until: float  # by the loop's clock: when its request has to be there, or its answer taken
    head: bytes = b""  # what has come of its request's head
    answering: asyncio.Task[None] | None = None  # once its request is there


class Responder:
    """Answers at `[http] health` for as long as the daemon runs."""

    def __init__(self, listen: str, health: Health) -> None:
        """Opens nothing yet; with an empty address, nothing ever."""
        self._listen = listen
        self._health = health
        self._open: dict[socket.socket, _Caller] = {}  # the oldest first

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer until the block ends."""
        if not self._listen:
            yield
            return
        try:
            async with listening("http.health", self._listen, self._serve):
                yield
        finally:
            answering = [each.answering for each in self._open.values() if each.answering]
            for connection in [*self._open]:
                self._close(connection)
            await asyncio.gather(*answering, return_exceptions=True)

    async def _serve(self, listener: socket.socket, _: asyncio.Event) -> None:
        host = self._listen.rpartition(":")[0]
        log.info("health.listening", url=f"http://{host}:{listener.getsockname()[1]}/")
        loop = asyncio.get_running_loop()
        while True:
            if not self._open:
                await _has_callers(listener)
            self._pass(listener, loop.time())
            await asyncio.sleep(PACE)

    def _pass(self, listener: socket.socket, now: float) -> None:
        """Read from all that are open, and from those that wait to be accepted."""
        left = MOST  # connections behind that are next
        for connection, caller in [*self._open.items()]:
            if caller.until < now:
                self._close(connection)
            elif left and caller.answering is None:
                left -= self._hear(connection, caller)
        for _ in range(BATCH):
            if not left:
                return
            try:
                connection, _ = listener.accept()
            except OSError:  # no more of them, or too many open files
                return
            connection.setblocking(False)
            if len(self._open) >= OPEN:
                self._close(next(iter(self._open)))
            self._open[connection] = caller = _Caller(now + REQUEST_WITHIN)
            left -= self._hear(connection, caller)

    def _hear(self, connection: socket.socket, caller: _Caller) -> bool:
        """Read what has come; whether that is a request, which is answered from now on."""
        try:
            said = connection.recv(HEAD + 1 - len(caller.head))
        except BlockingIOError:
            return False
        except OSError:
            said = b""
        caller.head += said
        if b"\r\n\r\n" in caller.head or b"\n\n" in caller.head:
            caller.until += REQUEST_WITHIN
            caller.answering = asyncio.create_task(self._answer(connection, caller.head))
            caller.answering.add_done_callback(lambda _: self._end(connection))
            return True
        if not said or len(caller.head) > HEAD:
            self._close(connection)
        return False

    def _close(self, connection: socket.socket) -> None:
        """Close a connection; one that is answered once that has ended."""
        if (answering := self._open[connection].answering) is None:
            self._end(connection)
        else:
            del self._open[connection]
            answering.cancel()

    def _end(self, connection: socket.socket) -> None:
        self._open.pop(connection, None)
        connection.close()

    async def _answer(self, connection: socket.socket, request: bytes) -> None:
        answer, has_body = await self.answer(request)
        body = answer.body.encode()
        head = (
            f"HTTP/1.1 {int(answer.status)} {HTTPStatus(answer.status).phrase}\r\n"
            f"content-type: {answer.type}\r\ncontent-length: {len(body)}\r\n"
            "cache-control: no-store\r\nx-content-type-options: nosniff\r\n"
            "connection: close\r\n\r\n"
        )
        said = head.encode() + (body if has_body else b"")
        with contextlib.suppress(OSError):  # gone meanwhile
            await asyncio.get_running_loop().sock_sendall(connection, said)

    async def answer(self, head: bytes) -> tuple[HealthAnswer, bool]:
        """What a request is answered with, and whether with its body."""
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
        if path not in PATHS:
            said = "only health and metrics are here\n"
            return HealthAnswer(HTTPStatus.NOT_FOUND, TEXT, said), True
        if method not in (b"GET", b"HEAD"):
            return HealthAnswer(HTTPStatus.METHOD_NOT_ALLOWED, TEXT, "only GET\n"), True
        return await self._health.of(path), method == b"GET"


async def _has_callers(listener: socket.socket) -> None:
    """Wait until a connection can be accepted."""
    loop = asyncio.get_running_loop()
    come = asyncio.Event()
    loop.add_reader(listener.fileno(), come.set)
    try:
        await come.wait()
    finally:
        loop.remove_reader(listener.fileno())
