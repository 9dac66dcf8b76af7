"""`groupflow schedules`: what comes by itself, when, and what became of it; run, pause, resume."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from groupflow.cli.options import ConfigOption, JsonOption, print_json
from groupflow.cli.safe import say
from groupflow.cli.store import ask_store

if TYPE_CHECKING:
    from groupflow.operate.namespace import Namespace
    from groupflow.operate.schedules import Schedule, Schedules

verbs = typer.Typer()
_schedules = typer.Typer(
    help="What comes by itself: when it is due, and what became of it.",
    invoke_without_command=True,
)
verbs.add_typer(_schedules, name="schedules")

NameArgument = typer.Argument(metavar="NAME", help="The schedule's name.")


@_schedules.callback()
def schedules(
    context: typer.Context, *, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List all schedules that daemons have or had, by name.

    For example:

      groupflow schedules

      groupflow schedules --json | jq '.[] | select(.last_outcome == "dead")'

      groupflow schedules run nightly
    """
    if context.invoked_subcommand is not None:
        if config is not None or as_json:
            verb = f"groupflow schedules {context.invoked_subcommand} NAME"
            raise typer.BadParameter(f"Put options behind the verb: {verb} --config FILE.")
        return
    from groupflow.operate.schedules import read_schedules

    found = ask_store(config, read_schedules)
    if as_json:
        print_json(found)
        return
    for each in found:
        say(_line(each))
    if not found:
        say("no schedules")


@_schedules.command("run")
def run(
    name: str = NameArgument, *, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Make a tick now; what is due stays due.

    For example:

      groupflow schedules run nightly
    """
    task = ask_store(config, lambda namespace: _all(namespace).run(name))
    if as_json:
        print_json({"name": name, "task": task})
    else:
        say(f"{name}: task {task}")


@_schedules.command("pause")
def pause(
    name: str = NameArgument, *, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Let its ticks pass by, until it is resumed; those are not made up.

    For example:

      groupflow schedules pause nightly
    """
    by = getpass.getuser()
    changed = ask_store(config, lambda namespace: _all(namespace).pause(name, by))
    words = "paused" if changed else "was paused already"
    _report(name, words, as_json=as_json, paused=True, changed=changed)


@_schedules.command("resume")
def resume(
    name: str = NameArgument, *, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Let a paused schedule go on, with its next tick.

    For example:

      groupflow schedules resume nightly
    """
    changed = ask_store(config, lambda namespace: _all(namespace).resume(name))
    words = "goes on" if changed else "was not paused"
    _report(name, words, as_json=as_json, paused=False, changed=changed)


@_schedules.command("drop")
def drop(
    name: str = NameArgument, *, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Forget a schedule that no configuration has any more. Its tasks stay.

    If a daemon still has it, that daemon enters it again.

    For example:

      groupflow schedules drop nightly
    """
    ask_store(config, lambda namespace: _all(namespace).drop(name))
    _report(name, "forgotten", as_json=as_json, dropped=True)


def _all(namespace: Namespace) -> Schedules:
    from groupflow.operate.schedules import Schedules

    return Schedules(namespace)


def _report(name: str, words: str, *, as_json: bool, **facts: bool) -> None:
    if as_json:
        print_json({"name": name, **facts})
    else:
        say(f"{name} {words}")


def _line(schedule: Schedule) -> str:
    parts = [f"{schedule.name}: next {time_text(schedule.next_at)}"]
    if schedule.paused:
        parts[0] = f"{schedule.name}: paused by {schedule.paused_by}"
    if schedule.last_at is not None:
        parts.append(f"last {time_text(schedule.last_at)} {schedule.last_outcome}")
    if schedule.missed_total:
        parts.append(f"{schedule.missed_total} missed")
    if schedule.skipped_total:
        parts.append(f"{schedule.skipped_total} left out")
    if schedule.is_nobodys:
        parts.append(f"no daemon has had it for {schedule.daemon_age:.0f} s")
    if schedule.rival:
        parts.append(f"{schedule.rival} has another definition of it")
    return ", ".join(parts)


def time_text(at: float) -> str:
    """A time for people, in UTC."""
    text = datetime.fromtimestamp(at, UTC).isoformat(sep=" ", timespec="milliseconds")
    return text.removesuffix("+00:00").removesuffix(".000") + " UTC"
