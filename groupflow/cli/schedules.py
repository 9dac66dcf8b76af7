"""`groupflow schedules`: what comes by itself, when, and what became of it; run, pause, resume."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from groupflow.cli.options import argument, user_name
from groupflow.cli.verb import Answer, Call, listing, verb

if TYPE_CHECKING:
    from groupflow.operate.schedules import Schedule, Schedules

_Found = TypeVar("_Found")

verbs = typer.Typer()
_schedules = typer.Typer(help="What comes by itself: when it is due, and what became of it.")
verbs.add_typer(_schedules, name="schedules")

NameArgument = Annotated[str, argument("NAME", "The schedule's name.")]


@listing(_schedules, "schedules")
def schedules(call: Call) -> Answer:
    """List all schedules that daemons have or had, by name."""
    from groupflow.operate.schedules import read_schedules

    found = call.ask(read_schedules)
    return Answer(found, [*map(_line, found)] or ["no schedules"])


@verb(_schedules, "run")
def run(call: Call, name: NameArgument) -> Answer:
    """Make a tick now; what is due stays due.

    For example:

      groupflow schedules run nightly
    """
    task = _act(call, "ran_schedule", name, lambda schedules: schedules.run(name))
    return Answer({"name": name, "task": task}, [f"{name}: task {task}"])


@verb(_schedules, "pause")
def pause(call: Call, name: NameArgument) -> Answer:
    """Let its ticks pass by, until it is resumed; those are not made up.

    For example:

      groupflow schedules pause nightly
    """
    by = user_name()
    changed = _act(call, "paused_schedule", name, lambda schedules: schedules.pause(name, by))
    words = "paused" if changed else "was paused already"
    return Answer({"name": name, "paused": True, "changed": changed}, [f"{name} {words}"])


@verb(_schedules, "resume")
def resume(call: Call, name: NameArgument) -> Answer:
    """Let a paused schedule go on, with its next tick.

    For example:

      groupflow schedules resume nightly
    """
    changed = _act(call, "resumed_schedule", name, lambda schedules: schedules.resume(name))
    words = "goes on" if changed else "was not paused"
    return Answer({"name": name, "paused": False, "changed": changed}, [f"{name} {words}"])


@verb(_schedules, "drop")
def drop(call: Call, name: NameArgument) -> Answer:
    """Forget a schedule that no configuration has any more. Its tasks stay.

    If a daemon still has it, that daemon enters it again.

    For example:

      groupflow schedules drop nightly
    """
    _act(call, "dropped_schedule", name, lambda schedules: schedules.drop(name))
    return Answer({"name": name, "dropped": True}, [f"{name} forgotten"])


def _act(call: Call, what: str, name: str, act: Callable[[Schedules], Awaitable[_Found]]) -> _Found:
    from groupflow.operate.schedules import Schedules

    return call.act(what, lambda namespace: act(Schedules(namespace)), schedule=name)


def _line(schedule: Schedule) -> str:
    from groupflow.operate.reasons import duration

    parts = [f"{schedule.name}: next {_time_text(schedule.next_at)}"]
    if schedule.paused:
        parts[0] = f"{schedule.name}: paused by {schedule.paused_by}"
    if schedule.last_at is not None:
        parts.append(f"last {_time_text(schedule.last_at)} {schedule.last_outcome}")
    if schedule.missed_total:
        parts.append(f"{schedule.missed_total} missed")
    if schedule.skipped_total:
        parts.append(f"{schedule.skipped_total} left out")
    if schedule.is_nobodys:
        parts.append(f"no daemon has had it for {duration(schedule.daemon_age)}")
    if schedule.rival:
        parts.append(f"{schedule.rival} has another definition of it")
    return ", ".join(parts)


def _time_text(at: float) -> str:
    """A time for people, in UTC."""
    text = datetime.fromtimestamp(at, UTC).isoformat(sep=" ", timespec="milliseconds")
    return text.removesuffix("+00:00").removesuffix(".000") + " UTC"
