"""A command's pipes, and what is left of it when it is forgotten."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from groupflow.flow.process import OUTPUT_BYTES, Process, _Input, _Output, _whole
from tests.deadlines import deadline


def pipe() -> tuple[IO[bytes], IO[bytes]]:
    reads, writes = os.pipe()
    return os.fdopen(reads, "rb", 0), os.fdopen(writes, "wb", 0)


async def test_what_is_written_is_kept_up_to_its_end_without_waiting_for_more() -> None:
    """A process that still holds the other end must not stop the loop."""
    reads, writes = pipe()
    output = _Output(reads)
    writes.write(b"one ")
    await asyncio.sleep(0)
    writes.write(b"two")
    assert output.rest() == b"one two"
    assert not output.closed.is_set()
    writes.write(b"x" * OUTPUT_BYTES)
    assert output.rest() == b"x" * OUTPUT_BYTES
    writes.close()
    async with asyncio.timeout(deadline()):
        await output.closed.wait()
    output.close()
    assert output.rest() == b"x" * OUTPUT_BYTES


async def test_a_body_is_written_as_fast_as_it_is_taken() -> None:
    """And a command that takes none of it keeps no other task waiting."""
    reads, writes = pipe()
    os.set_blocking(reads.fileno(), False)
    body = os.urandom(300_000)
    _Input(writes, body)
    taken = b""
    async with asyncio.timeout(deadline()):
        while not writes.closed:
            await asyncio.sleep(0)
            with suppress(BlockingIOError):
                taken += os.read(reads.fileno(), 1 << 16)
        while chunk := os.read(reads.fileno(), 1 << 16):
            taken += chunk
    assert taken == body
    reads.close()
    reads, writes = pipe()
    reads.close()
    _Input(writes, b"never read")
    async with asyncio.timeout(deadline()):
        while not writes.closed:
            await asyncio.sleep(0)


async def test_a_body_that_fills_the_pipe_waits_for_its_reader() -> None:
    """When it is asked to write where nothing can be written, it does so later."""
    reads, writes = pipe()
    given = _Input(writes, b"x" * 1_000_000)
    for _ in range(3):
        given._write()
    assert not writes.closed
    reads.close()
    given.close()
    given.close()


async def test_what_nothing_may_cut_off_ends_first_and_then_it_is_cut_off() -> None:
    may_end, ended = asyncio.Event(), list[str]()

    async def work() -> None:
        await may_end.wait()
        ended.append("work")

    whole = asyncio.create_task(_whole(asyncio.ensure_future(work())))
    for _ in range(2):
        await asyncio.sleep(0)
        whole.cancel()
    await asyncio.sleep(0)
    assert not whole.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await whole
    assert ended == ["work"]
    await _whole(asyncio.ensure_future(asyncio.sleep(0)))

    async def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await _whole(asyncio.ensure_future(fails()))


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""


async def _until(pid: int, state: str) -> None:
    async with asyncio.timeout(deadline()):
        while _state(pid) != state:
            await asyncio.sleep(0.01)


async def test_a_command_is_reaped_once_it_has_ended_and_is_forgotten() -> None:
    """Not before: until then its number is no other process's, and may be sent signals."""
    command = ["/bin/sh", "-c", "read x"]
    early, late = (Process(command, {}, b"") for _ in range(2))
    pid = late._popen.pid
    await _until(pid, "Z")
    async with asyncio.timeout(deadline()):
        await late.ended()
    assert _state(pid) == "Z"
    late.close()
    assert _state(pid) == ""
    early.close()
    await _until(early._popen.pid, "")


async def test_all_of_the_output_is_there_when_it_has_ended() -> None:
    """Also what comes from one that is left to write on, and takes a little longer."""
    script = "(sleep 0.3; echo late; echo trouble >&2) & echo early"
    process = Process(["/bin/sh", "-c", script], {"PATH": os.environ["PATH"]}, b"")
    async with asyncio.timeout(deadline()):
        ended = await process.ended()
    process.close()
    assert ended.code == 0
    assert ended.stdout == b"early\nlate\n"
    assert ended.stderr == b"trouble\n"
