"""What a command has started is found by few looks, off the loop, and none of it slips away."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from threading import Event, get_ident
from typing import Any

import pytest

from groupflow.flow.leftovers import MARK, Looks, family, look
from tests.deadlines import deadline
from tests.flow.commands import cancelled, is_alive, on_uvloop, shell, until
from tests.flow.tasks import task

Hook = Callable[[], None]


def at_each_look(monkeypatch: pytest.MonkeyPatch, hook: Hook) -> None:
    """Call a hook within each look, when it has its list of processes."""
    real = os.listdir

    def listed(path: Any = ".") -> Any:
        names = real(path)
        if str(path) == "/proc":
            hook()
        return names

    monkeypatch.setattr(os, "listdir", listed)


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


@on_uvloop
async def test_all_who_ask_meanwhile_share_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which begins after all of them have asked: it sees what came since the other began."""
    go, looks = Event(), []

    def wait() -> None:
        looks.append(get_ident())
        assert go.wait(deadline())

    at_each_look(monkeypatch, wait)
    shared = Looks()
    first = asyncio.create_task(shared.after_now(0))
    await until(lambda: len(looks) == 1)
    mark = "0" * 32
    child = subprocess.Popen(["sleep", "600"], env={MARK: mark}, start_new_session=True)  # noqa: ASYNC220
    try:
        entry = look(child.pid)
        assert entry is not None
        asking = [asyncio.create_task(shared.after_now(entry.start + n)) for n in range(64)]
        asking[1].cancel()
        await asyncio.wait([asking[1]])
        go.set()
        async with asyncio.timeout(deadline()):
            seen = await asyncio.gather(first, *asking[2:], asking[0])
        assert len(looks) == 2
        assert [child.pid in {each.pid for each in one.marks} for one in seen] == [False] + 63 * [
            True
        ]
        found = family(seen[-1], os.getpid(), entry.start, mark.encode())
        assert child.pid in {each.pid for each in found}
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
            await asyncio.sleep(0.001)
    async with asyncio.timeout(deadline()):
        await asyncio.wait([running])
    pids = [int(line) for line in log.read_text().split()]
    await until(lambda: not any(is_alive(pid) for pid in pids))
    assert len(pids) == len(log.read_text().split())
