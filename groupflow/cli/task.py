"""`groupflow task` and `tasks`: where a task is and what happened to it; which are in a state.

And what people do to tasks: `task cancel`; to those that wait, `task drop` and `task run-now`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import orjson
import typer

from groupflow.cli.cancel import cancel
from groupflow.cli.exits import Exit, end_of
from groupflow.cli.options import (
    ChoiceOptions,
    FullHelp,
    IdsArgument,
    YesOption,
    argument,
    attempt_lines,
    confirm,
    correction_lines,
    cut,
    moment,
    option,
    print_entry,
    say,
)
from groupflow.cli.verb import Answer, Call, note, verb
from groupflow.core.errors import GroupflowError

if TYPE_CHECKING:
    from groupflow.operate.listing import ListedState, TaskList, TaskPage, TaskRow
    from groupflow.operate.namespace import Namespace
    from groupflow.operate.tasks import Choice, Found, Left, Tasks

_Act: TypeAlias = "Callable[[Tasks, str, Choice], Awaitable[Left | None]]"

verbs = typer.Typer()


class ShownByDefault(FullHelp):
    """`groupflow task ID` is `groupflow task show ID`: looking is what is mostly wanted."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default in front of what names no verb."""
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


task = typer.Typer(
    cls=ShownByDefault,
    help="One task: where it is and what happened to it (task ID); cancel, drop, run-now.",
    no_args_is_help=True,
)
verbs.add_typer(task, name="task")


@verb(task, "show")
def show(
    call: Call,
    id_: Annotated[str, argument("ID", "The task's id: its message id.")],
    choosing: ChoiceOptions,
) -> Answer:
    """Say where a task is and what has happened to it. Exit 1 where nothing is known of it.

    The same as `groupflow task ID`.

    For example:

      groupflow task show 01c8b175db8147af99efc6899b9455af
    """
    from groupflow.operate.tasks import Tasks

    found = call.ask(lambda namespace: Tasks(namespace).find(id_, choosing.choice))
    if found is not None:
        return Answer(found, _lines(found))
    never = f"no task {id_}: it never came, or ended longer ago than history.retention keeps"
    # With --json stdout has it already that there is none.
    return Answer(None, [], [] if call.as_json else [never], Exit.FAILED)


@verb(verbs, "tasks")
def tasks(
    call: Call,
    state: Annotated[
        Literal[
            "queued", "running", "delayed", "done", "superseded", "cancelled", "expired", "dropped"
        ],
        argument("STATE", "Which state; for the dead see `groupflow dead list`."),
    ],
    *,
    limit: Annotated[int, option("--limit N", "How many at most.", min=1, max=10_000)] = 100,
    everything: Annotated[
        bool, option("--all", "All of them, as they are read; some may move meanwhile.")
    ] = False,
) -> None:
    """List tasks of a state: the next to run first, the longest at it, or the latest to end.

    With --all those that are over come in no order.

    A task behind a delayed one of its group is queued, whatever its own delay: it is due later.

    `status` counts them all.

    For example:

      groupflow tasks running

      groupflow tasks queued --all --json | jq -r '.[].type' | sort | uniq -c
    """

    async def look(namespace: Namespace) -> None:
        from groupflow.operate.listing import every_task

        lead, doubts = "[", list[str]()
        pages: AsyncIterator[TaskPage | TaskList] = every_task(namespace, state)
        if not everything:
            first, doubts = await _first(namespace, state, limit)
            pages = _one(first)
        async for page in pages:
            for row in page.tasks:
                print_entry(lead, row) if call.as_json else say(_line(state, row, page.at))
                lead = ","
        # Where reading fails the list is incomplete, and so no JSON, which its reader notices.
        if lead == "[":
            say("[]" if call.as_json else f"no tasks are {state}")
        elif call.as_json:
            say()
            say("]")
        for doubt in doubts:
            say(doubt, err=True)

    call.ask(look)


