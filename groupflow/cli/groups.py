"""`groupflow why`, `pause`, `resume`: one group's story, and holding it."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from groupflow.cli.options import seconds_for
from groupflow.cli.verb import Answer, Call, verb

verbs = typer.Typer()

GroupArgument = Annotated[
    str | None, typer.Argument(metavar="[GROUP]", help="The group key as rendered: contact:42.")
]
AllOption = Annotated[bool, typer.Option("--all", help="Everything, plain tasks too.")]


@verb(verbs, "why")
def why(
    call: Call,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group key as rendered.")],
) -> Answer:
    """Say in one line why a group is not moving.

    For example:

      groupflow why contact:42
    """
    from groupflow.operate.scans import explain

    bounds = call.settings.max_queued()
    found = call.ask(lambda namespace: explain(namespace, group, max_queued=bounds))
    return Answer(
        found, [f"{found.group} is {found.state}, {found.queued} waiting: {found.reason}"]
    )


@verb(verbs, "pause")
def pause(
    call: Call,
    group: GroupArgument = None,
    *,
    everything: AllOption = False,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="Then it goes on by itself: 30s, 10m, 2h, 1d."),
    ] = None,
) -> Answer:
    """Hold a group, or everything: nothing more of it is started. Intake goes on.

    For example:

      groupflow pause contact:42

      groupflow pause contact:42 --for 30s

      groupflow pause --all
    """
    from groupflow.operate.groups import Groups

    target, by = _target(group, everything=everything), getpass.getuser()
    length = None if for_ is None else seconds_for(for_)
    changed = call.ask(lambda namespace: Groups(namespace).pause(target, by, length))
    words = "paused" if changed else "was paused already"
    if changed and for_ is not None:
        words = f"paused, and goes on by itself in {for_}"
    return _answer(target, words, paused=True, changed=changed)


@verb(verbs, "resume")
def resume(call: Call, group: GroupArgument = None, *, everything: AllOption = False) -> Answer:
    """Let a group, or everything, go on. What was paused by name has to be resumed by name.

    For example:

      groupflow resume contact:42

      groupflow resume --all
    """
    from groupflow.operate.groups import Groups

    target = _target(group, everything=everything)
    changed = call.ask(lambda namespace: Groups(namespace).resume(target))
    words = "goes on" if changed else "was not paused"
    return _answer(target, words, paused=False, changed=changed)


def _target(group: str | None, *, everything: bool) -> str:
    if everything == bool(group):
        raise typer.BadParameter("Name one group, or give --all.")
    return group or ""


def _answer(target: str, words: str, **facts: bool) -> Answer:
    return Answer({"group": target or None, **facts}, [f"{target or 'everything'} {words}"])
