"""Handlers that are commands: the body on stdin, the facts in the environment, the exit code back.

Exit 0 is done, 75 (sysexits' "temporary failure") asks for a retry, anything else has failed. A
command that exits 0 may name its next stage in its last line on stdout, as
``{"stage": "transcode", "context": {…}}``; any other output is only kept where it failed.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from groupflow.core.app import RetryOverride
from groupflow.core.outcome import Advance, Done, Outcome, Retry
from groupflow.core.settings import HandlerRule
from groupflow.core.task import Task
from groupflow.core.tracing import CARRIED
from groupflow.flow.handling import MESSAGE_CHARS, Failed, failed

OUTPUT_BYTES = 64 * 1024  # of each stream that are kept; the rest is read and dropped
EX_TEMPFAIL = 75
KILL_AFTER = 2.0  # seconds between the polite signal and the other one


class ExecRunner:
    """Runs one command for each task of a type."""

    def __init__(self, rule: HandlerRule, command: tuple[str, ...]) -> None:
        self._command = command
        self.timeout = rule.timeout
        self.retry = RetryOverride(rule.max_attempts, rule.interval, rule.jitter)

    async def handle(self, task: Task) -> Outcome | Failed:
        """Run the command on one task; when cancelled, end its whole process group."""
        # A start that is cancelled halfway would end the command but none of its children, so it is
        # let through to its end.
        starting = asyncio.create_task(self._start(task))
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(OSError, ValueError):
                await _end(await starting)
            raise
        except (OSError, ValueError) as error:
            return Failed(type(error).__name__, f"{self._command[0]} can't be started: {error}")
        try:
            stdout, stderr = await _talk(process, task.body)
        except BaseException:
            # Even where the command itself has exited: a child that holds its output may run on.
            await _end(process)
            raise
        return _outcome(process.returncode or 0, stdout, stderr)

    async def _start(self, task: Task) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(task),
            start_new_session=True,  # a group of its own, so that its children end with it
        )


def _environment(task: Task) -> dict[str, str]:
    """The daemon's environment without its own configuration, which may hold passwords."""
    inherited = {n: v for n, v in os.environ.items() if not n.startswith("GROUPFLOW_")}
    trace = {name.upper(): text for name, text in CARRIED.get().items()}
    return {**inherited, **trace, **variables_of(task)}


def variables_of(task: Task) -> dict[str, str]:
    """The facts of a task as ``GROUPFLOW_*``; those it doesn't have are left out."""
    facts: Mapping[str, Any] = {
        "ID": task.id,
        "TYPE": task.type,
        "GROUP": task.group,
        "TENANT": task.tenant,
        "ATTEMPT": task.attempt,
        "CRASHES": task.crashes,
        "STAGE": task.stage,
        "CONTEXT": orjson.dumps(task.context).decode() if task.context is not None else None,
        "FENCE": task.fence,
        "ENQUEUED_AT": task.enqueued_at,
    }
    return {f"GROUPFLOW_{name}": str(fact) for name, fact in facts.items() if fact is not None}


async def _talk(process: asyncio.subprocess.Process, body: bytes) -> tuple[bytes, bytes]:
    """Write the body and read both streams to their end, all at once, so that nothing blocks."""
    assert process.stdin and process.stdout and process.stderr  # noqa: S101, PT018  piped above
    stdout, stderr, _ = await asyncio.gather(
        _read_capped(process.stdout), _read_capped(process.stderr), _write(process.stdin, body)
    )
    await process.wait()
    return stdout, stderr


async def _write(stdin: asyncio.StreamWriter, body: bytes) -> None:
    # A command may well end without having read its input, or before it is even written: then
    # uvloop has closed the pipe already, and says so with a RuntimeError.
    with suppress(BrokenPipeError, ConnectionResetError, RuntimeError):
        stdin.write(body)
        await stdin.drain()
    with suppress(BrokenPipeError, ConnectionResetError, RuntimeError):
        stdin.close()
        await stdin.wait_closed()


async def _read_capped(stream: asyncio.StreamReader) -> bytes:
    """The last `OUTPUT_BYTES` of a stream: an error's cause stands at its end."""
    kept = b""
    while chunk := await stream.read(OUTPUT_BYTES):
        kept = (kept + chunk)[-OUTPUT_BYTES:]
    return kept


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process group: ask, then kill. The attempt counts as ended only when it has."""
    try:
        _signal_group(process, signal.SIGTERM)
        await _wait_a_little(process)
    finally:
        # Whatever is left: a stubborn command, one whose polite wait was cancelled, its children.
        _signal_group(process, signal.SIGKILL)
        # Nobody writes or reads its pipes any more, and only this closes them.
        if process.stdin is not None and not process.stdin.is_closing():
            process.stdin.transport.abort()
        process._transport.close()  # type: ignore[attr-defined]
    await _wait_a_little(process)


def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # gone, or of another user by now
        os.killpg(process.pid, number)


async def _wait_a_little(process: asyncio.subprocess.Process) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(KILL_AFTER):
            await process.wait()


def _outcome(code: int, stdout: bytes, stderr: bytes) -> Outcome | Failed:
    said = _tail(stderr) or _tail(stdout)
    if code == 0:
        return _next_stage(stdout)
    if code == EX_TEMPFAIL:
        return Retry(reason=said or "exit code 75")
    what = f"signal {-code}" if code < 0 else f"exit code {code}"
    return Failed("ExitCode", f"{what}: {said}" if said else what)


def _next_stage(stdout: bytes) -> Outcome | Failed:
    line = stdout.rstrip().rpartition(b"\n")[2]
    if not line.startswith(b"{"):
        return Done()
    try:
        answer = orjson.loads(line)
    except orjson.JSONDecodeError:
        return Done()
    return advance_in(answer) or Done()


def advance_in(answer: Any) -> Outcome | Failed | None:
    """The next stage that a foreign handler's JSON answer names, ``None`` where it names none."""
    if not isinstance(answer, dict) or "stage" not in answer:
        return None
    stage = answer["stage"]
    if not isinstance(stage, str) or not stage:
        return failed(ValueError(f"the stage in its answer is no text: {stage!r}"), is_final=True)
    return Advance(stage, answer.get("context"))


def _tail(output: bytes) -> str:
    return output.decode(errors="backslashreplace").strip()[-MESSAGE_CHARS:]


def is_runnable(command: str) -> bool:
    """Whether a command's program is there; a bare name is looked up on the path when it runs."""
    return "/" not in command or Path(command).is_file()
