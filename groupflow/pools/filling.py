"""PUT …/tasks: makes a pool equal to a list of any length, in slices.

A request that breaks off after the first slice leaves a part of the list beside the tasks that
waited before: nothing is removed before all of the list is written. The same list, sent again,
makes them equal.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from http import HTTPStatus
from time import monotonic

import structlog
from starlette.requests import Request

from groupflow.core.errors import StoreFull, StoreUnavailable
from groupflow.core.routing import Router
from groupflow.flow.backpressure import RESUME_AT, Backpressure
from groupflow.ops.page.endpoints import Caller
from groupflow.ops.page.facts import PageContext
from groupflow.ops.page.problems import RequestRefused
from groupflow.pools.lists import Line, SpooledList, UnfitList, WrongList
from groupflow.pools.shapes import Filled
from groupflow.settings.model import Settings
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Enqueuer
from groupflow.store.partitions import partition_of
from groupflow.store.pulling import PLACES, Listed, Pulling
from groupflow.store.scans import present

MOST = 8  # lists that come in at once, over all tokens
GRACE = 10.0  # seconds that a list may be behind its least rate
RATE = 64 * 1024  # bytes a second that a list comes at, at least
RETRY_AFTER = 10.0  # seconds
_PIECE = 1024 * 1024  # bytes that are checked at a time


async def spool(request: Request, spooled: SpooledList) -> None:
    """Take all of a list in, and check it.

    Raises:
        RequestRefused: it came too slowly.
        WrongList: it can't be used.
        ClientDisconnect: it broke off.
        OSError: there is no room for its file.
    """
    stream = request.stream()
    waiting = bytearray()
    came, waited = 0, 0.0  # bytes; seconds that we waited for them, without our own work
    while True:
        began = monotonic()
        try:
            async with asyncio.timeout(GRACE + came / RATE - waited):
                chunk = await anext(stream, None)
        except TimeoutError:
            raise RequestRefused(
                HTTPStatus.REQUEST_TIMEOUT,
                f"Nothing was changed: {came} bytes came in {waited + monotonic() - began:.0f} s, "
                f"and a list has to come at {RATE} bytes a second.",
            ) from None
        if chunk is None:
            break
        waited += monotonic() - began
        came += len(chunk)
        waiting += chunk
        if len(waiting) >= _PIECE:
            await asyncio.to_thread(spooled.feed, bytes(waiting))
            waiting.clear()
    await asyncio.to_thread(spooled.feed, bytes(waiting))
    await asyncio.to_thread(spooled.end)


log = structlog.get_logger("groupflow.pools")

MOST_BYTES = 4 * 1024 * 1024 * 1024
SLICE = 250  # tasks a script
_TRIES = 5  # of a slice, where Redis gives no answer
_PAUSE = 1.0  # seconds between two of them


class PoolFilling:
    """Fills pools; one list at a time for each pool, and for each token."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        lease = context.facts.settings.workers.lease
        self._stores = [Pulling(client, lease) for client in context.namespace.clients]
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._uploading: set[str] = set()  # tokens whose lists come in now

    @contextmanager
    def _upload(self, token: str) -> Iterator[None]:
        """Let a token's list in, which may hold a file, and a megabyte of memory or more.

        Raises:
            RequestRefused: it has another one in flight, or there are too many over all tokens.
        """
        if token in self._uploading:
            raise RequestRefused(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"A list of the token of {token} is still under way: wait for its answer.",
                RETRY_AFTER,
            )
        if len(self._uploading) >= MOST:
            raise RequestRefused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{MOST} lists of other tokens come in just now, and no more may. Try again soon.",
                RETRY_AFTER,
            )
        self._uploading.add(token)
        try:
            yield
        finally:
            self._uploading.discard(token)

    async def fill(self, name: str, caller: Caller) -> Filled:
        """Make a pool equal to the list that comes.

        Raises:
            RequestRefused: it can't be used, or a server doesn't take all of it.
        """
        settings, request = self._context.facts.settings, caller.request
        rule = settings.pools[name]
        if int(request.headers.get("content-length", "0")) > MOST_BYTES:
            raise RequestRefused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The list is over {MOST_BYTES} bytes."
            )
        rabbitmq = settings.rabbitmq
        token = caller.holder.name if caller.holder else ""
        with self._upload(token):
            caller.linger()
            spooled = SpooledList(rule.types, rabbitmq.max_body, rabbitmq.max_values)
            try:
                await spool(request, spooled)
                async with self._locks[name]:
                    filled = await self._fill(name, spooled, settings)
            except WrongList as wrong:
                is_unfit = isinstance(wrong, UnfitList)
                status = HTTPStatus.UNPROCESSABLE_ENTITY if is_unfit else HTTPStatus.BAD_REQUEST
                raise RequestRefused(status, f"Nothing was changed: {wrong}.") from None
            except (StoreUnavailable, StoreFull) as error:
                raise _broken_off(str(error)) from error
            except OSError as error:
                raise _broken_off(f"The list's file can't be kept: {error.strerror}") from error
            finally:
                await asyncio.to_thread(spooled.close)
        log.info("pool.filled", pool=name, token=token, peer=caller.peer, **asdict(filled))
        return filled

    async def _fill(self, pool: str, spooled: SpooledList, settings: Settings) -> Filled:
        router = settings.router()
        clients, redis = self._context.namespace.clients, settings.redis
        limits = {"max_waiting": redis.max_waiting, "max_memory": redis.max_memory}
        bounds = [
            Backpressure(client, **limits, share=RESUME_AT, look_every=0.0) for client in clients
        ]
        numbers: list[str] = []
        words: Counter[str] = Counter()
        pieces = spooled.read(SLICE)
        while some := await asyncio.to_thread(next, pieces, None):
            sliced = await asyncio.to_thread(self._by_partition, pool, some, router)
            await _check_room(clients, bounds, sliced)
            numbers = numbers or await self._begin(pool)
            found = await asyncio.gather(
                *(
                    _insist(store, pool, number, tasks)
                    for store, number, tasks in zip(self._stores, numbers, sliced, strict=True)
                    if tasks
                )
            )
            words.update(word for each in found for word in each)
        numbers = numbers or await self._begin(pool)
        pruned = zip(self._stores, numbers, strict=True)
        try:
            removed = await asyncio.gather(*(_prune(*each, pool) for each in pruned))
        except StoreUnavailable as error:
            done = "The list was taken, and not all that isn't in it may be removed"
            raise _broken_off(str(error), done) from error
        filled = Filled(0, sum(removed), 0, 0, 0, 0, 0)
        return replace(filled, **words)

    async def _begin(self, pool: str) -> list[str]:
        return [await store.begin_list(pool) for store in self._stores]

    def _by_partition(self, pool: str, lines: list[Line], router: Router) -> list[list[Listed]]:
        sliced: list[list[Listed]] = [[] for _ in self._stores]
        for line in lines:
            place = partition_of(None, line.id, len(self._stores))
            sliced[place].append(line.listed(pool, router))
        return sliced


