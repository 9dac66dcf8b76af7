"""A worker that pulls, for Python programs without Redis and RabbitMQ: it needs only HTTP.

    from groupflow import Retry, Task
    from groupflow.remote import Worker

    async def deliver(task: Task) -> None: ...

    Worker("http://127.0.0.1:9464", "couriers", deliver, token="…", concurrency=20).run_forever()

It asks for as many tasks as it may run at once, pushes its lease back while they run, and settles
each until the server answers. While the server is away it goes on with the tasks it has.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from inspect import isawaitable
from math import inf
from time import monotonic
from typing import Any, TypeAlias
from uuid import uuid4

import httpx
import structlog

from groupflow.core.backoff import Backoff
from groupflow.core.outcome import Dead, Outcome, Retry, is_async
from groupflow.core.task import Task, take_progress
from groupflow.flow.handling import Failed, checked, failed, was_cancelled
from groupflow.flow.threads import run_in_thread
from groupflow.pools.remote_pool import (
    MOST_BYTES,
    OF_WHAT_WAS_SAID,
    TIMEOUT,
    Mark,
    Refused,
    RemotePool,
    is_url,
    settlement,
    task_of,
)

__all__ = ["Refused", "Worker"]

log = structlog.get_logger("groupflow.remote")

Handle: TypeAlias = Callable[[Task], Awaitable[Outcome | None] | Outcome | None]

WAIT = 30.0  # seconds that a call for tasks may wait for some
_RENEWALS = 4  # in a lease
_MOST = 500  # tasks that a worker may hold
_MOST_SAID = 200  # settlements in a call
_REMEMBERED = 10_000  # finished tasks: an answer may be older than their settlement
_CANCELLED = Retry(reason="cancelled")  # with this the server cancels it, where that is asked for


class Worker:
    """Pulls tasks from a pool and runs them."""

    def __init__(
        self,
        url: str,
        pool: str,
        handle: Handle,
        *,
        token: str = "",
        name: str = "",
        concurrency: int = 1,
        drain: float = 30.0,
    ) -> None:
        """Asks for nothing yet.

        Args:
            url: where the server listens (`[http] listen`).
            pool: the pool's name.
            handle: runs one attempt, a plain function in a thread. What it returns is as for any
                handler; what it raises makes the task wait for its next attempt, by the server's
                policy.
            token: with the right to pull; to publish as well, where tasks have follow-up tasks.
            name: tells this worker from others of the pool; made of host and process by default.
            concurrency: tasks at once, 500 at most.
            drain: seconds that a stop waits for tasks that run.

        Raises:
            ValueError: the URL or the concurrency can't be used.
        """
        if not is_url(url):
            raise ValueError(f"Worker(url={url!r}): write http://HOST:PORT")
        if not 1 <= concurrency <= _MOST:
            raise ValueError(f"Worker(concurrency={concurrency!r}): from 1 to {_MOST}")
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"
        self._told = {"url": url, "pool": pool, "concurrency": concurrency}
        self._is_connected = False  # the first call for tasks doesn't wait for some
        self._handle = handle
        self._threads = None if is_async(handle) else ThreadPoolExecutor(concurrency, "tasks")
        self._concurrency = concurrency
        self._drain = drain
        self._pool = RemotePool(url, pool, self.name, token)
        self._running: dict[Mark, asyncio.Task[None]] = {}
        self._tasks: dict[Mark, Task] = {}  # those of them whose handler has begun
        self._said: dict[Mark, bytes] = {}  # settlements without an answer yet
        self._progress: dict[Mark, bytes] = {}  # what handlers said, without an answer yet
        self._over: OrderedDict[Mark, None] = OrderedDict()
        self._free, self._news, self._stopping = (asyncio.Event() for _ in range(3))
        self._lease = 60.0  # seconds, until the server tells its own
        self._lease_told = asyncio.Event()  # set when the lease changes

    def stop(self) -> None:
        """Ask for nothing more; end once running tasks have ended."""
        self._stopping.set()

    def run_forever(self) -> None:
        """Run until SIGTERM or SIGINT, on a loop of its own."""
        asyncio.run(self._run_until_signal())

    async def _run_until_signal(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        await self.run()

    async def run(self) -> None:
        """Work until `stop` is called; then let running tasks end, and give the rest back.

        Cancelled or refused, it gives back at once what runs, and settles what has ended.

        Raises:
            Refused: a token, a pool or a name is wrong.
        """
        whole = (self._renew, self._say, self._pull)
        _, saying, pulling = parts = [asyncio.create_task(each()) for each in whole]
        stopping: asyncio.Task[Any] = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({*parts, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for each in parts:
                if each.done():
                    each.result()
            pulling.cancel()
            await asyncio.gather(pulling, return_exceptions=True)  # before this worker leaves
            if self._running:
                await asyncio.wait([*self._running.values()], timeout=self._drain)
        except BaseException:
            with suppress(Refused):
                await self._leave(saying, pulling)
            raise
        else:
            await self._leave(saying, pulling)
        finally:
            for each in (*parts, stopping, *self._running.values()):
                each.cancel()
            await asyncio.gather(*parts, *self._running.values(), return_exceptions=True)
            if self._threads is not None:
                self._threads.shutdown(wait=False)
            await self._pool.close()

    async def _pull(self) -> None:
        """Ask for tasks whenever there is room for some.

        One that has ended takes room until it is settled: more than can run would be held else.
        """
        backoff = Backoff()
        while True:
            holding = len(self._running) + len(self._said)
            if holding >= self._concurrency:
                self._free.clear()
                await self._free.wait()
                continue
            try:
                answer = await self._pool.claim(
                    self._concurrency, WAIT * self._is_connected, holding
                )
            except httpx.HTTPError:
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            if answer["lease"] != self._lease:
                self._lease = answer["lease"]
                self._lease_told.set()
            if not self._is_connected:
                self._is_connected = True
                log.info("remote.connected", worker=self.name, **self._told)
            self._begin(answer)

    def _begin(self, answer: Mapping[str, Any]) -> None:
        """Begin what is new in an answer and has room, and end what is to be cancelled."""
        cancelled = answer.get("cancelled", ())
        self._cancel(cancelled)
        ended = {(each["fence"], each["id"]) for each in cancelled}
        for told in answer["tasks"]:
            mark = (told["fence"], told["id"])
            if mark in self._running or mark in self._over:
                continue
            if mark in ended:
                self._end(mark, _CANCELLED)
            elif len(self._running) < self._concurrency:  # else the next answer has it again
                self._running[mark] = asyncio.create_task(self._run(mark, task_of(told)))

    def _cancel(self, told: Iterable[Mapping[str, Any]]) -> None:
        """Tasks are to be cancelled: each call says so until they are settled."""
        for each in told:
            mark = (each["fence"], each["id"])
            task, running = self._tasks.get(mark), self._running.get(mark)
            if task is not None and running is not None and not task.cancelled:
                log.info("remote.cancelled", task=task.id, fence=task.fence)
                vars(task)["cancelled"] = True  # its handler has this very one
                running.cancel()

    async def _run(self, mark: Mark, task: Task) -> None:
        self._tasks[mark] = task  # from here on its cancellation is met below
        try:
            outcome = checked(await self._call(task))
        except BaseException as error:
            is_cancelled = isinstance(error, asyncio.CancelledError) and was_cancelled()
            if is_cancelled and not task.cancelled:
                raise
            outcome = _CANCELLED if is_cancelled else failed(error)
        finally:
            self._running.pop(mark, None)
            self._tasks.pop(mark, None)
            self._progress.pop(mark, None)
            self._forget(mark)
            self._free.set()
        if isinstance(outcome, Failed):
            reason = f"{outcome.error}: {outcome.message}"
            log.warning("remote.failed", task=task.id, fence=task.fence, error=reason)
            outcome = Dead(reason) if outcome.is_final else Retry(reason=reason)
        self._end(mark, outcome)

    async def _call(self, task: Task) -> Any:
        if self._threads is None:
            answer: Any = self._handle(task)
        else:
            answer = await run_in_thread(self._threads, task, self._handle, task)
        return await answer if isawaitable(answer) else answer  # a lambda may give a coroutine

    def _end(self, mark: Mark, outcome: Outcome) -> None:
        """Have an outcome told to the server."""
        self._forget(mark)
        self._said[mark] = settlement(mark, outcome)
        self._news.set()

    def _forget(self, mark: Mark) -> None:
        """Begin this claim never again."""
        self._over[mark] = None
        while len(self._over) > _REMEMBERED:
            self._over.popitem(last=False)

    async def _say(self) -> None:
        """Settle tasks, again and again until the server answers."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self._say_all(inf)

    async def _say_all(self, until: float) -> None:
        backoff = Backoff()
        while self._said and monotonic() < until:
            try:
                await self._say_some()
                backoff.reset()
            except httpx.HTTPError:
                await asyncio.sleep(backoff.next())

    async def _say_some(self) -> None:
        some, size = dict[str, Mark](), 0
        for mark, said in [*self._said.items()][:_MOST_SAID]:
            size += len(said)
            if some and size > MOST_BYTES:
                break
            some.setdefault(mark[1], mark)  # a list has no id twice
        await self._tell([*some.values()])

    async def _tell(self, marks: list[Mark]) -> None:
        """Settle tasks; where the server can't use the outcome of one, its handler has failed."""
        try:
            await self._settle(marks)
        except Refused as refusal:
            if refusal.status not in OF_WHAT_WAS_SAID:
                raise
            if len(marks) > 1:  # which of them it is, it doesn't say
                for mark in marks:
                    await self._tell([mark])
                return
            why = f"its outcome was refused: {refusal}"
            self._said[marks[0]] = settlement(marks[0], Retry(reason=why))
            await self._settle(marks)

    async def _settle(self, marks: list[Mark]) -> None:
        verdicts = await self._pool.settle([self._said[mark] for mark in marks])
        for mark, is_accepted in zip(marks, verdicts, strict=True):
            if not is_accepted:
                log.warning("remote.stale", task=mark[1], fence=mark[0])
            self._said.pop(mark, None)
            self._free.set()

    async def _renew(self) -> None:
        """Push the lease back while tasks run; cancel those that the worker has lost, once."""
        lost, backoff = set[Mark](), Backoff()
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._lease_told.wait(), self._lease / _RENEWALS)
            self._lease_told.clear()
            if not self._running and not self._said:
                continue
            lost &= self._running.keys()
            known = self._running.keys() - lost
            for mark, task in self._tasks.items():
                if packed := take_progress(task):
                    self._progress[mark] = packed
            try:
                answer = await self._pool.renew(self._progress, self._lease / _RENEWALS)
            except httpx.HTTPError:
                await asyncio.sleep(backoff.next())
                self._lease_told.set()  # the next try is due
                continue
            backoff.reset()
            self._progress = {}
            self._lease = answer["lease"]  # processes that answer in turn may differ about it
            self._cancel(answer.get("cancelled", ()))
            held = set(answer["fences"])
            for mark in known:
                if mark[0] not in held and (running := self._running.get(mark)) is not None:
                    log.warning("remote.lost", task=mark[1], fence=mark[0])
                    lost.add(mark)
                    running.cancel()

    async def _leave(self, *parts: asyncio.Task[None]) -> None:
        """Cancel what runs, wait until all is settled, and give back unfinished tasks."""
        # Two can't settle the same tasks, and what goes back before its handler has ended would
        # run a second time.
        ending = (*parts, *self._running.values())
        for each in ending:
            each.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        try:
            await self._say_all(monotonic() + TIMEOUT)
        finally:
            with suppress(httpx.HTTPError):
                await self._pool.leave()