async def _first(
    namespace: Namespace, state: ListedState, limit: int
) -> tuple[TaskList, list[str]]:
    """The first tasks of a state; and what may be missing from them, in words."""
    from groupflow.operate.ended import list_ended
    from groupflow.operate.listing import list_tasks
    from groupflow.operate.tasks import OVER

    if state not in OVER:
        found = await list_tasks(namespace, state, limit)
    else:
        found = await list_ended(namespace, state, limit=limit)
    if not found.is_whole:
        looked = f"the latest of {found.looked_at:,} that were looked at, in no order"
        return found, [f"{looked}, and of groups' last ones: plain tasks may be missing"]
    return found, cut(len(found.tasks), found.next, "--limit N, or --all")


async def _one(page: TaskList) -> AsyncIterator[TaskList]:
    yield page


def _line(state: str, row: TaskRow, now: float) -> str:
    from groupflow.operate.reasons import duration

    facts = [row.id, row.type or "(no type)", row.group or "-"]
    facts += [f"tenant {row.tenant}"] if row.tenant else []
    facts += [f"pool {row.pool}"] if row.pool else []
    facts.append(f"attempt {row.attempt}")
    if row.enqueued_at is not None:
        facts.append(f"came {duration(now - row.enqueued_at)} ago")
    if row.since is not None:
        length = duration(now - row.since)
        facts.append(f"runs for {length}" if state == "running" else f"ended {length} ago")
    if row.until is not None:
        facts.append(f"due in {duration(row.until - now)}")
    return "  ".join(facts)


def _state_of(found: Found) -> str:
    """A task's state, with the newer task that replaces it, who cancelled it, or what is over."""
    if found.state == "expired":
        return f"expired: it had to start by {moment(found.start_by)}"
    if found.superseded_by is None:
        is_over = found.state == "cancelled" and found.cancelled_by
        return f"cancelled by {found.cancelled_by}" if is_over else found.state
    return f"{found.state}{', makes way for' if found.worker else ' by'} {found.superseded_by}"


def _result(found: Found) -> Iterator[str]:
    """What a task that is done gave, or why there is nothing."""
    none = found.result_error or "its handler gave none, or those of later tasks took its room"
    text = orjson.dumps(found.result, option=orjson.OPT_INDENT_2).decode()
    lines = [f"none: {none}"] if found.result is None else text.splitlines()
    yield from (f"{name:8} {line}" for name, line in zip_longest(["result"], lines, fillvalue=""))


def _lines(found: Found) -> Iterator[str]:
    from groupflow.operate.tasks import OVER

    facts = {
        "state": _state_of(found),
        "type": found.type,
        "group": found.group or "none, it is plain",
        "tenant": found.tenant,
        "attempt": found.attempt,
        "crashes": found.crashes or None,
        "lost leases": found.lost_leases or None,
        "stage": found.stage,
        "pool": found.pool,
        "runs on": f"{found.daemon}, {found.worker}" if found.worker else None,
        "silence": found.silence,
        "progress": found.progress.words() if found.progress else None,
        "came": moment(found.enqueued_at),
        "began": moment(found.began_at),
        "ended" if found.state in OVER else "since": moment(found.since),
        "took": None if found.seconds is None else f"{found.seconds:,.3f} s on {found.daemon}",
        "until": moment(found.until),
        "start by": moment(found.start_by) if found.state != "expired" else None,
        "reason": None if found.request else found.reason,
        "it": found.request.words() if found.request and found.cancelled_by else None,
    }
    yield from (f"{name:8} {fact}" for name, fact in facts.items() if fact is not None)
    if found.state == "done":
        yield from _result(found)
    yield from attempt_lines(found.errors, "         ")
    yield from correction_lines(found.corrections, "         ")


@dataclass(frozen=True)
class TaskOptions(ChoiceOptions):
    """Which tasks a verb acts on: those named by id, or a group's delayed ones."""

    ids: IdsArgument = None
    delayed: Annotated[
        str | None,
        option("--delayed GROUP", "All tasks of a group that wait for a time of theirs."),
    ] = None
    yes: YesOption = False


