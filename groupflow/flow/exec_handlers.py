"""Handlers that are commands: the body on stdin, the facts in the environment, the exit code back.

Exit 0 is done, 75 (sysexits' "temporary failure") asks for a retry, anything else has failed. A
command that exits 0 may name its next stage in its last line on stdout, as
``{"stage": "transcode", "context": {…}}``, or with ``result = true`` say its result and follow-up
tasks; other output is only kept where it failed. With a batch the command gets lines, and may
answer in lines (`batches.py`). Lines on stdout that are ``{"progress": [400, 1000, "rows"]}`` are
read as they come, and are no output otherwise.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import which
from typing import Any

import orjson

from groupflow.core.masking import mask_command, mask_secrets
from groupflow.core.outcome import Done, Outcome, Retry
from groupflow.core.task import Task, facts_of
from groupflow.core.tracing import CARRIED
from groupflow.flow.batches import (
    LONGEST_ANSWER,
    Together,
    end_in,
    lines_of,
    outcomes_in,
    over_long,
)
from groupflow.flow.handling import MESSAGE_CHARS, Failed, last_lines
from groupflow.flow.process import (
    KILL_AFTER,
    KILL_CANCELLED_AFTER,
    OUTPUT_BYTES,
    Ended,
    Process,
)
from groupflow.settings.rules import HandlerRule

EX_TEMPFAIL = 75
_ANSWERS = (b'"outcome"', b'"stage"')  # what a line has that answers; the longest first
_PROGRESS, _LINE_BYTES = b'"progress"', 512  # what a line has that says progress, and its bytes
_SHARED = ("GROUPFLOW_TYPE", "GROUPFLOW_GROUP", "GROUPFLOW_TENANT")  # by the tasks of a batch

# What systemd tells the daemon: where its passwords are, how to notify in its name, and so on.
_OF_THE_SERVICE_MANAGER = frozenset((
    "CREDENTIALS_DIRECTORY", "FDSTORE", "INVOCATION_ID", "JOURNAL_STREAM", "LISTEN_FDNAMES",
    "LISTEN_FDS", "LISTEN_PID", "LISTEN_PIDFDID", "MAINPID", "MANAGERPID", "MANAGERPIDFDID",
    "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "NOTIFY_SOCKET", "SYSTEMD_EXEC_PID",
    "WATCHDOG_PID", "WATCHDOG_USEC",
))  # fmt: skip


class ExecRunner:
    """Runs one command for each task of a type."""

    def __init__(self, rule: HandlerRule, command: tuple[str, ...]) -> None:
        self._command = command
        self._has_result = rule.result
        self.size = rule.batch
        self.timeout = rule.timeout
        self.retry = rule.retry()

    async def handle(self, task: Task) -> Outcome | Failed:
        """Run the command on one task; when cancelled, end all that it has started."""
        lines = OutputLines(task)
        ended = await self._run([task], lines, _environment(variables_of(task)), task.body)
        if isinstance(ended, Failed):
            return ended
        if ended.code != 0:
            return _failure(ended)
        _, newline, last = _without_progress(ended.stdout).rpartition(b"\n")
        if not newline and self._loses(ended, lines):
            return over_long()
        return end_in(last, has_result=self._has_result)

    def _loses(self, ended: Ended, lines: OutputLines) -> bool:
        """Whether more came than is kept, and what isn't may say something."""
        return ended.is_cut and (self._has_result or lines.have_answer)

    async def _run(
        self,
        tasks: Sequence[Task],
        lines: OutputLines,
        environment: dict[str, str],
        given: bytes,
    ) -> Ended | Failed:
        try:
            process = Process(self._command, environment, given, LONGEST_ANSWER, lines.feed)
        except (OSError, ValueError) as error:
            # An OSError's own text has the whole path in it.
            why = getattr(error, "strerror", None) or str(error)
            name = mask_command(self._command)
            return Failed(type(error).__name__, f"{name} can't be started: {why}")
        try:
            return await process.ended()
        except asyncio.CancelledError:
            # Even where the command itself has exited: its children may run on.
            is_asked = all(task.cancelled for task in tasks)
            await process.end(KILL_CANCELLED_AFTER if is_asked else KILL_AFTER)
            raise
        finally:
            process.close()


