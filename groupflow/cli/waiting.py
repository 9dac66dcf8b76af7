"""`groupflow task drop` and `run-now`: what people do to tasks that wait, or are delayed."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupflow.cli.exits import Exit
from groupflow.cli.options import ConfigOption, JsonOption, confirm, print_json
from groupflow.cli.safe import say
from groupflow.cli.store import ask_store
from groupflow.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from groupflow.operate.tasks import Left
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
    yes: YesOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove tasks that wait, or are delayed, for good. What runs is left alone.

    For example:

      groupflow task drop 01c8b175db8147af99efc6899b9455af

      groupflow task drop --delayed contact:42
    """
    chosen = _chosen("drop", ids, delayed, config, yes=yes)
    _act("dropped", chosen, lambda tasks, id_: tasks.drop(id_), config, as_json=as_json)


def run_now(
    ids: Ids = None,
    *,
    delayed: DelayedOption = None,
    yes: YesOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make delayed tasks due: by their message's delay, or before their next attempt.

    For example:

      groupflow task run-now 01c8b175db8147af99efc6899b9455af

      groupflow task run-now --delayed contact:42
    """
    chosen = _chosen("run-now", ids, delayed, config, yes=yes)
    _act("due", chosen, lambda tasks, id_: tasks.run_now(id_), config, as_json=as_json)


def _chosen(
    verb: str, ids: list[str] | None, group: str | None, config: Path | None, *, yes: bool
) -> list[str]:
    """The ids that are meant, once somebody has said yes where they are many."""
    if bool(ids) == (group is not None):
        raise typer.BadParameter("Name ids, or a group by --delayed: one of the two.")
    if group is None:
        return ids or []

    async def look(namespace: Namespace) -> list[str]:
        from groupflow.operate.whole.tasks import AllTasks

        return await AllTasks(namespace).delayed_of(group)

    found = ask_store(config, look)
    deletes = verb == "drop"
    if found and not yes and (deletes or sys.stdin.isatty()):
        confirm(f"{verb} {len(found)} delayed tasks of {group}?", deletes=deletes)
    return found


def _act(
    past: str,
    ids: list[str],
    act: Callable[[AllTasks, str], Awaitable[Left | None]],
    config: Path | None,
    *,
    as_json: bool,
) -> None:
    from groupflow.operate.tasks import REASONS

    unreached: list[str] = []

    async def do(namespace: Namespace) -> dict[str, str | None]:
        from groupflow.operate.whole.tasks import AllTasks

        tasks, reasons = AllTasks(namespace), dict[str, str | None]()
        for id_ in ids:
            try:
                left = await act(tasks, id_)
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
