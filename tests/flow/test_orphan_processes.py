"""What a command has started is found by few looks, off the loop, and none of it slips away."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from threading import Event, get_ident

import psutil
import pytest

from groupflow.flow.process import MARK, Looks, ProcessInfo, look, send, started_by
from tests.deadlines import deadline
from tests.flow.commands import cancelled, is_alive, on_uvloop, shell, until
from tests.flow.tasks import task


def at_each_look(monkeypatch: pytest.MonkeyPatch, hook: Callable[[], None]) -> None:
    """Call a hook within each look, when it has its list of processes."""
    real = psutil.pids

    def listed() -> list[int]:
        pids = real()
        hook()
        return pids

    monkeypatch.setattr(psutil, "pids", listed)


@on_uvloop
async def test_the_loop_looks_at_nothing_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look reads files of all processes: 10 ms and more, at each attempt that is cut off."""
    threads: list[int] = []
    at_each_look(monkeypatch, lambda: threads.append(get_ident()))
    handling = shell(f"echo $$ > {tmp_path}/a; sleep 600").handle(task())
    await cancelled(handling, (tmp_path / "a").exists)
    assert threads
    assert get_ident() not in threads


async def test_without_a_thread_it_is_looked_at_here(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks()
    looks._thread.shutdown()
    assert os.getpid() in {each.process.pid for each in await looks.after_now()}


@on_uvloop
async def test_all_who_ask_meanwhile_share_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which begins after all of them have asked: it sees what came since the other began."""
    go, looks = Event(), []

    def wait() -> None:
        looks.append(get_ident())
        assert go.wait(deadline())

    at_each_look(monkeypatch, wait)
    shared = Looks()
    first = asyncio.create_task(shared.after_now())
    await until(lambda: len(looks) == 1)
    child = subprocess.Popen(["sleep", "600"], env={MARK: "m1"}, start_new_session=True)  # noqa: ASYNC220
    try:
        asking = [asyncio.create_task(shared.after_now()) for _ in range(64)]
        await asyncio.sleep(0)
        asking[1].cancel()
        await asyncio.wait([asking[1]])
        go.set()
        async with asyncio.timeout(deadline()):
            seen = await asyncio.gather(first, *asking[2:], asking[0])
        assert len(looks) == 2
        found = [child.pid in {each.process.pid for each in one} for one in seen]
        assert found == [False] + 63 * [True]
        assert child.pid in {each.pid for each in started_by(None, "m1", seen[-1])}
        assert child.pid in {each.pid for each in started_by(psutil.Process(), "m2", seen[-1])}
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("is_cut_off", [False, True])
@on_uvloop
async def test_who_starts_ever_more_leaves_none(tmp_path: Path, is_cut_off: bool) -> None:
    """In sessions of their own and without the mark, they are known by their parent alone."""
    log = tmp_path / "pids"
    orphan = f"env -i setsid sh -c 'echo $$ >> {log}; exec sleep 600'"
    storm = f"n=0; while [ $n -lt 400 ]; do n=$((n+1)); {orphan} & done; wait"
    running = asyncio.create_task(shell(storm).handle(task()))
    await until(log.exists)
    running.cancel()
    if is_cut_off:  # again and again: none of it may cut off the killing
        while not running.done():
            running.cancel()
            await asyncio.wait([running], timeout=0.001)
    async with asyncio.timeout(deadline()):
        await asyncio.wait([running])
    pids = [int(line) for line in log.read_text().split()]
    await until(lambda: not any(is_alive(pid) for pid in pids))
    assert len(pids) == len(log.read_text().split())


def test_a_process_that_ends_during_a_look_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    monkeypatch.setattr(psutil, "pids", lambda: [ended.pid, os.getpid()])
    assert [each.process.pid for each in look()] == [os.getpid()]


def test_a_look_that_the_kernel_refuses_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the daemon may open no more files: the command's group is still killed."""

    def refused() -> list[int]:
        raise OSError

    monkeypatch.setattr(psutil, "pids", refused)
    assert look() == []


def test_another_process_with_its_number_gets_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for the one that had the number before, nor for the children that it had."""
    other = subprocess.Popen(["sleep", "600"])
    before, now = psutil.Process(other.pid), psutil.Process(other.pid)
    vars(before)["_ident"] = (other.pid, 1.0)  # psutil's: the number, and when it started
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    try:
        send(signal.SIGTERM, {before})
        assert sent == []
        send(signal.SIGTERM, {now})
        assert sent == [(other.pid, signal.SIGTERM)]
        child = ProcessInfo(psutil.Process(), other.pid, None)
        assert started_by(before, "none", [ProcessInfo(now, 1, None), child]) == set()
        assert started_by(now, "none", [ProcessInfo(now, 1, None), child]) == {child.process}
    finally:
        monkeypatch.undo()
        other.kill()
        other.wait()
