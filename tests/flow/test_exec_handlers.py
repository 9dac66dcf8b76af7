"""Commands as handlers: real processes, what they are given, and how all of them end."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from threading import Thread
from typing import Any, ParamSpec

import orjson
import pytest
import uvloop

from groupflow.core.app import App
from groupflow.core.errors import ConfigError
from groupflow.core.outcome import Advance, Done, Outcome, Retry
from groupflow.flow.exec_handlers import ExecRunner
from groupflow.flow.handling import MESSAGE_CHARS, Failed
from groupflow.flow.leftovers import MARK, family, look_around
from groupflow.flow.process import OUTPUT_BYTES
from groupflow.flow.runners import AllRunners
from groupflow.settings.rules import HandlerRule
from tests.flow.tasks import TASK, task

DEADLINE = 20.0
P = ParamSpec("P")


def on_uvloop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on the daemon's own loop: each kind of loop runs processes in its own way."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            loop.run(test(*args, **kwargs))

    return run


def runner(*command: str, **words: Any) -> ExecRunner:
    return ExecRunner(HandlerRule(exec=command, **words), command)


def shell(script: str) -> ExecRunner:
    return runner("/bin/sh", "-c", script)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something outside of this process is so."""
    async with asyncio.timeout(DEADLINE):
        while not is_so():
            await asyncio.sleep(0.005)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    return False


@pytest.mark.parametrize(
    "body", [b'{"a": 1}', b"", b"\x00\xff\n\n", b"no newline at the end", b"x" * 3_000_000]
)
@on_uvloop
async def test_the_body_comes_on_stdin_byte_for_byte(tmp_path: Path, body: bytes) -> None:
    assert await shell(f"cat > {tmp_path}/body").handle(task(body=body)) == Done()
    assert (tmp_path / "body").read_bytes() == body


@pytest.mark.parametrize("script", ["exit 0", "exec <&-; exit 0", "head -c 10 > /dev/null"])
@on_uvloop
async def test_a_command_neednt_read_its_body(script: str) -> None:
    assert await shell(script).handle(task(body=b"x" * 3_000_000)) == Done()


async def variables(of: Any, tmp_path: Path) -> dict[str, str]:
    """What a command finds in its environment."""
    assert await shell(f"env -0 > {tmp_path}/env").handle(of) == Done()
    pairs = (tmp_path / "env").read_bytes().decode().rstrip("\0").split("\0")
    return dict(pair.split("=", 1) for pair in pairs)


@on_uvloop
async def test_the_facts_of_the_task_are_in_the_environment(tmp_path: Path) -> None:
    everything = await variables(TASK, tmp_path)
    found = {n: value for n, value in everything.items() if n.startswith("GROUPFLOW_")}
    assert len(found.pop(MARK)) == 32
    assert orjson.loads(found.pop("GROUPFLOW_CONTEXT")) == {"rows": 3}
    assert found == {
        "GROUPFLOW_ID": "t-1",
        "GROUPFLOW_TYPE": "import.contacts",
        "GROUPFLOW_GROUP": "contact:42",
        "GROUPFLOW_TENANT": "42",
        "GROUPFLOW_ATTEMPT": "2",
        "GROUPFLOW_CRASHES": "1",
        "GROUPFLOW_STAGE": "check",
        "GROUPFLOW_FENCE": "7",
        "GROUPFLOW_ENQUEUED_AT": "1700000000.5",
    }


@on_uvloop
async def test_facts_that_a_task_doesnt_have_are_left_out(tmp_path: Path) -> None:
    found = await variables(task(), tmp_path)
    assert not found.keys() & {
        "GROUPFLOW_GROUP",
        "GROUPFLOW_TENANT",
        "GROUPFLOW_STAGE",
        "GROUPFLOW_CONTEXT",
    }


@on_uvloop
async def test_a_strangers_text_is_data_to_the_shell(tmp_path: Path) -> None:
    evil = f"$(touch {tmp_path}/owned); `id` \n'\""
    assert (await variables(task(group=evil), tmp_path))["GROUPFLOW_GROUP"] == evil
    assert not (tmp_path / "owned").exists()


@on_uvloop
async def test_the_daemons_own_environment_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE", "db1")
    assert await shell('test "$DATABASE" = db1').handle(task()) == Done()


