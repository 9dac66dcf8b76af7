"""`groupflow task` and `tasks`: where a task is and what happened to it; which are in a state.

And what people do to tasks that wait, or are delayed: `task drop` and `task run-now`.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupflow.cli.exits import Exit
from groupflow.cli.options import (
    ConfigOption,
    FullHelp,
    JsonList,
    JsonOption,
    OfTenantOption,
    PartitionOption,
    confirm,
    moment,
    print_attempts,
    print_json,
)
from groupflow.cli.safe import say
from groupflow.cli.store import ask_store
from groupflow.core.errors import AmbiguousId, GroupflowError, StoreUnavailable

if TYPE_CHECKING:
    from groupflow.operate.listing import TaskPage, TaskRow
    from groupflow.operate.namespace import Namespace
    from groupflow.operate.tasks import Choice, Found, Left, Tasks

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
    from groupflow.operate.tasks import Choice, Tasks

    choice = Choice(tenant, partition)
    try:
        found = ask_store(config, lambda namespace: Tasks(namespace).find(id_, choice))
    except AmbiguousId:
        if as_json:
            print_json(None)
        raise
    if as_json:
        print_json(found)
    elif found:
        _print(found)
    else:
        say(
            f"no task {id_}: it never came, or ended longer ago than history.retention keeps",
            err=True,
        )
    if found is None:
        raise typer.Exit(Exit.FAILED)


class StateChoice(StrEnum):
    """The states that can be listed; for the dead see ``groupflow dead list``."""

    QUEUED = "queued"
    RUNNING = "running"
    DELAYED = "delayed"
    DONE = "done"
    SUPERSEDED = "superseded"


@verbs.command("tasks")
def tasks(
    state: Annotated[
        StateChoice,
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
        from groupflow.operate.listing import every_task, list_tasks

        with JsonList() if as_json else nullcontext() as rows:
            count = 0
            if everything:
                pages = every_task(namespace, state.value)
            else:
                pages = _one(await list_tasks(namespace, state.value, limit))
            async for page in pages:
                count += len(page.rows)
                for row in page.rows:
                    rows.add(row) if rows else say(_line(state, row, page.at))
        if not (count or as_json):
            say(f"no tasks are {state.value}")

    ask_store(config, look)


async def _one(page: TaskPage) -> AsyncIterator[TaskPage]:
    yield page


def _line(state: StateChoice, row: TaskRow, now: float) -> str:
    facts = [row.id, row.type or "(no type)", row.group or "-"]
    facts += [f"tenant {row.tenant}"] if row.tenant else []
    facts.append(f"attempt {row.attempt}")
    if row.enqueued_at is not None:
        facts.append(f"came {max(0.0, now - row.enqueued_at):,.1f} s ago")
    if row.since is not None:
        seconds = max(0.0, now - row.since)
        runs = state is StateChoice.RUNNING
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


Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Which, by id.")]
DelayedOption = Annotated[
    str | None, typer.Option("--delayed", metavar="GROUP", help="All delayed tasks of a group.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


@task.command("drop")
def drop(
    ids: Ids = None,
    *,
    delayed: DelayedOption = None,
    tenant: OfTenantOption = None,
    partition: PartitionOption = None,
    yes: YesOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove tasks that wait, or are delayed, for good. What runs is left alone.

    For example:

      groupflow task drop 01c8b175db8147af99efc6899b9455af

      groupflow task drop --delayed contact:42
    """
    chosen = _chosen("drop", ids, delayed, (tenant, partition), config, yes=yes)
    _act("dropped", chosen, lambda tasks, *which: tasks.drop(*which), config, as_json=as_json)


@task.command("run-now")
def run_now(
    ids: Ids = None,
    *,
    delayed: DelayedOption = None,
    tenant: OfTenantOption = None,
    partition: PartitionOption = None,
    yes: YesOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make delayed tasks due: by their message's delay, or before their next attempt.

    For example:

      groupflow task run-now 01c8b175db8147af99efc6899b9455af

      groupflow task run-now --delayed contact:42
    """
    chosen = _chosen("run-now", ids, delayed, (tenant, partition), config, yes=yes)
    _act("due", chosen, lambda tasks, *which: tasks.run_now(*which), config, as_json=as_json)


def _chosen(
    verb: str,
    ids: list[str] | None,
    group: str | None,
    which: tuple[str | None, int | None],
    config: Path | None,
    *,
    yes: bool,
) -> tuple[list[str], Choice]:
    """The ids that were named, or the group's once the user has agreed; and of which tenant."""
    from groupflow.operate.tasks import ANY, Choice

    choice = Choice(*which)
    if bool(ids) == (group is not None):
        raise typer.BadParameter("Name ids, or a group by --delayed: one of the two.")
    if group is None:
        return ids or [], choice
    if choice != ANY:
        raise typer.BadParameter("--tenant and --partition choose among tasks of an id: name ids.")

    async def look(namespace: Namespace) -> tuple[list[str], Choice]:
        from groupflow.operate.tasks import Tasks

        tasks = Tasks(namespace)
        return await tasks.delayed_of(group), tasks.choice_of(group)

    found, choice = ask_store(config, look)
    deletes = verb == "drop"
    if found and not yes and (deletes or sys.stdin.isatty()):
        confirm(f"{verb} {len(found)} delayed tasks of {group}?", deletes=deletes)
    return found, choice


def _act(
    past: str,
    chosen: tuple[list[str], Choice],
    act: Callable[[Tasks, str, Choice], Awaitable[Left | None]],
    config: Path | None,
    *,
    as_json: bool,
) -> None:
    ids, choice = chosen

    async def do(namespace: Namespace) -> dict[str, str | GroupflowError | None]:
        from groupflow.operate.several import act_on_each
        from groupflow.operate.tasks import REASONS, Tasks

        tasks = Tasks(namespace)

        async def act_on(id_: str) -> str | None:
            left = await act(tasks, id_, choice)
            return None if left is None else REASONS[left]

        each = act_on_each(dict.fromkeys(ids), act_on, len(namespace))
        return {id_: kept async for id_, kept in each}

    left = ask_store(config, do)
    done = [id_ for id_, kept in left.items() if kept is None]
    stayed = {id_: kept for id_, kept in left.items() if kept is not None}
    if as_json:
        rows = [{"id": id_, "reason": str(reason)} for id_, reason in stayed.items()]
        print_json({past: done, "stayed": rows})
    else:
        say(f"{past} {len(done)}")
    for id_, reason in stayed.items():
        say(f"{id_} stays: {reason}", err=True)
    if stayed:
        is_away = any(isinstance(kept, StoreUnavailable) for kept in stayed.values())
        raise typer.Exit(Exit.UNAVAILABLE if is_away else Exit.FAILED)
