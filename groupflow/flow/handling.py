"""handle: run one attempt and turn its result, or its error, into an outcome.

Everyone who reads the log or a dead letter sees an attempt's message and traceback, so secrets in
URLs and in ``password=…`` are hidden. A traceback has lines of code, but never values of variables.
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from traceback import TracebackException
from typing import Any, Protocol

import structlog

from groupflow.core.masking import mask_secrets
from groupflow.core.outcome import SCOPES, Advance, Dead, Done, Outcome, Retry
from groupflow.core.policy import RetryOverride
from groupflow.core.task import Task

LATE = 0.1  # seconds; if a time limit's timer is later than that, the loop was blocked
STUCK_LOOK = 10.0  # seconds between two reports of an attempt that doesn't end when cancelled
MESSAGE_CHARS = 2_000  # of an exception's text that is kept with the attempt
_READ_CHARS = 64 * 1024  # of a text, in which secrets are looked for: the loop waits for that
KEPT_BYTES = 8 * 1024  # of a traceback: the outermost callers are dropped first
_FRAMES = 40  # of each exception, the innermost
_LINE_CHARS = 300
_SAID_LINES = 12  # of an exception's own text, which stands behind its frames
_FRAME = re.compile(r'[ |]* File "')  # also in the margin of an exception group's parts
_CUT = "…"
_OURS = f"{Path(__file__).parent}{os.sep}"  # our own frames, in front of the handler's, say nothing

log = structlog.get_logger("groupflow.worker")


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed: the handler raised, ran over its time, or answered what none may."""

    error: str  # the exception's type
    message: str  # its text, capped
    is_final: bool = False  # whether no further attempt is to be made
    # where it was raised, or the last lines of a command; empty where that is not known
    traceback: str = field(default="", compare=False, repr=False)


class Runner(Protocol):
    """Runs the tasks of one type."""

    timeout: float | None  # seconds that one attempt may take; None without a limit
    retry: RetryOverride  # its own settings for retries

    async def handle(self, task: Task) -> Outcome | Failed:
        """Run one attempt to its outcome. Raises nothing except its own cancellation."""


class Runners(Protocol):
    """Finds the runner of a type."""

    def find(self, type: str) -> Runner | None:
        """The runner of a type, or ``None``: messages may have any type."""


def was_cancelled() -> bool:
    """Whether the current task has been cancelled from outside.

    A handler may raise `CancelledError` by itself; only what comes from outside ends the attempt.
    """
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


def checked(answer: Any) -> Outcome | Failed:
    """A handler's answer as an outcome; with any other type of answer it has failed for good."""
    if answer is None:
        return Done()
    if isinstance(answer, Retry) and answer.scope not in SCOPES:
        return Failed("ValueError", f"Retry's scope is one of {', '.join(SCOPES)}")
    if isinstance(answer, (Done, Retry, Advance, Dead, Failed)):  # the last by way of middleware
        return answer
    what = type(answer).__name__
    text = f"a handler, or a middleware, returns None, Done, Retry, Advance or Dead, not {what}"
    return Failed("TypeError", text, is_final=True)


def failed(error: BaseException, *, is_final: bool = False) -> Failed:
    """An exception's type, text and traceback, even where its `__str__` raises."""
    return Failed(type(error).__name__, message_of(error), is_final, traceback_of(error))


def message_of(said: object) -> str:
    """The same as `text_of`, for people to read: without the passwords of URLs.

    Errors name the URL that failed, and everyone who may read dead letters sees them.
    """
    return _encodable(mask_secrets(_text(said)))


def text_of(said: object) -> str:
    """What application code said, as text that any encoder takes, capped; empty for ``None``."""
    return _encodable(_text(said))


def _text(said: object) -> str:
    try:
        return "" if said is None else str(said)[:_READ_CHARS]
    except Exception:  # noqa: BLE001  the application's __str__
        return "(its text can't be read)"


def _encodable(text: str) -> str:
    # A file name that isn't UTF-8 comes with surrogates, which neither JSON nor Redis takes.
    return text[:MESSAGE_CHARS].encode(errors="backslashreplace").decode()


def traceback_of(error: BaseException) -> str:
    """An exception's traceback from the handler on; empty where only our code has run."""
    try:
        begin = error.__traceback__
        while begin is not None and begin.tb_frame.f_code.co_filename.startswith(_OURS):
            begin = begin.tb_next
        if begin is None:
            return ""
        told = TracebackException(
            type(error), error, begin, limit=-_FRAMES, compact=True, max_group_width=5
        )
        text = "".join(part[:_READ_CHARS] for part in told.format())
        lines = mask_secrets(text.rstrip("\n")).split("\n")
    except Exception:  # noqa: BLE001  the application's; its type and text are kept anyway
        return ""
    frames = [number for number, line in enumerate(lines) if _FRAME.match(line)]
    said = frames[-1] + 1 if frames else 0
    if len(lines) - said > _SAID_LINES:  # else the text would leave the frames no room
        lines[said + _SAID_LINES :] = [_CUT]
    return _end_of(lines)


def last_lines(output: str) -> str:
    """The end of a command's output (passwords hidden), where that is more than one line."""
    lines = output.strip().split("\n")
    return _end_of(lines) if len(lines) > 1 else ""


def _end_of(lines: list[str]) -> str:
    """The last lines, in `KEPT_BYTES` together, each cut to a readable length."""
    kept: list[str] = []
    size = len(_CUT.encode()) + 1
    for line in reversed(lines):
        short = line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]} {_CUT}"
        short = short.encode(errors="backslashreplace").decode()
        size += len(short.encode()) + 1
        if size > KEPT_BYTES:
            kept.append(_CUT)
            break
        kept.append(short)
    return "\n".join(reversed(kept))


class AttemptTimeout:
    """Cancels the attempt that runs now once it is over its time, and waits for its end.

    However long that takes, the daemon keeps the claim and renews the lease. If it gave the claim
    up, the task would run a second time beside the first. The other workers go on.
    """

    def __init__(self, task: Task, seconds: float) -> None:
        self.is_over = False
        self._task = task
        self._attempt = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._due = monotonic() + seconds
        self._stuck = 0.0
        self._timer = self._loop.call_later(seconds, self._look)

    def lift(self) -> None:
        """The attempt has ended."""
        self._timer.cancel()

    def _look(self) -> None:
        # A late timer means that a handler blocked the loop: the limit is put off by as much. Only
        # once, since it may be this attempt that blocks, again and again.
        late = monotonic() - self._due
        if late > LATE:
            self._timer = self._loop.call_later(late, self._end)
        else:
            self._end()

    def _end(self) -> None:
        self.is_over = True
        if self._attempt is not None:
            self._attempt.cancel()
        self._timer = self._loop.call_later(STUCK_LOOK, self._report)

    def _report(self) -> None:
        self._stuck += STUCK_LOOK
        log.error(
            "handler.stuck", task=self._task.id, type=self._task.type, ignored_for=self._stuck
        )
        self._timer = self._loop.call_later(STUCK_LOOK, self._report)