@on_uvloop
async def test_what_is_meant_for_the_daemon_alone_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its passwords, where they lie, and what its service manager lets it say."""
    names = [
        *("GROUPFLOW_REDIS__URL", "groupflow_rabbitmq__url", "GROUPFLOW_SECRETS_DIR"),
        *("CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"),
        *("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "INVOCATION_ID", "JOURNAL_STREAM"),
    ]
    for name in names:
        monkeypatch.setenv(name, "secret")
    assert not (await variables(task(), tmp_path)).keys() & set(names)


@on_uvloop
async def test_no_file_of_the_daemons_is_open_in_a_command() -> None:
    """A copy of a pipe's far end among them would be held by all its children."""
    beside = [os.open(os.devnull, os.O_RDONLY), os.dup(2)]
    os.set_inheritable(beside[1], True)
    look = "for n in $(seq 0 255); do [ -h /proc/$$/fd/$n ] && echo $n; done; exit 1"
    outcome = await shell(look).handle(task())
    for fd in beside:
        os.close(fd)
    assert isinstance(outcome, Failed)
    assert outcome.message.split()[3:] == ["0", "1", "2"]


@pytest.mark.parametrize("streams", ["</dev/null >/dev/null 2>&1", ""])
@on_uvloop
async def test_a_command_has_ended_when_it_has_exited(tmp_path: Path, streams: str) -> None:
    """What it left behind neither holds the task nor outlives it, be its output open or not."""
    script = f"sleep 600 {streams} & echo $! > {tmp_path}/a; exit 0"
    async with asyncio.timeout(DEADLINE):
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
    outcome = await shell("exit 0").handle(task())
    assert isinstance(outcome, Failed)
    assert "lost" in outcome.message


@on_uvloop
async def test_a_command_that_nobody_can_wait_for_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no thread is to be had, the attempt has failed, and nothing of it is left."""

    def refused(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refused)
    outcome = await shell(f"echo $$ > {tmp_path}/a; sleep 600").handle(task())
    assert outcome == Failed("OSError", "sh can't be started: can't start new thread")
    assert not any(str(tmp_path).encode() in _command(pid) for pid in _children())


def _children() -> list[int]:
    return [each.pid for each in family(look_around(0), os.getpid(), 0, b"no such mark")]


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@on_uvloop
async def test_no_password_of_a_url_is_in_its_message() -> None:
    long = "https://T0KEN@h/" + "x" * (MESSAGE_CHARS - 12)
    outcome = await shell(f"echo {long} >&2; exit 1").handle(task())
    assert isinstance(outcome, Failed)
    assert "KEN" not in outcome.message
    outcome = await runner("/no/T0KEN/import", "--password=T0KEN").handle(task())
    assert isinstance(outcome, Failed)
    assert outcome.message == "import can't be started: No such file or directory"


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ("exit 0", Done()),
        ("echo fine; echo warning >&2", Done()),
        ("exit 75", Retry(reason="exit code 75")),
        ("echo table locked >&2; exit 75", Retry(reason="table locked")),
        ("exit 1", Failed("ExitCode", "exit code 1")),
        ("echo on stdout; exit 3", Failed("ExitCode", "exit code 3: on stdout")),
        ("echo out; echo no row >&2; exit 3", Failed("ExitCode", "exit code 3: no row")),
        ("kill -9 $$", Failed("ExitCode", "signal 9")),
        ("kill -TERM $$", Failed("ExitCode", "signal 15")),
        ("printf '\\377' >&2; exit 1", Failed("ExitCode", "exit code 1: \\xff")),
        # The next stage: the last line on stdout, and only of a command that exits 0.
        ('echo \'{"stage": "two"}\'', Advance("two", None)),
        (
            'echo working; echo \'{"stage": "two", "context": {"a": [1]}}\'',
            Advance("two", {"a": [1]}),
        ),
        ('printf \'{"stage": "two", "context": 7}\\n\\n\'', Advance("two", 7)),
        ('echo \'{"stage": "two"}\' >&2', Done()),
        ('echo \'{"stage": "two"}\'; echo that was it', Done()),
        ('echo \'{"stage": "two\'', Done()),
        ("echo '{\"rows\": 3}'", Done()),
        ("echo '[1]'", Done()),
        (
            'echo \'{"stage": "two"}\'; exit 75',
            Retry(reason='{"stage": "two"}'),
        ),
    ],
)
@on_uvloop
async def test_the_exit_code_is_the_outcome(script: str, outcome: Outcome | Failed) -> None:
    assert await shell(script).handle(task()) == outcome


@pytest.mark.parametrize("stage", ["", 7, None, ["two"]])
@on_uvloop
async def test_a_stage_that_is_no_name_has_failed_for_good(stage: Any) -> None:
    line = orjson.dumps({"stage": stage}).decode()
    outcome = await shell(f"echo '{line}'").handle(task())
    assert isinstance(outcome, Failed)
    assert outcome.is_final
    assert "stage" in outcome.message


@on_uvloop
async def test_the_next_attempt_gets_the_context_that_came_back(tmp_path: Path) -> None:
    echo = shell('printf \'{"stage": "again", "context": %s}\\n\' "$GROUPFLOW_CONTEXT"')
    outcome = await echo.handle(replace(TASK, context={"deep": [{"ä": None}]}))
    assert outcome == Advance("again", {"deep": [{"ä": None}]})


@on_uvloop
async def test_output_is_read_to_its_end_and_its_end_is_what_is_kept() -> None:
    size = 20 * OUTPUT_BYTES
    script = (
        f"head -c {size} /dev/zero | tr '\\0' a; head -c {size} /dev/zero | tr '\\0' b >&2; "
        "echo the cause >&2; exit 1"
    )
    outcome = await shell(script).handle(task())
    assert isinstance(outcome, Failed)
    assert outcome.message.endswith("bbbthe cause")
    assert len(outcome.message) <= MESSAGE_CHARS + len("exit code 1: ")


@on_uvloop
async def test_a_next_stage_behind_much_output_is_found() -> None:
    script = f"head -c {3 * OUTPUT_BYTES} /dev/zero | tr '\\0' a; echo; echo '{{\"stage\": \"b\"}}'"
    assert await shell(script).handle(task()) == Advance("b")


@pytest.mark.parametrize("command", ["/no/such/program", "no-such-program", "/etc/passwd", "/"])
@on_uvloop
async def test_a_program_that_cant_be_started_is_a_failed_attempt(command: str) -> None:
    outcome = await runner(command).handle(task())
    assert isinstance(outcome, Failed)
    name = command if command == "/" else command.rpartition("/")[2]
    assert outcome.message.startswith(f"{name} can't be started: ")
    assert not outcome.is_final


@pytest.mark.parametrize("group", ["\ud800", "x" * 200_000])
@on_uvloop
async def test_facts_that_no_environment_takes_are_a_failed_attempt(group: str) -> None:
    assert isinstance(await shell("exit 0").handle(task(group=group)), Failed)


async def cancelled(handling: Awaitable[Any], is_running: Callable[[], bool]) -> None:
    """Cancel a handling once its processes run, and wait until it has ended so."""
    running = asyncio.ensure_future(handling)
    await until(is_running)
    running.cancel()
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(asyncio.CancelledError):
            await running


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
    running.cancel()
    for _ in range(10):  # into the wait for the polite signal's effect
        await asyncio.sleep(0)
    running.cancel()
    async with asyncio.timeout(DEADLINE):
        await asyncio.wait([running])
    pid = int((tmp_path / "a").read_text())
    await until(lambda: not is_alive(pid))


@on_uvloop
async def test_a_cancelled_chatterbox_leaves_no_pipe_open(tmp_path: Path) -> None:
    """Nobody reads the rest of its output, so nothing but us would ever close the pipes."""

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
async def test_commands_run_at_once(tmp_path: Path) -> None:
    """Each waits for the other's file."""

    def meet(mine: str, other: str) -> ExecRunner:
        wait = f"while [ ! -e {tmp_path}/{other} ]; do sleep 0.01; done"
        return shell(f"touch {tmp_path}/{mine}; {wait}")

    async with asyncio.timeout(DEADLINE):
        both = (meet("a", "b").handle(task()), meet("b", "a").handle(task()))
        assert list(await asyncio.gather(*both)) == [Done(), Done()]


