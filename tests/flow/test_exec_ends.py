"""How commands end: by themselves, cut off, with all that they have started."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

import psutil
import pytest

from groupflow.core.outcome import Advance, Done
from groupflow.flow.handling import Failed
from tests.deadlines import deadline
from tests.flow.commands import cancelled, is_alive, on_uvloop, shell, until
from tests.flow.tasks import failure, task


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
async def test_a_command_that_can_not_be_waited_for_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no thread is to be had, the attempt has failed, and nothing of it is left."""

    def refused(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refused)
    outcome = await shell(f"echo $$ > {tmp_path}/a; sleep 600").handle(task())
    assert outcome == Failed("OSError", "sh can't be started: can't start new thread")
    assert not any(str(tmp_path) in line for line in _commands())


def _commands() -> list[str]:
    lines = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            lines.append(" ".join(each.cmdline()))
    return lines


def pids_in(folder: Path, count: int) -> Callable[[], bool]:
    """Whether so many processes have left their pid in a folder."""
    return lambda: len([p for p in folder.iterdir() if p.read_text().strip()]) == count


# Ways in which a command may be caught by its cancellation: each leaves its pids in $1.
STUBBORN = "trap '' TERM; "
SHAPES = {
    "waits": ("echo $$ > {0}/a; sleep 600", 1),
    "ignores SIGTERM": (STUBBORN + "echo $$ > {0}/a; while :; do sleep 600; done", 1),
    "has a grandchild": ("(sh -c 'echo $$ > {0}/b; sleep 600') & echo $$ > {0}/a; wait", 2),
    "has a stubborn grandchild": (
        '(sh -c "' + STUBBORN + 'echo \\$\\$ > {0}/b; sleep 600") & echo $$ > {0}/a; wait',
        2,
    ),
    "has a grandchild in a session of its own": (
        "setsid sh -c 'echo $$ > {0}/b; sleep 600' & echo $$ > {0}/a; wait",
        2,
    ),
    "has an orphan in a session of its own": (
        "(setsid sh -c 'echo $$ > {0}/b; sleep 600' >/dev/null 2>&1 &); echo $$ > {0}/a; sleep 600",
        2,
    ),
    "has a grandchild without the mark": (
        "env -i setsid sh -c 'echo $$ > {0}/b; sleep 600' & echo $$ > {0}/a; wait",
        2,
    ),
    "closed its output": ("exec >&- 2>&-; echo $$ > {0}/a; sleep 600", 1),
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
        for _ in range(10):  # into the wait for the polite signal's effect
            await asyncio.sleep(0)
    async with asyncio.timeout(deadline()):
        await asyncio.wait([running])
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
