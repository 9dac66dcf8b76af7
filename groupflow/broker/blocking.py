"""An application's publisher for code without an event loop: a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from itertools import islice
from typing import Any, Self, TypeAlias, TypeVar
from weakref import WeakSet

from groupflow.broker.publisher import Body, Message
from groupflow.broker.terms import closed
from groupflow.core.errors import BrokerUnavailable, PublishFailed

_AT_ONCE = 1000  # messages of `publish_many` that are handed to the loop together

Publisher: TypeAlias = Any  # `application.Publisher`, which makes these
_Answer = TypeVar("_Answer")


class SyncPublisher:
    """What `Publisher.sync()` gives: the same, and each call returns when it is done.

    All threads of a process may share one. Made before a fork, as servers with worker processes
    do, it serves each of them, over a connection of its own.

    ```python
    publisher = Publisher("amqp://localhost/").sync()
    publisher.publish({"app_name": "crm", "tenant_id": 42}, type="import.contacts")
    ```
    """

    _lock: threading.Lock
    _running: _Running | None

    def __init__(self, make: Callable[[], Publisher]) -> None:
        self._make = make
        self._is_closed = False
        self._forget()
        _all.add(self)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Connect; all as `Publisher.open` says."""
        self._run(lambda publisher: publisher.open())

    def close(self) -> None:
        """Close the connection, end the thread; nothing can be published any more.

        A process may also just end: what `publish` has returned is confirmed.
        """
        with self._lock:
            self._is_closed = True
            running, self._running = self._running, None
        if running is not None:
            running.stop()

    def publish(
        self,
        body: Body | Message,
        *,
        type: str | None = None,
        id: str | None = None,
        headers: Mapping[str, Any] | None = None,
        priority: float | None = None,
        delay: float | None = None,
        expires: float | None = None,
    ) -> str:
        """Publish one message and wait for its confirm; all as `Publisher.publish` says."""
        published: str = self._run(
            lambda publisher: publisher.publish(
                body,
                type=type,
                id=id,
                headers=headers,
                priority=priority,
                delay=delay,
                expires=expires,
            )
        )
        return published

    def request(
        self,
        body: Body | Message,
        *,
        type: str | None = None,
        id: str | None = None,
        headers: Mapping[str, Any] | None = None,
        priority: float | None = None,
        delay: float | None = None,
        expires: float | None = None,
        timeout: float = 60.0,
    ) -> Any:
        """Publish one message, and wait for its task's result; all as `Publisher.request` says."""
        return self._run(
            lambda publisher: publisher.request(
                body,
                type=type,
                id=id,
                headers=headers,
                priority=priority,
                delay=delay,
                expires=expires,
                timeout=timeout,
            )
        )

    def cancel(
        self,
        id: str,
        body: Body = "{}",
        *,
        type: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        """Cancel a task; all as `Publisher.cancel` says."""
        self._run(lambda publisher: publisher.cancel(id, body, type=type, headers=headers))

    def publish_many(self, messages: Iterable[Message]) -> list[str]:
        """Publish messages in order and wait for their confirms; all as `Publisher.publish_many`.

        They are taken in the thread of the caller, so that they may come from its cursor.
        """
        source, ids = iter(messages), list[str]()
        while some := list(islice(source, _AT_ONCE)):
            try:
                ids += self._publish_some(some)
            except (PublishFailed, BrokerUnavailable) as error:
                error.confirmed += len(ids)
                raise
        return ids

    def _publish_some(self, messages: Iterable[Message]) -> list[str]:
        return self._run(lambda publisher: publisher.publish_many(messages))

    def _run(self, call: Callable[[Publisher], Coroutine[Any, Any, _Answer]]) -> _Answer:
        with self._lock:
            if self._is_closed:
                raise closed()
            if self._running is None:
                self._running = _Running(self._make())
            future = self._running.begin(call)
        try:
            return future.result()
        except CancelledError:
            raise closed() from None
        except BaseException:
            future.cancel()  # Ctrl-C, or an application server's own time limit
            raise

    def _forget(self) -> None:
        """Start over in a forked process: the thread is gone, and may have held the lock."""
        self._lock = threading.Lock()
        self._running = None


class _Running:
    """A publisher, its loop and the thread that turns it."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._loop = asyncio.new_event_loop()
        # A daemon thread: a process that forgets to close ends all the same.
        self._thread = threading.Thread(target=self._turn, name="groupflow publisher", daemon=True)
        self._thread.start()

    def begin(self, call: Callable[[Publisher], Coroutine[Any, Any, _Answer]]) -> Future[_Answer]:
        return asyncio.run_coroutine_threadsafe(call(self._publisher), self._loop)

    def stop(self) -> None:
        """End calls in flight as well; the last call."""
        self.begin(lambda publisher: publisher.close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _turn(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()  # what is left is cancelled by the runner


def _forget_all() -> None:
    for each in [*_all]:
        each._forget()


_all: WeakSet[SyncPublisher] = WeakSet()
os.register_at_fork(after_in_child=_forget_all)
