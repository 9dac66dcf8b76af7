"""Where an attempt failed: as much of its traceback, or of a command's output, as is kept.

Everyone who reads the log or a dead letter sees it, so secrets in URLs and in ``password=…`` are
hidden. It has lines of code, but never values of variables.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from traceback import TracebackException

from groupflow.core.masking import mask_secrets

KEPT_BYTES = 8 * 1024  # of a traceback: the outermost callers are dropped first
_FRAMES = 40  # of each exception, the innermost
_LINE_CHARS = 300
_SAID_LINES = 12  # of an exception's own text, which stands behind its frames
_FRAME = re.compile(r'[ |]* File "')  # also in the margin of an exception group's parts
_CUT = "…"
_ROOM = f"{Path(__file__).parent}{os.sep}"  # our own frames, in front of the handler's, say nothing


def traceback_of(error: BaseException) -> str:
    """An exception's traceback from the handler on; empty where only our code has run."""
    try:
        begin = error.__traceback__
        while begin is not None and begin.tb_frame.f_code.co_filename.startswith(_ROOM):
            begin = begin.tb_next
        if begin is None:
            return ""
        told = TracebackException(
            type(error), error, begin, limit=-_FRAMES, compact=True, max_group_width=5
        )
        lines = mask_secrets("".join(told.format()).rstrip("\n")).split("\n")
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
