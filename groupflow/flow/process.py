"""One command as a process: started, fed, read, and ended with all that it has started.

The loop's own subprocesses won't do. uvloop's leave a second copy of the pipes open in the command
and its children, so that even a process that closed its output would hold it. And every loop's
subprocess waits for the end of the output, which a child left behind may keep open for ever. Here
the command has 0, 1 and 2 and nothing else, and has ended when it has exited.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Thread
from typing import IO
from uuid import uuid4

import psutil

MARK = "GROUPFLOW_MARK"  # in the environment of a command and of all that it starts
OUTPUT_BYTES = 64 * 1024  # of stderr that are kept; the rest is read and dropped
KILL_AFTER = 2.0  # seconds between SIGTERM and SIGKILL, at a stop or over its time
KILL_CANCELLED_AFTER = 5.0  # and where its task is cancelled
LINGER = 2.0  # seconds in which children of an ended command may close its output

_DRAIN_READS = 17  # of `OUTPUT_BYTES`: more than the 1 MiB that a pipe can hold
_ROUNDS = 10  # of stopping processes that were started while others were stopped


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    # its exit code; below 0 the signal that ended it; ``None`` where it can't be known
    code: int | None
    stdout: bytes  # the end of it
    stderr: bytes  # the last `OUTPUT_BYTES` of it
    is_cut: bool  # whether there was more on stdout


class Process:
    """A command from its start to the end of all that it has started."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        body: bytes,
        kept: int,
        hear: Callable[[bytes], None] | None = None,
    ) -> None:
        """Start it in a session of its own, with this environment and a mark; `body` is its stdin.

        Of its stdout so many bytes are `kept`, the last ones. `hear` gets all of it, piece by
        piece, as it comes.

        Raises:
            OSError, ValueError: it can't be started.
        """
        self._mark = uuid4().hex
        self._popen = subprocess.Popen(  # noqa: S603  the operator's own list, and no shell
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environment, MARK: self._mark},
            start_new_session=True,
        )
        self._command: psutil.Process | None = None
        # It may be gone, if a handler in this process waits for any child.
        with suppress(psutil.Error, OSError):
            self._command = psutil.Process(self._popen.pid)
        self._code: int | None = None
        self._exited = asyncio.Event()
        self._is_closed = False
        assert self._popen.stdin and self._popen.stdout and self._popen.stderr  # noqa: S101, PT018
        self._stdin = _Input(self._popen.stdin, body)
        self._stdout = _Output(self._popen.stdout, kept, hear)
        self._stderr = _Output(self._popen.stderr, OUTPUT_BYTES)
        loop = asyncio.get_running_loop()
        try:
            Thread(target=self._watch, args=(loop,), daemon=True).start()
        except RuntimeError as error:  # no thread can be started
            self._signal_group(signal.SIGKILL)
            self._popen.wait()
            self.close()
            raise OSError(str(error)) from None

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for its exit, in a thread.

        This doesn't reap it: so no other process gets its number, and signals stay safe.
        """
        code = None
        with suppress(ChildProcessError):  # a handler in this process waited for any child
            found = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
            if found is not None:
                is_exit = found.si_code == os.CLD_EXITED
                code = found.si_status if is_exit else -found.si_status
        with suppress(RuntimeError):  # the loop is closed by now
            loop.call_soon_threadsafe(self._on_exit, code)

    def _on_exit(self, code: int | None) -> None:
        self._code = code
        self._exited.set()
        if self._is_closed:
            self._popen.wait()

    async def ended(self) -> Ended:
        """Wait for its exit, read its output as far as it came, end what it left in its group."""
        await self._exited.wait()
        with suppress(TimeoutError):
            # It may have handed its output to another process, such as `tee`, that still runs.
            async with asyncio.timeout(LINGER):
                await self._stdout.closed.wait()
                await self._stderr.closed.wait()
        self._signal_group(signal.SIGKILL)
        stdout, stderr = self._stdout.rest(), self._stderr.rest()
        return Ended(self._code, stdout, stderr, self._stdout.is_cut)

    async def end(self, kill_after: float = KILL_AFTER) -> None:
        """End it and all that it has started: ask, then kill."""
        known: set[psutil.Process] = set()
        try:
            known = await self._stopped(known)
            self._signal_all(signal.SIGTERM, known)
            self._signal_all(signal.SIGCONT, known)
            await self._wait_for_exit(kill_after)
        finally:
            # A command may ignore SIGTERM, its wait may be cut off, and children may be left.
            await _whole(asyncio.ensure_future(self._kill(known)))

    async def _kill(self, known: set[psutil.Process]) -> None:
        """Kill it, the processes known before SIGTERM, and those started since."""
        known = await self._stopped(known)
        self._signal_all(signal.SIGKILL, known)
        await self._wait_for_exit(KILL_AFTER)

    async def _stopped(self, known: set[psutil.Process]) -> set[psutil.Process]:
        """Stop it and all that it has started. Returns these, with those known before.

        A stopped process starts no other, and stays the parent of those it has started. So a look
        that begins after the stop and finds no new process has found all. If they were killed at
        once, their youngest children would lose the parent by which they are found.
        """
        self._signal_all(signal.SIGSTOP, known)
        for _ in range(_ROUNDS):
            seen = await LOOKS.after_now()
            more = started_by(self._command, self._mark, seen) - known
            if not more:
                break
            send(signal.SIGSTOP, more)
            known = known | more
        return known

    def _signal_all(self, number: signal.Signals, known: set[psutil.Process]) -> None:
        """Send a signal to its group and to these; a stopped process gets it once."""
        self._signal_group(number)
        send(number, known)

    def close(self) -> None:
        """Close its pipes and forget it; it is reaped once it has exited."""
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()
        self._is_closed = True
        if self._exited.is_set():
            self._popen.wait()

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # ended, or another user's by now
            os.killpg(self._popen.pid, number)

    async def _wait_for_exit(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._exited.wait()


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process in a look."""

    process: psutil.Process  # its number, and when it started: compared before each signal
    parent: int  # the number of its parent
    mark: str | None  # in its environment


