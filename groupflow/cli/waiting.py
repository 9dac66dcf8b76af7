"""`groupflow task drop` and `run-now`: what people do to tasks that wait, or are delayed."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupflow.cli.exits import Exit
from groupflow.cli.options import (
    ConfigOption,
    JsonOption,
    OfTenantOption,
    PartitionOption,
    confirm,
    print_json,
)
from groupflow.cli.safe import say
from groupflow.cli.store import ask_store
from groupflow.core.errors import AmbiguousId, StoreUnavailable

if TYPE_CHECKING:
    from groupflow.operate.tasks import Left
    from groupflow.operate.whole.choosing import Choice
    from groupflow.operate.whole.namespace import Namespace
    from groupflow.operate.whole.tasks import AllTasks

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Which, by id.")]
DelayedOption = Annotated[
    str | None, typer.Option("--delayed", metavar="GROUP", help="All delayed tasks of a group.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


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
    """Which ids, once somebody has said yes where they are many, and whose."""
    from groupflow.operate.whole.choosing import ANY, Choice

    choice = Choice(*which)
    if bool(ids) == (group is not None):
        raise typer.BadParameter("Name ids, or a group by --delayed: one of the two.")
    if group is None:
        return ids or [], choice
    if choice != ANY:
        raise typer.BadParameter("--tenant and --partition choose among tasks of an id: name ids.")

    async def look(namespace: Namespace) -> tuple[list[str], Choice]:
        from groupflow.operate.whole.tasks import AllTasks

        tasks = AllTasks(namespace)
        return await tasks.delayed_of(group), tasks.choice_of(group)

    found, choice = ask_store(config, look)
    deletes = verb == "drop"
    if found and not yes and (deletes or sys.stdin.isatty()):
        confirm(f"{verb} {len(found)} delayed tasks of {group}?", deletes=deletes)
    return found, choice


def _act(
    past: str,
    chosen: tuple[list[str], Choice],
    act: Callable[[AllTasks, str, Choice], Awaitable[Left | None]],
    config: Path | None,
    *,
    as_json: bool,
) -> None:
    from groupflow.operate.tasks import REASONS

    ids, choice = chosen
    unreached: list[str] = []

    async def do(namespace: Namespace) -> dict[str, str | None]:
        from groupflow.operate.whole.tasks import AllTasks

        tasks, reasons = AllTasks(namespace), dict[str, str | None]()
        for id_ in ids:
            try:
                left = await act(tasks, id_, choice)
            except AmbiguousId as error:
                reasons[id_] = str(error)
            except StoreUnavailable as error:
                if len(namespace) == 1:
                    raise
                unreached.append(id_)
                reasons[id_] = str(error)
            else:
                reasons[id_] = None if left is None else REASONS[left]
        return reasons

    left = ask_store(config, do)
    done = [id_ for id_, why in left.items() if why is None]
    stayed = {id_: why for id_, why in left.items() if why is not None}
    if as_json:
        rows = [{"id": id_, "reason": reason} for id_, reason in stayed.items()]
        print_json({past: done, "stayed": rows})
    else:
        say(f"{past} {len(done)}")
    for id_, reason in stayed.items():
        say(f"{id_} stays: {reason}", err=True)
    if stayed:
        raise typer.Exit(Exit.UNAVAILABLE if unreached else Exit.FAILED)
