"""`groupflow why`, `pause`, `resume`: one group's story, and holding it."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from groupflow.cli.options import ConfigOption, JsonOption, print_json
from groupflow.cli.safe import say
from groupflow.cli.store import ask_store

verbs = typer.Typer()

GroupArgument = Annotated[
    str | None, typer.Argument(metavar="[GROUP]", help="The group key as rendered: contact:42.")
]
AllOption = Annotated[bool, typer.Option("--all", help="Everything, plain tasks too.")]


@verbs.command("why")
def why(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group key as rendered.")],
    *,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say in one line why a group is not moving.

    For example:

      groupflow why contact:42
    """
    from groupflow.operate.groups import Groups  # noqa: PLC0415  start-up stays fast

    told = ask_store(config, lambda client: Groups(client).why(group))
    if as_json:
        print_json(told.as_json())
    else:
        say(f"{told.group} is {told.state}, {told.queued} waiting: {told.reason}")


@verbs.command("pause")
def pause(
    group: GroupArgument = None,
    *,
    everything: AllOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold a group, or everything: nothing more of it is started. Intake goes on.

    For example:

      groupflow pause contact:42

      groupflow pause --all
    """
    from groupflow.operate.groups import Groups  # noqa: PLC0415  start-up stays fast

    target = _target(group, everything=everything)
    by = getpass.getuser()
    was_new = ask_store(config, lambda client: Groups(client).pause(target, by))
    if as_json:
        print_json({"group": target or None, "paused": True, "changed": was_new})
    else:
        say(f"{_named(target)} {'paused' if was_new else 'was paused already'}")


@verbs.command("resume")
def resume(
    group: GroupArgument = None,
    *,
    everything: AllOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a group, or everything, go on. What was paused by name has to be resumed by name.

    For example:

      groupflow resume contact:42

      groupflow resume --all
    """
    from groupflow.operate.groups import Groups  # noqa: PLC0415  start-up stays fast

    target = _target(group, everything=everything)
    was_paused = ask_store(config, lambda client: Groups(client).resume(target))
    if as_json:
        print_json({"group": target or None, "paused": False, "changed": was_paused})
    else:
        say(f"{_named(target)} {'goes on' if was_paused else 'was not paused'}")


def _target(group: str | None, *, everything: bool) -> str:
    if everything == bool(group):
        raise typer.BadParameter("Name one group, or give --all.")
    return group or ""


def _named(target: str) -> str:
    return target or "everything"
