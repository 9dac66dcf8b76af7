"""`groupflow dead`: list, show, redrive and drop dead letters."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from groupflow.cli.bodies import read_whole
from groupflow.cli.exits import Exit, end_of, explain
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
    say,
    seconds_for,
    user_name,
)
from groupflow.cli.verb import Answer, Call, failed, note, say_passed, verb
from groupflow.core.errors import (
    ArchiveRefused,
    BodyMissing,
    GroupflowError,
    GroupFull,
    ServerUnreachable,
)

if TYPE_CHECKING:
    from groupflow.operate.dead import DeadLetter, DeadStory, Filter
    from groupflow.operate.namespace import Away, Namespace

_Act: TypeAlias = "Callable[[Namespace, DeadLetter], Awaitable[bool]]"
_Kept: TypeAlias = str | GroupflowError | None  # why a letter is as it was; None if it isn't

verbs = typer.Typer()
dead = typer.Typer(
    help="Dead letters: list, show, redrive, drop.", no_args_is_help=True, cls=FullHelp
)
verbs.add_typer(dead, name="dead")


@dataclass(frozen=True)
class Filters:
    """Which dead letters, by what is known of them."""

    reason: Annotated[
        str | None, option("--reason TEXT", "Those whose reason has this in it, in any case.")
    ] = None
    task_type: Annotated[
        str | None, option("--type T", "Those of a type; of several: import.*")
    ] = None
    cause: Annotated[
        str | None,
        option("--cause CAUSE", "Those of a cause, as `groupflow dead causes` names it."),
    ] = None
    group: Annotated[str | None, option("--group G", "Those of a group.")] = None
    tenant: Annotated[str | None, option("--tenant T", "Those of a tenant.")] = None
    since: Annotated[
        str | None, option("--since TIME", "Those that died so long ago at most: 30s, 10m, 2h, 1d.")
    ] = None

    def filter(self, tenant: str | None) -> Filter:
        """The same as the store takes it."""
        from groupflow.operate.dead import Filter
        from groupflow.operate.reasons import CAUSE

        if self.cause is not None and not re.fullmatch(CAUSE, self.cause):
            raise typer.BadParameter(
                f"--cause {self.cause!r} names no cause: see groupflow dead causes."
            )
        since = None if self.since is None else seconds_for(self.since, "--since")
        return Filter(self.reason, None, self.task_type, self.group, tenant, since, self.cause)


@dataclass(frozen=True)
class LetterOptions(Filters, ChoiceOptions):
    """Which dead letters a verb acts on: those named by id, or all that pass the filters."""

    ids: IdsArgument = None
    tenant: Annotated[
        str | None,
        option(
            "--tenant T",
            "Those of a tenant; of several that have one id, the one of this tenant; "
            "empty: of none.",
        ),
    ] = None
    everything: Annotated[bool, option("--all", "All of them.")] = False
    dry_run: Annotated[bool, option("--dry-run", "Count those that match, and change nothing.")] = (
        False
    )
    yes: YesOption = False

    def checked(self) -> list[str] | Filter:
        """The ids, or the filter.

        Raises:
            typer.BadParameter: neither is named, or both are; or ids are to be counted.
        """
        # With ids a tenant is no filter: it says whose letter of an id is meant.
        wanted = self.filter(None if self.ids else self.tenant)
        if self.partition is not None and not self.ids:
            raise typer.BadParameter("--partition chooses among letters of an id: name ids.")
        if not self.ids and not self.everything and not wanted.is_set:
            raise typer.BadParameter(
                "Name ids, a filter (--reason, --cause, --type, --group, --tenant, --since), --all."
            )
        if self.ids and (self.everything or wanted.is_set):
            raise typer.BadParameter("Name ids, or a filter or --all: not both.")
        if self.ids and self.dry_run:
            raise typer.BadParameter(
                "--dry-run counts what a filter or --all matches: name no ids."
            )
        return self.ids or wanted


@verb(dead, "list")
def list_(
    call: Call,
    which: Filters,
    *,
    limit: Annotated[int, option("--limit N", "How many at most.", min=1)] = 1000,
) -> Answer:
    """List dead letters, the latest first.

    For example:

      groupflow dead list --type import.contacts

      groupflow dead list --reason "no handler" --since 2h --json
    """
    wanted = which.filter(which.tenant)
    found = call.ask(lambda namespace: collect(namespace, limit + 1, wanted))
    shown = found[:limit]
    lines = [
        f"{moment(letter.died_at)}  {letter.id}  {letter.type or '(no type)'}  "
        f"{letter.group or '-'}  {_first_line(letter.reason)}"
        for letter in shown
    ]
    told = [letter.as_json() for letter in shown]
    return Answer(told, lines or ["no dead letters"], cut(limit, found[limit:]))


@verb(dead, "causes")
def causes(
    call: Call,
    which: Filters,
    *,
    limit: Annotated[int, option("--limit N", "How many at most.", min=1)] = 50,
) -> Answer:
    """Count dead letters by cause: their type and reason, in which `…` stands for what differs.

    The most frequent first, with its newest letter. What a cause is named by is for `--cause` of
    `dead list`, `redrive` and `drop`.

    For example:

      groupflow dead causes --since 1d
    """
    from groupflow.operate.bulk import read_causes

    wanted = which.filter(which.tenant)
    found = call.ask(lambda space: read_causes(space, wanted, looks=None, shown=limit))
    width = len(f"{found.matching:,}")
    lines = [
        f"{each.count:{width},}  {each.cause}  newest {moment(each.last_at)}: {each.example}  "
        f"{each.type or '(no type)'}  {each.reason}"
        for each in found.reasons
    ]
    if (left := found.causes - len(lines)) > 0:
        lines.append(f"and {left:,} more causes; {found.matching:,} dead letters in all")
    return Answer(found.reasons, lines or ["no dead letters"])


@verb(dead, "show")
def show(
    call: Call,
    id_: Annotated[str, argument("ID", "The dead letter's id.")],
    choosing: ChoiceOptions,
) -> Answer:
    """Show one dead letter: its reason, its attempts, its headers and its body.

    A body that has left Redis for RabbitMQ is read from there; where it can't be, all else is
    shown. With --json it is text where it is UTF-8, else `body_base64`.

    For example:

      groupflow dead show 01c8b175db8147af99efc6899b9455af
    """
    from groupflow.operate.dead import DeadLetters, beginning_of
    from groupflow.operate.redrive import whole_letter

    unread = list[GroupflowError]()  # why the body is not shown

    async def look(namespace: Namespace) -> tuple[DeadStory, dict[str, Any], bytes] | None:
        letter = await DeadLetters(namespace).find(id_, choosing.choice)
        if letter is None:
            return None
        try:
            whole = await whole_letter(call.settings, namespace, letter)
        except (ArchiveRefused, BodyMissing, ServerUnreachable) as error:
            unread.append(error)
            return letter, {}, b""
        return letter.with_beside(whole.beside), dict(whole.envelope.headers), whole.envelope.body

    found = call.ask(look)
    if found is None:
        raise failed(f"no dead letter {id_}: see groupflow dead list")
    letter, headers, body = found
    facts = {name: getattr(letter, name) for name in ("tenant", "errors", "corrections")}
    facts["headers"] = headers
    whole = {"body_error": str(unread[0])} if unread else beginning_of(body, len(body))
    facts |= {name: text for name, text in whole.items() if text is not None}
    lines = [
        f"{letter.id}, {letter.type or '(no type)'}, {letter.group or 'plain'}",
        f"died {moment(letter.died_at)}: {letter.reason}",
        *attempt_lines(letter.errors),
        *correction_lines(letter.corrections),
        *(f"  {name}: {value}" for name, value in headers.items()),
        *([] if unread else [body.decode(errors="backslashreplace")]),
    ]
    end = explain(unread[0]) if unread else Exit.FINE
    return Answer(letter.as_json() | facts, lines, exit=end)


@verb(dead, "redrive")
def redrive(
    call: Call,
    options: LetterOptions,
    *,
    body: Annotated[
        Path | None, option("--body FILE", "A corrected body of the one letter; - is stdin.")
    ] = None,
) -> Answer:
    """Make dead letters tasks again, each at its original place in its group.

    With --body one gets a corrected body of the same group and tenant; `groupflow task ID` shows
    the old one.

    One that was rejected on its way in (a missing key field, say) is routed first, by the
    configuration as it is now; its delay is over.

    For example:

      groupflow dead redrive 01c8b175db8147af99efc6899b9455af

      groupflow dead redrive --reason "exit code 1" --tenant 42 --since 2h --dry-run

      groupflow dead redrive --cause 8707f2456c

      groupflow dead redrive 01c8b175db8147af99efc6899b9455af --body corrected.json
    """
    from groupflow.operate.redrive import NewBody, Redriver

    if body is not None and len(options.ids or []) != 1:
        raise typer.BadParameter("--body corrects one dead letter: name its id alone.")
    new = None if body is None else NewBody(read_whole(body), user_name())

    async def act(namespace: Namespace, letter: DeadLetter) -> bool:
        return await Redriver(call.settings, namespace).redrive(letter, new)

    return _act_on(call, options, act, "redrive", "redriven", deletes=False)


@verb(dead, "drop")
def drop(call: Call, options: LetterOptions) -> Answer:
    """Remove dead letters for good. A group that was parked behind one goes on.

    Where they aren't named by id it asks first; without a terminal it wants --yes.

    For example:

      groupflow dead drop 01c8b175db8147af99efc6899b9455af

      groupflow dead drop --type import.test --since 1d --yes
    """
    from groupflow.operate.dead import DeadLetters

    async def act(namespace: Namespace, letter: DeadLetter) -> bool:
        return await DeadLetters(namespace).drop(letter)

    return _act_on(call, options, act, "drop", "dropped", deletes=True)


def _act_on(
    call: Call, options: LetterOptions, act: _Act, name: str, past: str, *, deletes: bool
) -> Answer:
    """Count what a filter matches, or act, where need be once the user has said yes.

    Raises:
        typer.BadParameter: it can't be said what is meant; or there is no terminal to ask at.
    """
    wanted = options.checked()
    if not isinstance(wanted, list) and (
        options.dry_run or (not options.yes and (deletes or sys.stdin.isatty()))
    ):
        from groupflow.operate.bulk import count
        from groupflow.operate.reasons import counted

        matching = call.ask(lambda namespace: count(namespace, wanted))
        letters = counted(matching, "dead letter")
        if options.dry_run:
            told = f"{letters} match{'es' * (matching == 1)}; without --dry-run each is {past}"
            return Answer({"matching": matching}, [told])
        confirm(f"{name} {letters}?", deletes=deletes)
    is_by_id = isinstance(wanted, list)
    ends, is_away = call.ask(lambda namespace: _act_on_all(namespace, options, wanted, act, past))
    acted = [id_ for id_, kept in ends if kept is None]
    unknown = [id_ for id_, kept in ends if isinstance(kept, str)] if is_by_id else []
    full = [id_ for id_, kept in ends if isinstance(kept, GroupFull)]
    refused = {"full": full} if full else {}
    words = [f"{len(full)} stay: their groups are full, as max_queued of their rules says"]
    end = end_of([*unknown, *(kept for _, kept in ends if isinstance(kept, GroupflowError))])
    return Answer(
        {past: acted, "unknown": unknown, **refused},
        [f"{past} {len(acted)}", *(words if full else [])],
        [f"no dead letter {id_}" for id_ in unknown],
        # Not all that a filter may mean could be reached.
        Exit.UNAVAILABLE if is_away and not is_by_id else end,
    )


async def _act_on_all(
    namespace: Namespace, options: LetterOptions, wanted: list[str] | Filter, act: _Act, past: str
) -> tuple[list[tuple[str, _Kept]], bool]:
    """Act on each letter; for each id what kept it, and whether a partition was passed over."""
    from groupflow.operate.bulk import step
    from groupflow.operate.dead import DeadLetters
    from groupflow.operate.pages import each_page

    letters, ends = DeadLetters(namespace), list[tuple[str, _Kept]]()
    away: list[Away] = []
    facts = {} if isinstance(wanted, list) else wanted.facts

    async def act_on_one(each: str | DeadLetter) -> str | None:
        is_done = await letters.act_on(each, options.choice, lambda letter: act(namespace, letter))
        return None if is_done else "unknown"

    async def act_on_some(some: Iterable[str | DeadLetter]) -> None:
        before = len(ends)
        try:
            async for each, kept in namespace.act_on_each(some, act_on_one):
                ends.append((each if isinstance(each, str) else each.id, kept))
                is_counted = isinstance(kept, GroupFull) and not isinstance(each, str)
                if isinstance(kept, GroupflowError) and not is_counted:
                    say(f"{ends[-1][0]} stays: {kept}", err=True)
        finally:  # RabbitMQ may be away, where bodies lie
            if done := [id_ for id_, kept in ends[before:] if kept is None]:
                await note(namespace, past, tasks=done, **facts)

    if isinstance(wanted, list):
        await act_on_some(wanted)
    else:
        async for found in each_page(partial(step, namespace, wanted)):
            away += found.away
            # The oldest first: where a group has room for some, those that came first get it.
            await act_on_some(reversed(found.letters))
    say_passed(namespace, away)
    return ends, bool(away)


def _first_line(reason: str) -> str:
    """The start of a reason; a traceback's worth of text is what `dead show` is for."""
    line = reason.partition("\n")[0]
    return f"{line[:120]} …" if len(reason) > len(line[:120]) else line


async def collect(
    namespace: Namespace, limit: int, wanted: Filter | None = None
) -> list[DeadLetter]:
    """The latest dead letters, of all or of some."""
    from groupflow.operate.dead import DeadLetters

    found = []
    async for letter in DeadLetters(namespace).each(wanted):
        found.append(letter)
        if len(found) >= limit:
            break
    return found