class OutputLines:
    """Hears all of a command's output: how far it has got, told of its task, and any answer."""

    def __init__(self, task: Task) -> None:
        self.have_answer = False  # whether one may say what becomes of a task
        self._task = task
        self._begun = b""  # of a line that hasn't ended; of a long one more than a line may have
        self._ends = b""  # how the line that hasn't ended begins, and how it ends so far

    def feed(self, piece: bytes) -> None:
        """More of the output. Of its whole lines the last that says how far counts."""
        if not self.have_answer:
            self._look_for_answer(self._ends + piece)
        lines, _, rest = (self._begun + piece).rpartition(b"\n")
        self._begun, end = rest[: _LINE_BYTES + 1], len(lines)
        while (place := lines.rfind(_PROGRESS, 0, end)) >= 0:
            begin, after = lines.rfind(b"\n", 0, place) + 1, lines.find(b"\n", place, end)
            figures = _figures_in(lines[begin : end if after < 0 else after])
            if figures is not None:
                with suppress(ValueError, TypeError):  # else they can't be used
                    self._task.progress(*figures)
                    return
            end = begin

    def _look_for_answer(self, output: bytes) -> None:
        if any(word in output for word in _ANSWERS):
            self.have_answer = any(_may_answer(line) for line in output.splitlines())
        line = output[max(output.rfind(b"\n"), output.rfind(b"\r")) + 1 :]
        self._ends = line.lstrip()[:1] + line[1 - len(_ANSWERS[0]) :]


def _may_answer(line: bytes) -> bool:
    return line.lstrip()[:1] == b"{" and any(word in line for word in _ANSWERS)


def _figures_in(line: bytes) -> list[Any] | None:
    """What a line says of progress; ``None`` where it is other output."""
    if len(line) > _LINE_BYTES or _PROGRESS not in line:
        return None
    with suppress(orjson.JSONDecodeError):
        match orjson.loads(line):
            case {"progress": [*figures], **others} if not others:
                return figures
    return None


def _without_progress(output: bytes) -> bytes:
    """An output without the last lines that say progress: the line before them is its last one."""
    lines = output.split(b"\n")
    while lines and (not lines[-1].strip() or _figures_in(lines[-1]) is not None):
        lines.pop()
    return b"\n".join(lines)


class ExecBatchRunner(Together, ExecRunner):
    """Runs one command for several tasks of a type, with a line of JSON each, in and out."""

    async def handle_all(self, tasks: Sequence[Task]) -> list[Outcome | Failed]:
        """Run the command on several tasks."""
        lines, environment = OutputLines(tasks[0]), _environment(variables_of_all(tasks))
        ended = await self._run(tasks, lines, environment, lines_of(tasks))
        if isinstance(ended, Failed):
            return [ended]
        end = _failure(ended) if ended.code != 0 else Done()
        if self._loses(ended, lines):  # of which task is the first line that is left?
            return [over_long(len(tasks)) if isinstance(end, Done) else end]
        return outcomes_in(ended.stdout, len(tasks), end, has_result=self._has_result)


def _environment(facts: Mapping[str, str]) -> dict[str, str]:
    """The daemon's environment, without variables for the daemon alone, and facts."""
    inherited = {name: value for name, value in os.environ.items() if not _is_ours(name)}
    trace = {name.upper(): text for name, text in CARRIED.get().items()}
    return {**inherited, **trace, **facts}


def _is_ours(name: str) -> bool:
    """Whether a variable is the daemon's configuration, in any case, or its service manager's."""
    return name.upper().startswith("GROUPFLOW_") or name in _OF_THE_SERVICE_MANAGER


def variables_of(task: Task) -> dict[str, str]:
    """The facts of a task as ``GROUPFLOW_*``, without those it doesn't have."""
    facts = {name: fact for name, fact in facts_of(task).items() if fact is not None}
    if "context" in facts:
        facts["context"] = orjson.dumps(task.context).decode()
    return {f"GROUPFLOW_{name.upper()}": str(fact) for name, fact in facts.items()}


def variables_of_all(tasks: Sequence[Task]) -> dict[str, str]:
    """The facts that a batch's tasks share, and how many they are."""
    facts = variables_of(tasks[0])
    shared = {name: facts[name] for name in _SHARED if name in facts}
    return {**shared, "GROUPFLOW_BATCH": str(len(tasks))}


def _failure(ended: Ended) -> Outcome | Failed:
    """How an attempt ends whose command did not exit 0."""
    code = ended.code
    output = _text(ended.stderr) or _text(_without_progress(ended.stdout[-OUTPUT_BYTES:]))
    # An error's cause stands last, and lists show one line.
    said = output.rpartition("\n")[2].strip()[-MESSAGE_CHARS:]
    if code is None:
        return Failed("ExitCode", "its exit code is lost: some handler waits for any child")
    if code == EX_TEMPFAIL:
        return Retry(reason=said or "exit code 75")
    what = f"signal {-code}" if code < 0 else f"exit code {code}"
    return Failed("ExitCode", f"{what}: {said}" if said else what, traceback=last_lines(output))


def _text(output: bytes) -> str:
    # Secrets are hidden before the text is cut, which might leave half a URL.
    return mask_secrets(output.decode(errors="backslashreplace")).strip()


def what_is_wrong(command: str) -> str:
    """Why a command's program can't be run from here, with what to do; empty where it can."""
    if "/" not in command:
        return "" if which(command) else "There is no such program on the PATH."
    if not Path(command).is_file():
        return "There is no such program; a relative path starts where the daemon does."
    if not os.access(command, os.X_OK):
        return "It may not be executed by this user: chmod +x it, or name its interpreter first."
    return ""
