"""The loop that all simulated processes share: one queue, virtual time, and no selector.

Time stands while anything is ready, and jumps to the next timer when nothing is. So a run is a
function of its seed: the order of callbacks depends on nothing else.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context, copy_context
from typing import Any

from tests.simulation import clock
from tests.simulation.places import is_any_at, place_of, places_of
from tests.simulation.processes import OWNER, Process, Thread, context_of

MOST_STEPS = 400_000  # of a run: forty times as many as one takes


class Stuck(Exception):
    """Nothing is ready, and no timer runs; or there is no end of what is."""


class _Task(asyncio.Task[Any]):
    """A task whose place in a set depends on its number, not on where it lies in memory."""

    number: int
    owner: Thread | None

    def __hash__(self) -> int:
        return self.number


class Callback:
    """A callback that waits for its turn; asyncio's own handle costs three times as much."""

    __slots__ = ("args", "at", "context", "function", "is_cancelled")

    def __init__(
        self, at: float, function: Callable[..., object], args: tuple[Any, ...], context: Any
    ) -> None:
        self.at = at
        self.function = function
        self.args = args
        self.context: Context = copy_context() if context is None else context
        self.is_cancelled = False

    def cancel(self) -> None:
        """Never run it."""
        self.is_cancelled = True
        self.function, self.args = _nothing, ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.is_cancelled

    def when(self) -> float:
        """When it is due."""
        return self.at


def _nothing() -> None:
    pass


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs callbacks of all processes."""

    connect: Callable[..., Coroutine[Any, Any, Any]]  # what the network does
    _stopping: bool  # asyncio's

    def __init__(self) -> None:
        super().__init__()
        self._timers: list[tuple[float, int, Callback]] = []
        self._waiting: deque[Callback] = deque()
        self._numbers = itertools.count(1)
        self.steps = 0
        self.broken: Exception | None = None
        """Ends the run, where something has found that it need not go on."""
        self.on_death: Callable[[Process], None] = lambda process: None
        self.tasks: dict[_Task, None] = {}
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        """Virtual seconds."""
        return clock.now()

    def _make_task(
        self, _: asyncio.AbstractEventLoop, work: Any, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = _Task.__new__(_Task)
        task.number = next(self._numbers)
        task.owner = OWNER.get() if context is None else context.get(OWNER)
        task.__init__(work, loop=self, context=context)  # type: ignore[misc]
        self.tasks[task] = None
        task.add_done_callback(self._forget, context=_NOBODY)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)  # type: ignore[call-overload]

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """As asyncio's."""
        made = Callback(0.0, callback, args, context)
        self._waiting.append(made)
        return made

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        """As asyncio's; timers of one instant run in the order in which they were set."""
        made = Callback(when, callback, args, context)
        heapq.heappush(self._timers, (when, next(self._numbers), made))
        return made

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        """As asyncio's; where that is less than a float can tell, it still takes some time."""
        now = clock.now()
        when = now + delay
        if delay > 0 and when == now:
            when = math.nextafter(now, math.inf)
        return self.call_at(when, callback, *args, context=context)

    def _run_once(self) -> None:
        """All that is ready; where nothing is, what is due next; until the loop is to stop."""
        waiting = self._waiting
        while True:
            self._wait()
            for _ in range(len(waiting)):
                callback = waiting.popleft()
                if callback.is_cancelled:
                    continue
                thread = callback.context.get(OWNER)
                if thread is not None:
                    process = thread.process
                    is_odd = process.fuse or process.is_dead or process.is_stopped
                    if (is_odd or thread.is_blocked) and not self._may_run(callback, thread):
                        continue
                self.steps += 1
                try:
                    callback.context.run(callback.function, *callback.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    what = {"message": f"{callback.function!r} failed", "exception": error}
                    self.call_exception_handler(what)
            if self.steps > MOST_STEPS:
                raise Stuck(f"{MOST_STEPS} steps, and no end of them")
            if self._stopping:
                return

    def _wait(self) -> None:
        """Move on to what is due next, where nothing is ready."""
        if self.broken:
            raise self.broken
        waiting, timers = self._waiting, self._timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        if not waiting:
            if not timers:
                raise Stuck("nothing is ready, and no timer runs")
            clock.set_now(max(clock.now(), timers[0][0]))
        now = clock.now()
        while timers and timers[0][0] <= now:
            waiting.append(heapq.heappop(timers)[2])

    def _may_run(self, callback: Callback, thread: Thread) -> bool:
        """Whether the process that a callback belongs to lives and does not stand."""
        process = thread.process
        if (
            process.fuse
            and not process.is_dead
            and not thread.stands
            and self._burns(process, callback)
        ):
            process.fuse -= 1
            if not process.fuse:
                self.kill(process, callback)
        if process.is_dead:
            process.remains.append(callback)
            return False
        if thread.stands:
            thread.held.append(callback)
            return False
        return True

    def tasks_of(self, process: Process) -> Iterator[_Task]:
        """The tasks of a process, those of its lease too."""
        return (task for task in self.tasks if task.owner and task.owner.process is process)

    def _burns(self, process: Process, step: Callback) -> bool:
        """Whether a step counts for its fuse: one with a task where it is to die."""
        if not process.aim:
            return True
        burns = is_any_at(process.aim, self.tasks_of(process), process.places)
        process.places.pop(getattr(step.function, "__self__", None), None)  # type: ignore[arg-type]
        return burns

    def kill(self, process: Process, next_: Callback | None = None) -> None:
        """End a process between two steps: nothing of it happens from here on."""
        if process.is_dead:
            return
        process.is_dead, process.is_sound = True, False
        process.was_at = places_of(self.tasks_of(process))
        task = getattr(next_.function, "__self__", None) if next_ is not None else None
        process.died_at = place_of(task) if isinstance(task, asyncio.Task) else "between tasks"
        process.remains += [task for task in self.tasks if not task.done()]
        for thread in process.threads:
            process.remains += thread.held
        self.call_soon(self.on_death, process, context=_NOBODY)

    def stop_process(self, process: Process) -> None:
        """Freeze a process."""
        process.main.begin_to_stand()
        process.is_stopped = True

    def go_on(self, process: Process) -> None:
        """Let a frozen process run; what has come meanwhile runs first, in its order."""
        process.is_stopped, process.awake_since = False, clock.now()
        for thread in process.threads:
            self.release(thread)

    def release(self, thread: Thread) -> None:
        """Run what a thread has missed, unless it stands still."""
        if not thread.stands:
            self._waiting.extend(thread.held)
            thread.held.clear()

    # What asyncio's own loops have a selector or threads for:

    def _write_to_self(self) -> None:
        """There is no other thread that would have to wake it."""

    async def create_connection(self, factory: Any, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        """A connection of the simulated network."""
        return await self.connect(factory, *args, **options)

    def run_in_executor(self, _executor: Any, work: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run it at once: a thread whose work takes no time."""
        done = self.create_future()
        try:
            result = work(*args)
        except Exception as error:
            self.call_soon(_unless_done, done, done.set_exception, error)
        else:
            self.call_soon(_unless_done, done, done.set_result, result)
        return done

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run to the end of `work`, which belongs to no process."""
        events.set_event_loop(self)
        try:
            return self.run_until_complete(self.create_task(work, context=_NOBODY))
        finally:
            events.set_event_loop(None)


def _unless_done(done: asyncio.Future[Any], tell: Callable[[Any], None], value: Any) -> None:
    if not done.done():
        tell(value)


_NOBODY = context_of(None)
