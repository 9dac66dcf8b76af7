"""Simulated processes: which callbacks belong to one, and what becomes of them when it dies.

Every callback of the loop runs in a context; the context names the thread of the process that it
belongs to. A callback of a dead process never runs; one of a stopped process runs once it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any

from tests.simulation import clock


class Process:
    """A machine with one operating system process on it."""

    def __init__(self, name: str, pid: int) -> None:
        """A process that runs; `name` is for the story of a run."""
        self.name = name
        self.pid = pid
        self.is_dead = False
        self.is_stopped = False
        self.awake_since = clock.now()
        """When (monotonic) it began, or was last let go on."""
        self.fuse = 0
        """Steps until it dies; 0 for none."""
        self.pulls = False
        """Whether it is a worker's that pulls."""
        self.aim = ""
        """Where a task of it has to be for a step to count; anywhere, if empty."""
        self.places: dict[asyncio.Task[Any], str] = {}
        """Where its tasks are, as far as that is known; while it has an aim."""
        self.was_at: set[str] = set()
        """Where its tasks were, when it died."""
        self.died_at = ""
        """Where its next step would have been, when it died."""
        self.is_sound = True
        """Whether it lives, was never told to end, and never blocked its loop."""
        self.main = Thread(self, "main")
        self.lease = Thread(self, "lease")
        # Nothing of a dead process may be collected: Python would run the `finally` of what waits.
        self.remains: list[object] = []

    @property
    def threads(self) -> tuple[Thread, Thread]:
        """Its event loop's, and its lease's."""
        return self.main, self.lease

    def __repr__(self) -> str:
        return f"{self.name}({self.pid})"


@dataclass(slots=True, eq=False)
class Thread:
    """A thread with an event loop, as the product sees it; all of them share the simulated loop."""

    process: Process
    name: str
    is_blocked: bool = False
    stands_since: float = 0.0
    """When (monotonic) it was last stopped, or blocked, and did not stand already."""
    held: list[Any] = field(default_factory=list)
    """Callbacks that wait until it goes on, in order."""

    @property
    def stands(self) -> bool:
        """Whether nothing of it runs for now."""
        return self.is_blocked or self.process.is_stopped

    def begin_to_stand(self) -> None:
        """It is about to be stopped, or blocked, and may be that already."""
        if not self.stands:
            self.stands_since = clock.now()


OWNER: ContextVar[Thread | None] = ContextVar("owner", default=None)


def own_process() -> Process | None:
    """The process that runs just now; `None` outside of all."""
    owner = OWNER.get()
    return owner.process if owner is not None else None


def context_of(thread: Thread | None) -> Context:
    """A context for callbacks of a thread; `None` for what stands outside of all processes."""
    context = copy_context()
    context.run(OWNER.set, thread)
    return context


class ThreadLoop:
    """A thread's event loop, for what other threads ask of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: Thread) -> None:
        """Binds the simulated loop, which runs everything."""
        self._loop = loop
        self.thread = thread

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> object:
        """As asyncio's."""
        return self._loop.call_soon(callback, *args, context=context_of(self.thread))

    def create_task(self, work: Coroutine[Any, Any, Any], **_: Any) -> asyncio.Task[Any]:
        """As asyncio's."""
        return self._loop.create_task(work, context=context_of(self.thread))

    def is_closed(self) -> bool:
        """As asyncio's."""
        return self.thread.process.is_dead
