"""`groupflow why`, `pause`, `resume`: one group's story, and holding it."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated

import typer

from groupflow.cli.options import ConfigOption, JsonOption, print_json, seconds_for
from groupflow.cli.safe import say
from groupflow.cli.store import ask_store

if TYPE_CHECKING:
    from groupflow.operate.groups import Groups
    from groupflow.operate.namespace import Namespace

verbs = typer.Typer()

GroupArgument = Annotated[
    str | None, typer.Argument(metavar="[GROUP]", help="The group key as rendered: contact:42.")
]
ForOption = Annotated[
    str | None,
    typer.Option("--for", metavar="TIME", help="Then it goes on by itself: 30s, 10m, 2h, 1d."),
]
AllOption = Annotated[bool, typer.Option("--all", help="Everything, plain tasks too.")]


@verbs.command("why")
def why_(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group key as rendered.")],
    *,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say in one line why a group is not moving.

    For example:

      groupflow why contact:42
    """
    from groupflow.operate.scans import explain

    why = ask_store(config, lambda namespace: explain(namespace, group))
    if as_json:
        print_json(why)
    else:
        say(f"{why.group} is {why.state}, {why.queued} waiting: {why.reason}")


@verbs.command("pause")
def pause(
    group: GroupArgument = None,
    *,
    everything: AllOption = False,
    for_: ForOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold a group, or everything: nothing more of it is started. Intake goes on.

    For example:

      groupflow pause contact:42

      groupflow pause contact:42 --for 30s

      groupflow pause --all
    """
    target, by = _target(group, everything=everything), getpass.getuser()
    length = None if for_ is None else seconds_for(for_)
    changed = ask_store(config, lambda namespace: _groups(namespace).pause(target, by, length))
    words = "paused" if changed else "was paused already"
    if changed and length is not None:
        words = f"paused, and goes on by itself in {for_}"
    _report(target, words, as_json=as_json, paused=True, changed=changed)


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
    target = _target(group, everything=everything)
    changed = ask_store(config, lambda namespace: _groups(namespace).resume(target))
    words = "goes on" if changed else "was not paused"
    _report(target, words, as_json=as_json, paused=False, changed=changed)


def _groups(namespace: Namespace) -> Groups:
    from groupflow.operate.groups import Groups

    return Groups(namespace)


def _target(group: str | None, *, everything: bool) -> str:
    if everything == bool(group):
        raise typer.BadParameter("Name one group, or give --all.")
    return group or ""


def _report(target: str, words: str, *, as_json: bool, **facts: bool) -> None:
    if as_json:
        print_json({"group": target or None, **facts})
    else:
        say(f"{target or 'everything'} {words}")
