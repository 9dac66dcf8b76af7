"""`groupflow reload`: have the daemons of this machine take a changed configuration over."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupflow.cli.check import change_lines
from groupflow.cli.exits import Exit
from groupflow.cli.options import argument, option
from groupflow.cli.verb import Answer, Call, verb

if TYPE_CHECKING:
    from groupflow.operate.namespace import Namespace
    from groupflow.operate.totals import KnownDaemon

verbs = typer.Typer()

LOOK = 0.1  # seconds between two looks at what daemons tell


@dataclass(frozen=True, slots=True)
class DaemonAnswer:
    """What became of one daemon's reload."""

    daemon: str
    pid: int
    verdict: str = "no answer"
    changes: Sequence[dict[str, Any]] = ()
    problems: Sequence[str] = ()


@verb(verbs, "reload")
def reload(
    call: Call,
    names: Annotated[list[str] | None, argument("NAME", "Which daemons; none: all.")] = None,
    *,
    timeout: Annotated[
        float, option("--timeout N", "Seconds to wait for their answers.", min=0.1)
    ] = 10.0,
) -> Answer:
    """Have this machine's daemons take their changed configuration over, and say what came of it.

    The file is checked first; if it is wrong, no daemon hears of it (exit 78). Then each gets
    SIGHUP, loads its own configuration again, and takes it over whole or not at all. Exit 1: one
    refused, which means that its old configuration goes on, or didn't answer.

    For example:

      groupflow reload --config groupflow.toml

      groupflow reload worker-1 worker-2 --json
    """
    answers = call.ask(lambda namespace: _reload(namespace, names or [], timeout))
    none = f"no daemon of this namespace runs on {socket.gethostname()}"
    is_done = answers and all(each.verdict in ("changed", "unchanged") for each in answers)
    return Answer(
        answers,
        [line for each in answers for line in _lines(each)],
        [] if answers else [none],
        Exit.FINE if is_done else Exit.FAILED,
    )


async def _reload(namespace: Namespace, names: Sequence[str], timeout: float) -> list[DaemonAnswer]:
    from groupflow.operate.totals import read_daemons

    here = socket.gethostname()
    found = {each.name: each for each in await read_daemons(namespace) if each.host == here}
    for name in names:
        if name not in found:
            raise typer.BadParameter(f"No daemon {name!r} runs on {here}.", param_hint="NAME")
    wanted = {name: each for name, each in found.items() if not names or name in names}
    answers = {
        name: DaemonAnswer(name, each.pid, problems=[problem])
        for name, each in wanted.items()
        if (problem := _signal(each))
    }
    end = monotonic() + timeout
    while len(answers) < len(wanted) and monotonic() < end:
        for each in await read_daemons(namespace):
            before = wanted.get(each.name)
            if before is not None and each.name not in answers and _is_new(before, each):
                told = {key: each.reload[key] for key in ("verdict", "changes", "problems")}
                answers[each.name] = DaemonAnswer(each.name, each.pid, **told)
        await asyncio.sleep(LOOK)
    silent = [f"it told nothing within {timeout:g} s: see its log"]
    return [
        answers.get(name, DaemonAnswer(name, each.pid, problems=silent))
        for name, each in sorted(wanted.items())
    ]


def _is_new(before: KnownDaemon, now: KnownDaemon) -> bool:
    return now.pid == before.pid and now.reload.get("number", 0) > before.reload.get("number", 0)


def _signal(daemon: KnownDaemon) -> str:
    """Send SIGHUP; what is wrong, if anything is.

    A daemon that died a moment ago is still told of, and its number may be another process's now.
    """
    try:
        command = Path(f"/proc/{daemon.pid}/cmdline").read_bytes().split(b"\0")
        if b"run" not in command or not any(b"groupflow" in word for word in command):
            return f"process {daemon.pid} is no daemon of groupflow"
        os.kill(daemon.pid, signal.SIGHUP)
    except (FileNotFoundError, ProcessLookupError):
        return f"there is no process {daemon.pid}: has it died, or does it run in a container?"
    except PermissionError:
        return f"process {daemon.pid} is another user's: run this as that user, or as root"
    return ""


def _lines(answer: DaemonAnswer) -> list[str]:
    # What needs a restart is said by the problems already.
    lines = [] if answer.problems else change_lines(answer.changes)
    first = f"{answer.daemon} (pid {answer.pid}): {answer.verdict}"
    return [first, *(f"  {line}" for line in (*lines, *answer.problems))]
