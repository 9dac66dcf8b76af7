"""`groupflow task cancel`: tasks by id, or all of a group or a type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupflow.cli.exits import Exit, end_of
from groupflow.cli.options import ChoiceOptions, IdsArgument, YesOption, confirm, option, user_name
from groupflow.cli.verb import Answer, Call, note, say_passed
from groupflow.core.errors import GroupflowError

if TYPE_CHECKING:
    from groupflow.operate.cancelling import Several, Step
    from groupflow.operate.namespace import Namespace
    from groupflow.operate.tasks import Verdict

NAMED = 5  # tasks that run and are named before one confirms
VERDICTS = {
    "requested": "it runs, and is asked to stop",
    "unknown": "nothing is known of it",
    "dead": "it is a dead letter: redrive or drop it as one",
    "done": "it is done",
}
"""In words; the other verdicts are words already."""


@dataclass(frozen=True)
class CancelOptions(ChoiceOptions):
    """Which tasks to cancel, and why."""

    ids: IdsArgument = None
    group: Annotated[str | None, option("--group G", "All tasks of a group.")] = None
    task_type: Annotated[
        str | None, option("--type T", "All tasks of a type; of several: import.*")
    ] = None
    reason: Annotated[str, option("--reason TEXT", "Why: it stays in their history.")] = ""
    dry_run: Annotated[
        bool, option("--dry-run", "Count those of a group or type; change nothing.")
    ] = False
    yes: YesOption = False

    def checked(self) -> list[str] | Several:
        """The ids, or whose tasks.

        Raises:
            typer.BadParameter: not one of the three is named, or options don't go together.
        """
        from groupflow.operate.cancelling import Several

        if bool(self.ids) + (self.group is not None) + (self.task_type is not None) != 1:
            raise typer.BadParameter("Name ids, or --group, or --type: one of the three.")
        if "" in (self.group, self.task_type):
            raise typer.BadParameter("--group and --type want a name.")
        if self.ids and self.dry_run:
            raise typer.BadParameter("--dry-run counts tasks of a group or a type: name no ids.")
        self.refuse_without(self.ids)
        return self.ids or Several(self.group, self.task_type or "")


def cancel(call: Call, options: CancelOptions) -> Answer:
    """Cancel tasks: one that waits ends now, one that runs is asked to stop.

    Of a group or a type it asks first; without a terminal it wants --yes.

    For example:

      groupflow task cancel 01c8b175db8147af99efc6899b9455af --reason "wrong file"

      groupflow task cancel --group contact:42 --dry-run

      groupflow task cancel --type import.rows --yes
    """
    meant = options.checked()
    if isinstance(meant, list):
        return _cancel_named(call, options, meant)
    from groupflow.operate.cancelling import count_all, every_step

    if options.dry_run or not options.yes:
        found = call.ask(lambda namespace: count_all(namespace, meant))
        if options.dry_run:
            told = {"waiting": found.waiting, "running": found.running}
            return Answer(told, [f"{_those(found)} of {meant} would be cancelled"])
        confirm(f"cancel {_those(found)} of {meant}?", deletes=True)

    async def cancel_all(namespace: Namespace) -> Step:
        from groupflow.operate.cancelling import Step

        done, reason = Step(), options.reason or None
        async for step in every_step(namespace, meant, user_name(), options.reason):
            done.include(step)
            whose = {"group": meant.group, "type": meant.type or None, "reason": reason}
            count = step.waiting + len(step.running)
            if count:
                await note(namespace, "cancelled", tasks=step.running, count=count, **whose)
        say_passed(namespace, done.away)
        return done

    done = call.ask(cancel_all)
    return Answer(
        {"cancelled": done.waiting, "requested": done.running},
        [f"cancelled {done.waiting}, asked {len(done.running)} that run to stop"],
        exit=Exit.UNAVAILABLE if done.away else Exit.FINE,
    )


def _those(found: Step) -> str:
    """How many tasks would be cancelled, and which of them run."""
    from groupflow.operate.reasons import counted

    running = found.running
    count = counted(found.waiting + len(running), "task")
    if not running:
        return count
    names = ", ".join(running[:NAMED])
    if len(running) > NAMED:
        names += f" and {len(running) - NAMED} more"
    run = "runs now: it gets" if len(running) == 1 else "run now: they get"
    return f"{count} ({len(running)} of them {run} asked to stop: {names})"


def _cancel_named(call: Call, options: CancelOptions, ids: list[str]) -> Answer:
    async def cancel_each(namespace: Namespace) -> dict[str, Verdict | GroupflowError]:
        from groupflow.operate.tasks import Tasks

        tasks, found = Tasks(namespace), dict[str, Any]()

        async def cancel_one(id_: str) -> str:
            return await tasks.cancel(id_, user_name(), options.reason, options.choice)

        async for id_, verdict in namespace.act_on_each(ids, cancel_one, fails_alone=True):
            found[id_] = verdict
        if done := [id_ for id_, each in found.items() if each in ("cancelled", "requested")]:
            await note(namespace, "cancelled", tasks=done, reason=options.reason or None)
        return found

    found = call.ask(cancel_each)
    rows = [
        {"id": id_, "verdict": None, "error": str(verdict)}
        if isinstance(verdict, GroupflowError)
        else {"id": id_, "verdict": verdict}
        for id_, verdict in found.items()
    ]
    end = end_of([each for each in found.values() if each not in ("cancelled", "requested")])
    lines = [f"{id_}: {VERDICTS.get(str(v), str(v))}" for id_, v in found.items()]
    return Answer(rows[0] if len(rows) == 1 else rows, lines, exit=end)
