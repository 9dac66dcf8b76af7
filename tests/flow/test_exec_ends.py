"""How commands end: by themselves, cut off, with all that they have started and have to find."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread, get_ident

import psutil
import pytest

from groupflow.core.outcome import Advance, Done
from groupflow.flow.handling import Failed
from groupflow.flow.process import MARK, Looks, ProcessInfo, look, send, started_by
from tests.deadlines import deadline, until
from tests.flow.tasks import cancelled, failure, is_alive, on_uvloop, shell, task
from tests.turns import turns


@pytest.mark.parametrize("streams", ["</dev/null >/dev/null 2>&1", ""])
@on_uvloop
async def test_a_command_has_ended_when_it_has_exited(tmp_path: Path, streams: str) -> None:
    """What it left behind neither holds the task nor outlives it, be its output open or not."""
    script = f"sleep 600 {streams} & echo $! > {tmp_path}/a; exit 0"
    async with asyncio.timeout(deadline()):
        assert await shell(script).handle(task()) == Done()
    pid = int((tmp_path / "a").read_text())
    await until(lambda: not is_alive(pid))


@on_uvloop
async def test_who_got_its_output_may_finish() -> None:
    """As `tee` does, which a shell doesn't wait for."""
    script = '(sleep 0.2; echo \'{"stage": "two"}\') & exit 0'
    assert await shell(script).handle(task()) == Advance("two")


@on_uvloop
async def test_a_lost_exit_code_is_a_failed_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python handler that waits for any child takes it; the task must not count as done."""

    def taken(*_: object) -> None:
        raise ChildProcessError

    monkeypatch.setattr(os, "waitid", taken)
    outcome = await failure(shell("exit 0"))
    assert "lost" in outcome.message


@on_uvloop
async def test_no_thread_to_wait_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread is to be had, the attempt has failed, and nothing of it is left."""

    def refused(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = set(psutil.Process().children(recursive=True))  # servers that other tests share
    monkeypatch.setattr(Thread, "start", refused)
    outcome = await shell(f"echo $$ > {tmp_path}/a; sleep 600").handle(task())
    assert outcome == Failed("OSError", "sh can't be started: can't start new thread")
    ours = set(psutil.Process().children(recursive=True)) - before
    assert [each.pid for each in ours if is_alive(each.pid)] == []


def pids_in(folder: Path, count: int) -> Callable[[], bool]:
    """Whether so many processes have left their pid in a folder."""
    return lambda: len([p for p in folder.iterdir() if p.read_text().strip()]) == count


# Ways in which a command may be caught by its cancellation: each leaves its pids in $1.
STUBBORN = "trap '' TERM; "
A, B = "echo $$ > {0}/a; ", "sh -c 'echo $$ > {0}/b; sleep 600'"
SHAPES = {
    "waits": (A + "sleep 600", 1),
    "ignores SIGTERM": (STUBBORN + A + "while :; do sleep 600; done", 1),
    "has a grandchild": (f"({B}) & {A}wait", 2),
    "has a stubborn grandchild": (f"({STUBBORN}{B}) & {A}wait", 2),
    "has a grandchild in a session of its own": (f"setsid {B} & {A}wait", 2),
    "has an orphan in a session of its own": (f"(setsid {B} >/dev/null 2>&1 &); {A}sleep 600", 2),
    "has a grandchild without the mark": (f"env -i setsid {B} & {A}wait", 2),
    "closed its output": (f"exec >&- 2>&-; {A}sleep 600", 1),
}


@pytest.mark.parametrize("shape", SHAPES)
@on_uvloop
async def test_a_cancelled_attempt_ends_all_that_it_started(tmp_path: Path, shape: str) -> None:
    script, count = SHAPES[shape]

    handling = shell(script.format(tmp_path)).handle(task(body=b"x" * 1_000_000))
    await cancelled(handling, pids_in(tmp_path, count))
    pids = [int(path.read_text()) for path in tmp_path.iterdir()]  # noqa: ASYNC240
    # SIGKILL was sent before the attempt ended; when the kernel acts on it isn't ours to say.
    await until(lambda: not any(is_alive(pid) for pid in pids))


@on_uvloop
async def test_a_second_cancellation_doesnt_spare_a_stubborn_command(tmp_path: Path) -> None:
    """As when an attempt over its time is handed back by a daemon that stops."""
    script, count = SHAPES["ignores SIGTERM"]

    running = asyncio.create_task(shell(script.format(tmp_path)).handle(task()))
    await until(pids_in(tmp_path, count))
    for _ in range(2):
        running.cancel()
        await turns(10)  # into the wait for the polite signal's effect
    await asyncio.wait_for(asyncio.wait([running]), deadline())
    pid = int((tmp_path / "a").read_text())
    await until(lambda: not is_alive(pid))


@on_uvloop
async def test_a_cancelled_chatterbox_leaves_no_pipe_open(tmp_path: Path) -> None:
    """The rest of its output is never read, so only we can close the pipes."""

    def open_pipes() -> int:
        fds = Path("/proc/self/fd")
        with_links = (fd.readlink() for fd in fds.iterdir() if fd.is_symlink())
        return sum(str(link).startswith("pipe:") for link in with_links)

    await shell("exit 0").handle(task())  # the loop has opened what it needs for itself
    before = open_pipes()
    for n in range(5):
        chatter = f"echo $$ > {tmp_path}/{n}; exec yes"
        await cancelled(shell(chatter).handle(task()), pids_in(tmp_path, n + 1))
    await until(lambda: open_pipes() <= before)


@on_uvloop
async def test_a_command_has_a_polite_signal_first(tmp_path: Path) -> None:
    script = (
        f"trap 'echo tidied > {tmp_path}/out; exit 0' TERM; echo $$ > {tmp_path}/a; "
        "while :; do sleep 0.05; done"
    )
    await cancelled(shell(script).handle(task()), (tmp_path / "a").exists)
    assert (tmp_path / "out").read_text() == "tidied\n"


@on_uvloop
async def test_a_finished_command_had_a_group_of_its_own_and_leaves_no_zombie() -> None:
    outcome = await failure(shell("echo $$ $(ps -o pgid= -p $$) >&2; exit 1"))
    pid, group = map(int, outcome.message.split()[-2:])
    assert group != os.getpgid(0)
    await until(lambda: not Path(f"/proc/{pid}").exists())


def at_each_look(monkeypatch: pytest.MonkeyPatch, hook: Callable[[], None]) -> None:
    """Call a hook within each look, when it has its list of processes."""
    real = psutil.pids

    def listed() -> list[int]:
        pids = real()
        hook()
        return pids

    monkeypatch.setattr(psutil, "pids", listed)


@on_uvloop
async def test_no_look_is_on_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        await turns()
        asking[1].cancel()
        await asyncio.wait([asking[1]])
        go.set()
        seen = await asyncio.wait_for(asyncio.gather(first, *asking[2:], asking[0]), deadline())
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
    await asyncio.wait_for(asyncio.wait([running]), deadline())
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
