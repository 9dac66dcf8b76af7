"""The composition root of the page's process: beside a daemon, or alone for the whole cluster."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus
from typing import Any

import structlog

from groupflow.core.errors import (
    ConfigError,
    GroupflowError,
    OtherLayout,
    ServerUnreachable,
    StoreUnavailable,
)
from groupflow.core.routing import Router
from groupflow.operate.namespace import Namespace, check_number
from groupflow.operate.scripts import OperatorVerb
from groupflow.ops.health import TEXT, DaemonHealth, Health, HealthAnswer
from groupflow.ops.logs import configure_logging
from groupflow.ops.metrics import StoreMetrics
from groupflow.ops.page.facts import Facts, PageContext
from groupflow.ops.page.process import SIGN_OF_LIFE, Channel
from groupflow.ops.page.site import serve_page
from groupflow.ops.snapshots import Snapshot
from groupflow.pools.calls import Pools
from groupflow.settings.model import Settings
from groupflow.store.layout import FORMAT, compare
from groupflow.store.partitions import open_partitions

log = structlog.get_logger("groupflow.page")

_THE_DAEMONS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
ALONE = "page"  # the name of a page that is no daemon's
LOOK_EVERY = 2.0  # seconds between two looks whether the namespace is moved
_ANSWER_WITHIN = 4.0  # seconds for the daemon's answer: below a probe's limit of 5
# Seconds for which an answer is reused: of a flood of probes the daemon gets a few a second.
_AGE = {"/livez": 0.25, "/startupz": 0.25, "/readyz": 0.25, "/metrics": 1.0}


async def serve_beside(number: int) -> None:
    """Serve a daemon's page until that daemon ends; the channel to it is a file descriptor."""
    loop = asyncio.get_running_loop()
    for each in _THE_DAEMONS:
        # The daemon acts on signals sent to all processes at once, and tells us by the channel.
        loop.add_signal_handler(each, lambda: None)
    parent = os.getppid()
    channel = await Channel.open(socket.socket(fileno=number))
    first = await channel.receive()
    if first is None:
        return
    health = HandedOn(channel)
    async with _context(Facts.unpacked(first), health) as context, serve_page(context, (Pools,)):
        signs = asyncio.create_task(_give_signs(channel, parent))
        try:
            while (message := await channel.receive()) is not None:
                _hear(message, context, health)
        finally:
            signs.cancel()


def _hear(message: dict[str, Any], context: PageContext, health: HandedOn) -> None:
    if path := message.get("path"):
        health.heard(path, HealthAnswer(**message["answer"]))
        return
    context.facts = Facts.unpacked(message)
    _set_logging_up(context.facts.settings)


async def _give_signs(channel: Channel, parent: int) -> None:
    """Tell the daemon that this process lives; end with it, even if others hold the channel."""
    while os.getppid() == parent:
        channel.send({"alive": True})
        await asyncio.sleep(SIGN_OF_LIFE)
    channel.close()


async def serve_alone(settings: Settings, load: Callable[[], Settings]) -> None:
    """Serve the cluster's page, without a daemon, until SIGTERM or SIGINT; SIGHUP reloads.

    Where the namespace is moved to another number of partitions, it serves those.

    Raises:
        ConfigError: the token's file can't be used; the namespace has another number of partitions.
    """
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    partitions = open_partitions(settings)
    try:
        with suppress(StoreUnavailable, ServerUnreachable):  # it may come
            await check_number(settings, partitions)
    finally:
        await partitions.close()
    while not ending.is_set():
        settings = await _serve_until_moved(settings, load, ending)


async def _serve_until_moved(
    settings: Settings, load: Callable[[], Settings], ending: asyncio.Event
) -> Settings:
    """Serve a number of partitions; returns the settings, with another number once that holds."""
    partitions = open_partitions(settings)
    namespace = Namespace(partitions)
    health = DaemonHealth(lambda: True, list, namespace, StoreMetrics(namespace).render)
    try:
        async with _context(Facts(ALONE, settings, {}), health) as context:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, _reload, context, load)
            async with serve_page(context, (Pools,)):
                number = len(partitions)
                while number == len(partitions) and not ending.is_set():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(ending.wait(), LOOK_EVERY)
                    number = await _look(settings, context.namespace, namespace)
            redis = settings.redis.model_copy(update={"partitions": number})
            return context.facts.settings.model_copy(update={"redis": redis})
    finally:
        await partitions.close()


async def _look(settings: Settings, *namespaces: Namespace) -> int:
    """How many partitions to serve; while the namespace is moved, nothing is asked there."""
    first, closed = namespaces[0], ""
    number = count = len(first)
    try:
        async with first.common() as client:
            noted = await client.run(OperatorVerb.NUMBER)
        if noted[0]:
            compare(settings.redis.namespace, count, *noted)
    except OtherLayout as error:
        known, moving_to, format_ = noted
        if moving_to or format_ != FORMAT:
            closed = str(error)
        else:
            number = known
            log.warning(
                "page.follows",
                partitions=known,
                remedy=f"It was moved: set redis.partitions = {known} for the next start.",
            )
    except GroupflowError:  # who asks for something is told
        return count
    if closed and not first.closed:
        log.warning("page.closed", reason=closed)
    for each in namespaces:
        each.closed = closed
    return number


def _reload(context: PageContext, load: Callable[[], Settings]) -> None:
    try:
        settings = load()
    except ConfigError as error:
        log.error("page.not_reloaded", error=str(error), remedy="The old configuration is kept.")
        return
    # Address, token and servers are those of the start, as a daemon's are.
    kept = {name: getattr(context.facts.settings, name) for name in ("http", "redis", "rabbitmq")}
    settings = settings.model_copy(update=kept)
    context.facts = Facts(ALONE, settings, {})
    _set_logging_up(settings)
    log.info("page.reloaded")


@asynccontextmanager
async def _context(facts: Facts, health: Health) -> AsyncIterator[PageContext]:
    _set_logging_up(facts.settings)
    partitions = open_partitions(facts.settings)

    def router() -> Router:
        return context.facts.settings.router()

    namespace = Namespace(partitions, router)
    context = PageContext(facts, namespace, health)
    try:
        yield context
    finally:
        await partitions.close()


def _set_logging_up(settings: Settings) -> None:
    configure_logging(settings.log.level, settings.log.format)
    # It would log each malformed request, as often as a stranger sends one.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)


class HandedOn:
    """The health of the daemon at the other end of the channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._asked: dict[str, asyncio.Future[HealthAnswer]] = {}  # by path, one of each at a time
        self._latest = {
            path: Snapshot[HealthAnswer](partial(self._ask, path), age)
            for path, age in _AGE.items()
        }

    async def of(self, path: str) -> HealthAnswer:
        """The daemon's answer; 503 where its loop is blocked."""
        return await self._latest[path].get()

    def heard(self, path: str, answer: HealthAnswer) -> None:
        waiting = self._asked.get(path)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    async def _ask(self, path: str) -> HealthAnswer:
        answer: asyncio.Future[HealthAnswer] = asyncio.get_running_loop().create_future()
        self._asked[path] = answer
        self._channel.send({"ask": path})
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                return await answer
        except TimeoutError:
            found = f"the daemon has not answered for {_ANSWER_WITHIN:g} s: its loop stands\n"
            return HealthAnswer(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, found)
