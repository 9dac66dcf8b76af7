"""`groupflow task` and `tasks`: where a task is and what happened to it; which are in a state.

What is done to a task stands in `waiting.py`, in the same group of verbs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupflow.cli import waiting
from groupflow.cli.attempts import moment, print_attempts
from groupflow.cli.exits import Exit
from groupflow.cli.options import ConfigOption, FullHelp, JsonOption, print_json
from groupflow.cli.safe import say
from groupflow.cli.store import ask_store

if TYPE_CHECKING:
    from groupflow.operate.tasks import Found

verbs = typer.Typer()


class ShownByDefault(FullHelp):
    """`groupflow task ID` is `groupflow task show ID`: looking is what is mostly wanted."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default in front of what names no verb."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["show", *args]
        return super().parse_args(ctx, args)


task = typer.Typer(
    cls=ShownByDefault,
    help="One task: where it is and what happened to it (task ID); drop, run-now.",
    no_args_is_help=True,
)
verbs.add_typer(task, name="task")
task.command("drop")(waiting.drop)
task.command("run-now")(waiting.run_now)


@task.command("show")
def show(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The task's id: its message id.")],
    *,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say where a task is and what has happened to it. Exit 1 where nothing is known of it.

    The same as `groupflow task ID`.

    For example:

      groupflow task show 01c8b175db8147af99efc6899b9455af
    """
    from groupflow.operate.whole.tasks import AllTasks

    found = ask_store(config, lambda namespace: AllTasks(namespace).find(id_))
    if as_json:
        print_json(found.as_json() if found else None)
    elif found:
        _print(found)
    else:
        say(
            f"no task {id_}: it never came, or ended longer ago than history.retention keeps",
            err=True,
        )
    if found is None:
        raise typer.Exit(Exit.FAILED)


class State(StrEnum):
    """The states that can be listed; for the dead see ``groupflow dead list``."""

    QUEUED = "queued"
    RUNNING = "running"
    DELAYED = "delayed"
    DONE = "done"


@verbs.command("tasks")
def tasks(
    state: Annotated[State, typer.Argument(metavar="STATE", help="queued, running, delayed, done")],
    *,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=10_000, help="How many at most.")
    ] = 100,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List some tasks of a state, the next to run first. `status` counts them all.

    For example:

      groupflow tasks running

      groupflow tasks queued --limit 20 --json
    """
    from groupflow.operate.whole.lists import list_tasks

    rows = ask_store(config, lambda namespace: list_tasks(namespace, state.value, limit))
    if as_json:
        print_json([{"id": id_, "group": group} for id_, group in rows])
        return
    for id_, group in rows:
        say(f"{id_}  {group or '-'}")
    if not rows:
        say(f"no tasks are {state.value}")


def _print(found: Found) -> None:
    facts = {
        "state": found.state,
        "type": found.type,
        "group": found.group or "none, it is plain",
        "tenant": found.tenant,
        "attempt": found.attempt,
        "crashes": found.crashes or None,
        "stage": found.stage,
        "runs on": f"{found.daemon}, {found.worker}" if found.daemon else None,
        "since": moment(found.since),
        "until": moment(found.until),
        "reason": found.reason,
    }
    for name, fact in facts.items():
        if fact is not None:
            say(f"{name:8} {fact}")
    print_attempts(found.errors, "         ")