@verb(task, "drop")
def drop(call: Call, options: TaskOptions) -> Answer:
    """Remove tasks that wait, or are delayed, for good. What runs is left alone.

    For example:

      groupflow task drop 01c8b175db8147af99efc6899b9455af

      groupflow task drop --delayed contact:42
    """
    from groupflow.operate.tasks import Tasks

    return _act_on(call, options, Tasks.drop, ("dropped_waiting", "drop", "dropped"), deletes=True)


@verb(task, "run-now")
def run_now(call: Call, options: TaskOptions) -> Answer:
    """Make delayed tasks due: by their message's delay, or before their next attempt.

    A task behind others of its group still waits for them.

    For example:

      groupflow task run-now 01c8b175db8147af99efc6899b9455af

      groupflow task run-now --delayed contact:42
    """
    from groupflow.operate.tasks import Tasks

    return _act_on(call, options, Tasks.run_now, ("ran_now", "run-now", "due"), deletes=False)


verb(task, "cancel")(cancel)


def _act_on(
    call: Call, options: TaskOptions, act: _Act, words: tuple[str, str, str], *, deletes: bool
) -> Answer:
    """Act, where need be once the user has said yes; say what kept tasks as they were.

    The words are the action's, the verb's, and of the tasks to which it was done.

    Raises:
        typer.BadParameter: it can't be said what is meant; or there is no terminal to ask at.
    """
    what, name, past = words
    ids, choice, delayed = options.ids or [], options.choice, options.delayed
    if bool(ids) == (delayed is not None):
        raise typer.BadParameter("Name ids, or a group by --delayed: one of the two.")
    options.refuse_without(ids)
    if delayed is not None:
        from groupflow.operate.tasks import Tasks

        ids, choice = call.ask(lambda namespace: Tasks(namespace).delayed_of(delayed))
        if ids and not options.yes:
            from groupflow.operate.reasons import counted

            confirm(f"{name} {counted(len(ids), 'delayed task')} of {delayed}?", deletes=deletes)

    async def act_on_all(
        namespace: Namespace,
    ) -> tuple[dict[str, str | GroupflowError | None], list[str]]:
        from groupflow.operate.tasks import REASONS, Tasks

        tasks = Tasks(namespace)

        async def act_on(id_: str) -> str | None:
            left = await act(tasks, id_, choice)
            return None if left is None else REASONS[left]

        found = {id_: kept async for id_, kept in namespace.act_on_each(ids, act_on)}
        if done := [id_ for id_, kept in found.items() if kept is None]:
            await note(namespace, what, tasks=done, group=delayed)
        behind = [] if deletes else [line async for line in _behind(namespace, done, choice)]
        return found, behind

    left, behind = call.ask(act_on_all)
    done = [id_ for id_, kept in left.items() if kept is None]
    stayed = {id_: kept for id_, kept in left.items() if kept is not None}
    return Answer(
        {past: done, "stayed": [{"id": id_, "reason": str(kept)} for id_, kept in stayed.items()]},
        [f"{past} {len(done)}", *behind],
        [f"{id_} stays: {kept}" for id_, kept in stayed.items()],
        end_of(stayed.values()),
    )


async def _behind(namespace: Namespace, ids: list[str], choice: Choice) -> AsyncIterator[str]:
    """Which tasks, though they are due, wait behind the delayed head of their group."""
    from groupflow.operate.groups import Groups
    from groupflow.operate.tasks import Tasks

    for id_ in ids:
        found = await Tasks(namespace).find(id_, choice)
        why = found and found.group and await Groups(namespace).why(found.group)
        if why and why.state == "delayed" and why.head not in {id_, None}:
            at = f" before {moment(why.until)}" if why.until else ""
            yield f"{id_} waits: its group's head {why.head} doesn't start{at}"
