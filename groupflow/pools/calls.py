"""The API that workers pull by; each call's meaning stands with the function that it calls."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

from groupflow.core.errors import PoolFull, Unroutable
from groupflow.operate.pools import PoolStatus, read_pools
from groupflow.ops.page.endpoints import Caller, Endpoint
from groupflow.ops.page.facts import PageContext
from groupflow.ops.page.problems import RequestRefused
from groupflow.ops.page.publishing import check
from groupflow.pools.filling import PoolFilling
from groupflow.pools.pullers import Given, Pullers, TaskReport
from groupflow.pools.shapes import (
    Filled,
    GivenTasks,
    HeldTasks,
    Renewal,
    Renewed,
    Returned,
    SettledTask,
    Settlements,
    Wanted,
    pulled,
)
from groupflow.pools.waiting import LOOK, REST, Ask, Lines
from groupflow.store.pulling import Puller, Pulling, daemon_name

_Result = TypeVar("_Result")

MOST_BYTES = 16 * 1024 * 1024  # of settlements: each may bring a context
_PATH = "/pools/{pool}/workers/{worker}"
_look_at = partial(Endpoint, "GET", right="look", or_right="pull")
_WORKER = re.compile(r"[\w.@:+=-]{1,128}")
_RETRY = 10.0  # seconds after which a worker that found no room may ask again, at most
_LEASE_SHARE = 0.5  # of a lease for which a worker that holds something may wait for more


def _pull(path: str, summary: str, **facts: Any) -> Endpoint:
    return Endpoint("POST", _PATH + path, summary, right="pull", **facts)


class Pools:
    """What workers call; one for all of a page's process."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        clients = context.namespace.clients
        self._pullers = Pullers(clients, lambda: context.facts.settings)
        self._stores = [Pulling(client, context.facts.settings.workers.lease) for client in clients]
        self._lines = Lines(clients, self._tend)
        self._filling = PoolFilling(context)
        self._tend_at = 0.0  # when it is due again (monotonic)
        # One claim of a worker at a time, and none while it leaves: its tasks would be lost on it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def hurry(self) -> None:
        """Answer waiting workers with nothing."""
        await self._lines.close()

    async def close(self) -> None:
        """Close what it has opened."""
        await self._lines.close()

    @Endpoint("GET", "/pools", "The pools, and who holds how much", reads=True)
    async def _pools(self) -> list[PoolStatus]:
        names = list(self._context.facts.settings.pools)
        return await read_pools(self._context.namespace, names)

    @_look_at("/pools/{pool}", "What waits in a pool, and who holds how much of it")
    async def _pool(self, caller: Caller) -> PoolStatus:
        name = self._pool_of(caller)
        return (await read_pools(self._context.namespace, [name]))[0]

    @_pull("/claims", "Top a worker up to a limit; answers with all that it holds")
    async def _claim(self, wanted: Wanted, caller: Caller) -> GivenTasks:
        puller = self._puller_of(caller)

        async def ask() -> Given:
            async with self._lock_of(puller):
                return await self._pullers.claim(puller, wanted.limit)

        given = await self._let_in(puller, ask())
        if not given.is_new:
            await self._tend()
        if not given.is_new and len(given.claims) <= min(wanted.holding, wanted.limit - 1):
            seconds = wanted.wait
            if given.claims:
                seconds = min(seconds, puller.lease * _LEASE_SHARE)
            if seconds > 0:
                waited = self._let_in(puller, self._wait(puller, ask, seconds, caller))
                given = await waited or given
        tasks = [pulled(claim) for claim in given.claims]
        told = {"tasks": tasks, "more": given.more, "lease_until": given.lease_until}
        return cast(GivenTasks, {**told, "lease": puller.lease, "cancelled": given.cancelled})

    async def _wait(self, puller: Puller, ask: Ask, seconds: float, caller: Caller) -> Given | None:
        """Wait for something, as long as the caller does."""
        caller.linger()
        waiting = asyncio.ensure_future(self._lines.wait(puller.pool, puller.daemon, ask, seconds))
        hanging_up = asyncio.ensure_future(_hang_up(caller))
        try:
            await asyncio.wait([waiting, hanging_up], return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() and not waiting.cancelled() else None
        finally:
            for each in (waiting, hanging_up):
                each.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(waiting, hanging_up, return_exceptions=True)

    @_pull(
        "/settlements",
        "Say what became of tasks; answers with a verdict each, in that order",
        most_bytes=MOST_BYTES,
        may_be_unfit=True,
    )
    async def _settle(self, told: Settlements, caller: Caller) -> list[SettledTask]:
        puller = self._puller_of(caller)
        times, reports = Counter(each.id for each in told.root), list[TaskReport]()
        settings = self._context.facts.settings
        router = settings.router() if any(each.then for each in told.root) else None
        fit = partial(check, settings=settings, router=router)
        for each in told.root:
            if times[each.id] > 1:
                detail = f"The id {each.id[:64]!a} is in the list twice."
                raise RequestRefused(HTTPStatus.BAD_REQUEST, detail)
            if each.outcome == "advance" and not each.stage:
                raise RequestRefused(
                    HTTPStatus.BAD_REQUEST, "Name the stage that a task advances to."
                )
            if each.then and not caller.may("publish"):
                detail = "Nothing was settled: a token for follow-up tasks needs the right "
                raise RequestRefused(HTTPStatus.FORBIDDEN, f'{detail}"publish".')
            try:
                reports.append(each.told(fit))
            except Unroutable as error:
                detail = f"Nothing was settled: of {each.id[:64]!a} {error.reason}."
                raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, detail) from None
        verdicts = await self._pullers.settle(puller, reports)
        return [
            SettledTask(each.id, verdict) for each, verdict in zip(told.root, verdicts, strict=True)
        ]

    @_pull("/renewal", "Push a worker's lease back", may_be_empty=True)
    async def _renew(self, told: Renewal, caller: Caller) -> Renewed:
        puller = self._puller_of(caller)
        said = {(each.fence, each.id): each.packed() for each in told.progress}
        lease = await self._let_in(puller, self._pullers.renew(puller, said))
        return Renewed(lease.until, puller.lease, lease.fences, lease.cancelled)

    @_look_at(_PATH, "What a worker holds")
    async def _look(self, caller: Caller) -> HeldTasks:
        puller = self._puller_of(caller)
        kept = await self._pullers.look(daemon_name(puller.pool, puller.name))
        tasks = [
            {**pulled(claim, since), "progress": kept.progress.get((claim.fence, claim.task.id))}
            for claim, since in kept.claims
        ]
        return cast(HeldTasks, {"tasks": tasks, "more": kept.more, "lease_until": kept.lease_until})

    @Endpoint("DELETE", _PATH, "Let all that a worker holds go back", right="pull")
    async def _leave(self, caller: Caller) -> Returned:
        puller = self._puller_of(caller)
        self._lines.dismiss(puller.daemon)
        async with self._lock_of(puller):
            return Returned(await self._pullers.leave(puller))

    @Endpoint(
        "PUT",
        "/pools/{pool}/tasks",
        "Make the plain tasks that wait in a pool equal to a list; "
        "what is handed out is left alone",
        'The body is JSON Lines, one task each: {"id": "…", "priority": seconds, "body": {…}}, and '
        '"type" where the pool has several. What is handed out is left alone.',
        right="fill",
        may_be_unfit=True,
    )
    async def _fill(self, caller: Caller) -> Filled:
        return await self._filling.fill(self._pool_of(caller), caller)

    def _lock_of(self, puller: Puller) -> asyncio.Lock:
        return self._locks.setdefault(puller.daemon, asyncio.Lock())

    def _pool_of(self, caller: Caller) -> str:
        """The called pool, if it exists and the caller may use it."""
        name = caller.path["pool"]
        if name not in self._context.facts.settings.pools:
            raise RequestRefused(
                HTTPStatus.NOT_FOUND, f"There is no pool {name[:64]!a}: [pools.NAME] sets one up."
            )
        if caller.holder is not None and not caller.holder.may_use(name):
            raise RequestRefused(
                HTTPStatus.FORBIDDEN, f"The token of {caller.holder.name} isn't for pool {name!r}."
            )
        return name

    def _puller_of(self, caller: Caller) -> Puller:
        pool, worker = self._pool_of(caller), caller.path["worker"]
        if not _WORKER.fullmatch(worker):
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST,
                "Give the worker a name of 1 to 128 letters, digits and any of . _ @ : + = -",
            )
        rule = self._context.facts.settings.pools[pool]
        return Puller(pool, worker, rule.lease, rule.max_workers)

    async def _let_in(self, puller: Puller, call: Awaitable[_Result]) -> _Result:
        """The result of a call that may open a session.

        Raises:
            RequestRefused: the pool has as many workers as it may.
        """
        try:
            return await call
        except PoolFull as error:
            await self._tend()  # workers that were silent for a lease make room
            # Not 503: a proxy would take this process for ill.
            status, seconds = HTTPStatus.TOO_MANY_REQUESTS, min(puller.lease, _RETRY)
            raise RequestRefused(status, str(error), retry_after=math.ceil(seconds)) from None

    async def _tend(self) -> None:
        """Do what upkeep does in daemons, as there may be none; once a `LOOK` or `REST` at most."""
        if monotonic() < self._tend_at:
            return
        self._tend_at = monotonic() + LOOK
        has_more = await asyncio.gather(*(store.tend() for store in self._stores))
        if any(has_more):
            self._tend_at = monotonic() + REST


async def _hang_up(caller: Caller) -> None:
    """Return once the caller has hung up."""
    while (await caller.request.receive())["type"] != "http.disconnect":
        pass
