"""`groupflow task` and `tasks`: where a task is and what happened to it; which are in a state.

What is done to a task stands in `waiting.py`, in the same group of verbs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupflow.cli import waiting
from groupflow.cli.attempts import moment, print_attempts
from groupflow.cli.exits import Exit
from groupflow.cli.options import (
    ConfigOption,
    FullHelp,
    JsonList,
    JsonOption,
    OfTenantOption,
    PartitionOption,
    print_json,
)
from groupflow.cli.safe import say
from groupflow.cli.store import ask_store
from groupflow.core.errors import AmbiguousId

if TYPE_CHECKING:
    from groupflow.operate.tasks import Found, TaskRow
    from groupflow.operate.whole.lists import Tasks
    from groupflow.operate.whole.namespace import Namespace

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
    tenant: OfTenantOption = None,
    partition: PartitionOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say where a task is and what has happened to it. Exit 1 where nothing is known of it.

    The same as `groupflow task ID`.

    For example:

      groupflow task show 01c8b175db8147af99efc6899b9455af
    """
    from groupflow.operate.whole.choosing import Choice
    from groupflow.operate.whole.tasks import AllTasks

    choice = Choice(tenant, partition)
    try:
        found = ask_store(config, lambda namespace: AllTasks(namespace).find(id_, choice))
    except AmbiguousId:
        if as_json:
            print_json(None)
        raise
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
    SUPERSEDED = "superseded"


@verbs.command("tasks")
def tasks(
    state: Annotated[
        State,
        typer.Argument(metavar="STATE", help="queued, running, delayed, done, superseded"),
    ],
    *,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=10_000, help="How many at most.")
    ] = 100,
    everything: Annotated[
        bool,
        typer.Option("--all", help="All of them, as they are read; some may move meanwhile."),
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List tasks of a state: the next to run first, the longest at it, or the latest to end.

    `status` counts them all.

    For example:

      groupflow tasks running

      groupflow tasks queued --all --json | jq -r '.[].type' | sort | uniq -c
    """

    async def look(namespace: Namespace) -> None:
        from groupflow.operate.whole.lists import every_task, list_tasks

        with JsonList() if as_json else nullcontext() as rows:
            count = 0
            if everything:
                pages = every_task(namespace, state.value)
            else:
                pages = _one(await list_tasks(namespace, state.value, limit))
            async for page in pages:
                count += len(page.rows)
                for row in page.rows:
                    rows.add(row.as_json()) if rows else say(_line(state, row, page.at))
        if not (count or as_json):
            say(f"no tasks are {state.value}")

    ask_store(config, look)


async def _one(page: Tasks) -> AsyncIterator[Tasks]:
    yield page


def _line(state: State, row: TaskRow, now: float) -> str:
    facts = [row.id, row.type or "(no type)", row.group or "-"]
    facts += [f"tenant {row.tenant}"] if row.tenant else []
    facts.append(f"attempt {row.attempt}")
    if row.enqueued_at is not None:
        facts.append(f"came {max(0.0, now - row.enqueued_at):,.1f} s ago")
    if row.since is not None:
        seconds = max(0.0, now - row.since)
        runs = state is State.RUNNING
        facts.append(f"runs for {seconds:,.1f} s" if runs else f"ended {seconds:,.1f} s ago")
    if row.until is not None:
        facts.append(f"due in {max(0.0, row.until - now):,.1f} s")
    return "  ".join(facts)


def _print(found: Found) -> None:
    facts = {
        "state": f"superseded by {found.superseded_by}" if found.superseded_by else found.state,
        "type": found.type,
        "group": found.group or "none, it is plain",
        "tenant": found.tenant,
        "attempt": found.attempt,
        "crashes": found.crashes or None,
        "lost leases": found.lost_leases or None,
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