@on_uvloop
async def test_a_finished_command_leaves_no_zombie() -> None:
    outcome = await shell("echo $$ >&2; exit 1").handle(task())
    assert isinstance(outcome, Failed)
    pid = int(outcome.message.rpartition(" ")[2])
    await until(lambda: not Path(f"/proc/{pid}").exists())


@on_uvloop
async def test_the_commands_own_words_on_time_and_retries() -> None:
    rule = runner(sys.executable, timeout=1.5, max_attempts=2, interval=-3, jitter=0.5)
    assert rule.timeout == 1.5
    assert (rule.retry.max_attempts, rule.retry.interval, rule.retry.jitter) == (2, -3, 0.5)


@on_uvloop
async def test_a_missing_program_or_a_second_handler_is_a_configuration_error(
    tmp_path: Path,
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    app = App()
    app.handler("python")(lambda _task: None)
    with ThreadPoolExecutor(1) as threads:
        for type_, command, said in (
            ("python", "/bin/sh", "a handler for this type as well"),
            ("other", f"{tmp_path}/none", "no such program"),
        ):
            with pytest.raises(ConfigError, match=said):
                AllRunners(app, {type_: HandlerRule(exec=(command,))}, threads, 1)
        runners = AllRunners(app, {"sh": HandlerRule(exec=("/bin/sh",))}, threads, 1)
        assert runners.types == ["python", "sh"]
        assert runners.find("none") is None
        await runners.close()


@on_uvloop
async def test_processes_of_one_attempt_share_a_group_of_their_own() -> None:
    outcome = await shell("ps -o pgid= -p $$ >&2; exit 1").handle(task())
    assert isinstance(outcome, Failed)
    assert int(outcome.message.rpartition(" ")[2]) != os.getpgid(0)