def look() -> list[ProcessInfo]:
    """Look at all processes of this machine or container: takes 0.1 ms each."""
    seen = []
    with suppress(OSError):
        # Not `process_iter`: it keeps a process that has ended, where another has its number now.
        for pid in psutil.pids():
            with suppress(psutil.Error, OSError):
                each = psutil.Process(pid)
                seen.append(ProcessInfo(each, each.ppid(), _mark_of(each)))
    return seen


def _mark_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except (psutil.Error, OSError):  # another user's, or it has ended
        return None


def started_by(
    command: psutil.Process | None, mark: str, seen: Sequence[ProcessInfo]
) -> set[psutil.Process]:
    """The processes that descend from a command or have its mark, and their descendants."""
    children = defaultdict[int, set[psutil.Process]](set)
    for each in seen:
        children[each.parent].add(each.process)
    new = {each.process for each in seen if each.mark == mark or each.process == command}
    found = set[psutil.Process]()
    while new:
        found |= new
        new = set[psutil.Process]().union(*(children[each.pid] for each in new)) - found
    return found - {command}


def send(number: signal.Signals, to: set[psutil.Process]) -> None:
    """Send a signal to these processes, unless another process has the number now."""
    for each in to:
        with suppress(psutil.Error, OSError):
            each.send_signal(number)


class Looks:
    """Looks in a thread of their own, one at a time, each for all callers before it began.

    Attempts are mostly cut off together. A look that began before a call may have missed what was
    started, or stopped, since.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "looks")
        self._lock = Lock()
        self._next: Future[list[ProcessInfo]] | None = None

    async def after_now(self) -> list[ProcessInfo]:
        """A look that begins after this call."""
        try:
            with self._lock:
                self._next = self._next or self._thread.submit(self._look)
                looking = self._next
        except RuntimeError:  # no thread can be started
            return look()
        # Other callers wait for the same look, so no caller's cancellation may reach it.
        return await asyncio.shield(asyncio.wrap_future(looking))

    def _look(self) -> list[ProcessInfo]:
        with self._lock:  # callers from here on get the next look
            self._next = None
        return look()


LOOKS = Looks()


async def _whole(work: asyncio.Future[None]) -> None:
    """Await short work that nothing may cut off; raise a cancellation only after it."""
    cut_off: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cut_off = error
    work.result()
    if cut_off is not None:
        raise cut_off


class _Input:
    """Writes a body to a command, as fast as the command reads it."""

    def __init__(self, pipe: IO[bytes], body: bytes) -> None:
        self._pipe = pipe
        self._rest = memoryview(body)
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_writer(pipe.fileno(), self._write)

    def _write(self) -> None:
        try:
            self._rest = self._rest[os.write(self._pipe.fileno(), self._rest) :]
        except BlockingIOError:
            return
        except OSError:  # a command may end, or close its input, before it has read it all
            self.close()
            return
        if not self._rest:
            self.close()

    def close(self) -> None:
        """Close it; a second time does nothing."""
        if not self._pipe.closed:
            self._loop.remove_writer(self._pipe.fileno())
            self._pipe.close()


class _Output:
    """Keeps the end of what a command writes: an error's cause stands there."""

    def __init__(
        self, pipe: IO[bytes], most: int, hear: Callable[[bytes], None] | None = None
    ) -> None:
        self.closed = asyncio.Event()  # set once every process that could write has closed it
        self.is_cut = False  # whether there was more than is kept
        self._pipe = pipe
        self._hear = hear
        self._most = most
        self._kept = bytearray()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(pipe.fileno(), self._read)

    def _read(self) -> bool:
        """Read once. True where there may be more."""
        try:
            chunk = os.read(self._pipe.fileno(), OUTPUT_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        self._kept += chunk
        if len(self._kept) > self._most:
            self.is_cut = True
            del self._kept[: -self._most]
        if self._hear is not None:
            self._hear(chunk)
        if not chunk:
            self.close()
        return bool(chunk)

    def rest(self) -> bytes:
        """The kept bytes, with all that was written until now."""
        for _ in range(_DRAIN_READS):
            if self._pipe.closed or not self._read():
                break
        return bytes(self._kept)

    def close(self) -> None:
        """Close it; a second time does nothing."""
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()
            self.closed.set()
