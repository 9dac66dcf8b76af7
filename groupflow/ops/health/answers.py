"""Health, for probes: is the process alive, has it started, is it ready for work. And metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

import orjson

from groupflow.core.checkup import Check
from groupflow.core.errors import GroupflowError
from groupflow.operate.namespace import Namespace
from groupflow.ops.metrics import CONTENT_TYPE
from groupflow.ops.snapshots import Snapshot
from groupflow.store.client import StoreClient

PATHS = ("/livez", "/startupz", "/readyz", "/metrics")
_STORE_WITHIN = 2.0  # seconds for the store's answer: below any probe's own limit
# Seconds for which an answer is given again: a thousand requests a second cost no more.
_READY_AGE = 0.25
_METRICS_AGE = 0.5
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    status: int  # the HTTP status
    type: str  # the content type
    body: bytes  # the content


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
            return HealthAnswer(HTTPStatus.OK, CONTENT_TYPE, await self._metrics.get())
        if path == "/readyz":
            return self._ready([await self._store.get(), *self._checks()])
        if path == "/startupz" and not self._started():
            return HealthAnswer(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, b"not started yet\n")
        return ALIVE

    def _ready(self, checks: list[Check]) -> HealthAnswer:
        is_ready = all(check.verdict != "fail" for check in checks)
        found = {"ready": is_ready, "checks": checks}
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return HealthAnswer(status, JSON, orjson.dumps(found))


ALIVE = HealthAnswer(HTTPStatus.OK, TEXT, b"ok\n")
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