async def _check_room(
    clients: Sequence[StoreClient], bounds: Sequence[Backpressure], sliced: list[list[Listed]]
) -> None:
    """Check that a slice may be written. Tasks that already wait take no more room.

    Raises:
        RequestRefused: its new tasks would go beyond a limit.
    """
    new = await asyncio.gather(*map(_new_of, clients, sliced))
    number = sum(map(len, new))
    if not number:
        return
    # Without a task it only tells how many wait in the partition.
    told = await asyncio.gather(*(Enqueuer(client).enqueue(()) for client in clients))
    waiting = sum(each.queued for each in told) + number
    for backpressure, tasks in zip(bounds, new, strict=True):
        size = sum(len(task.packed) for task in tasks)
        if reason := await backpressure.reason(waiting, size):
            raise _broken_off(
                f"There is no room for {number} more tasks: with them {reason}, and "
                f"a list stops at {RESUME_AT:.0%} of that, so that messages still come in"
            )


async def _new_of(client: StoreClient, tasks: list[Listed]) -> list[Listed]:
    """Those that a partition doesn't know."""
    known = await present(client, [(task.id, task.scope) for task in tasks])
    return [task for task, is_known in zip(tasks, known, strict=True) if not is_known]


def _broken_off(
    why: str, done: str = "Some of the list may have been taken, and nothing was removed"
) -> RequestRefused:
    detail = f"{why}. {done}: send it again."
    return RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, detail, RETRY_AFTER)


async def _insist(store: Pulling, pool: str, number: str, tasks: list[Listed]) -> list[str]:
    """Write a slice; again where there was no answer, which is harmless."""
    for _ in range(_TRIES - 1):
        try:
            return [*await store.put(pool, number, tasks)]
        except StoreUnavailable:
            await asyncio.sleep(_PAUSE)
    return [*await store.put(pool, number, tasks)]


async def _prune(store: Pulling, number: str, pool: str) -> int:
    """Remove tasks that are not in the list; returns how many."""
    gone = 0
    for where in PLACES:
        cursor = None
        while cursor != "0":
            cursor, removed = await store.prune(pool, number, where, cursor or "0")
            gone += removed
    return gone
