"""`groupflow dead`: list, show, redrive and drop dead letters."""

from __future__ import annotations

import base64
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from groupflow.cli.exits import Exit
from groupflow.cli.options import (
    FullHelp,
    IdsArgument,
    OfTenantOption,
    PartitionOption,
    YesOption,
    attempt_lines,
    confirm,
    moment,
    seconds_for,
)
from groupflow.cli.safe import say
from groupflow.cli.verb import Answer, Call, failed, verb
from groupflow.core.errors import AmbiguousId, GroupflowError, NoRoomForDelay, StoreUnavailable

if TYPE_CHECKING:
    from groupflow.operate.dead import DeadLetter, DeadStory, Filter
    from groupflow.operate.namespace import Namespace

_Act: TypeAlias = "Callable[[Namespace, DeadLetter], Awaitable[bool]]"
_Kept: TypeAlias = str | GroupflowError | None  # why a letter is as it was; None if it isn't

verbs = typer.Typer()
dead = typer.Typer(
    help="Dead letters: list, show, redrive, drop.", no_args_is_help=True, cls=FullHelp
)
verbs.add_typer(dead, name="dead")


@dataclass(frozen=True, slots=True)
class _Verb:
    """What is done to dead letters."""

    name: str
    past: str  # of the name
    act: _Act  # says whether the letter was still there
    deletes: bool


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which letter is meant where several have an id: `groupflow.operate.tasks.Choice`."""

    tenant: str | None
    partition: int | None


ReasonOption = Annotated[
    str | None,
    typer.Option(
        "--reason", metavar="TEXT", help="Those whose reason has this in it, in any case."
    ),
]
TypeOption = Annotated[
    str | None,
    typer.Option("--type", metavar="T", help="Those of a type; of several: import.*"),
]
GroupOption = Annotated[str | None, typer.Option("--group", metavar="G", help="Those of a group.")]
TenantOption = Annotated[
    str | None, typer.Option("--tenant", metavar="T", help="Those of a tenant.")
]
WhoseOption = Annotated[
    str | None,
    typer.Option(
        "--tenant",
        metavar="T",
        help="Those of a tenant; of several that have one id, the one of this tenant; "
        "empty: of none.",
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Those that died so long ago at most: 30s, 10m, 2h, 1d."
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Count those that match, and change nothing.")
]
AllOption = Annotated[bool, typer.Option("--all", help="All of them.")]


@verb(dead, "list")
def list_(
    call: Call,
    *,
    reason: ReasonOption = None,
    task_type: TypeOption = None,
    group: GroupOption = None,
    tenant: TenantOption = None,
    since: SinceOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most.")] = 1000,
) -> Answer:
    """List dead letters, the latest first.

    For example:

      groupflow dead list --type import.contacts

      groupflow dead list --reason "no handler" --since 2h --json
    """
    wanted = _filter_of(reason, task_type, group, tenant, since)
    found = call.ask(lambda namespace: collect(namespace, limit, wanted))
    lines = [
        f"{moment(letter.died_at)}  {letter.id}  {letter.type or '(no type)'}  "
        f"{letter.group or '-'}  {_first_line(letter.reason)}"
        for letter in found
    ]
    return Answer([letter.as_json() for letter in found], lines or ["no dead letters"])


@verb(dead, "show")
def show(
    call: Call,
    id_: Annotated[str, typer.Argument(metavar="ID", help="The dead letter's id.")],
    *,
    tenant: OfTenantOption = None,
    partition: PartitionOption = None,
) -> Answer:
    """Show one dead letter: its reason, its attempts, its headers and its body.

    A body that has left Redis for RabbitMQ is read from there. With --json it is text where it is
    UTF-8, else `body_base64`.

    For example:

      groupflow dead show 01c8b175db8147af99efc6899b9455af
    """
    from groupflow.operate.dead import DeadLetters
    from groupflow.operate.redrive import whole_letter
    from groupflow.operate.tasks import Choice

    async def look(namespace: Namespace) -> tuple[DeadStory, dict[str, Any], bytes] | None:
        letter = await DeadLetters(namespace).find(id_, Choice(tenant, partition))
        if letter is None:
            return None
        whole = await whole_letter(call.settings, namespace, letter)
        return letter.with_beside(whole.beside), dict(whole.envelope.headers), whole.envelope.body

    found = call.ask(look)
    if found is None:
        raise failed(f"no dead letter {id_}: see groupflow dead list")
    letter, headers, body = found
    facts = {"tenant": letter.tenant, "errors": letter.errors, "headers": headers}
    lines = [
        f"{letter.id}, {letter.type or '(no type)'}, {letter.group or 'plain'}",
        f"died {moment(letter.died_at)}: {letter.reason}",
        *attempt_lines(letter.errors),
        *(f"  {name}: {value}" for name, value in headers.items()),
        body.decode(errors="backslashreplace"),
    ]
    return Answer({**letter.as_json(), **facts, **_json_of(body)}, lines)


def _json_of(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


@verb(dead, "redrive")
def redrive(
    call: Call,
    ids: IdsArgument = None,
    *,
    reason: ReasonOption = None,
    task_type: TypeOption = None,
    group: GroupOption = None,
    tenant: WhoseOption = None,
    since: SinceOption = None,
    partition: PartitionOption = None,
    everything: AllOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> Answer:
    """Make dead letters tasks again, each at its original place in its group.

    One that was rejected on its way in (a missing key field, say) is routed first, by the
    configuration as it is now; its delay is over.

    For example:

      groupflow dead redrive 01c8b175db8147af99efc6899b9455af

      groupflow dead redrive --reason "exit code 1" --tenant 42 --since 2h --dry-run
    """
    from groupflow.operate.redrive import Redriver

    async def act(namespace: Namespace, letter: DeadLetter) -> bool:
        return await Redriver(call.settings, namespace).redrive(letter)

    verb_ = _Verb("redrive", "redriven", act, deletes=False)
    meant = _meant(ids, partition, (reason, task_type, group, tenant, since), everything=everything)
    return _act_on(call, verb_, meant, Chosen(tenant, partition), dry_run=dry_run, yes=yes)


@verb(dead, "drop")
def drop(
    call: Call,
    ids: IdsArgument = None,
    *,
    reason: ReasonOption = None,
    task_type: TypeOption = None,
    group: GroupOption = None,
    tenant: WhoseOption = None,
    since: SinceOption = None,
    partition: PartitionOption = None,
    everything: AllOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> Answer:
    """Remove dead letters for good. A group that was parked behind one goes on.

    Where they aren't named by id it asks first; without a terminal it wants --yes.

    For example:

      groupflow dead drop 01c8b175db8147af99efc6899b9455af

      groupflow dead drop --type import.test --since 1d --yes
    """
    from groupflow.operate.dead import DeadLetters

    async def act(namespace: Namespace, letter: DeadLetter) -> bool:
        return await DeadLetters(namespace).drop(letter)

    verb_ = _Verb("drop", "dropped", act, deletes=True)
    meant = _meant(ids, partition, (reason, task_type, group, tenant, since), everything=everything)
    return _act_on(call, verb_, meant, Chosen(tenant, partition), dry_run=dry_run, yes=yes)


def _filter_of(
    reason: str | None,
    task_type: str | None,
    group: str | None,
    tenant: str | None,
    since: str | None,
) -> Filter:
    """What the options say."""
    from groupflow.operate.dead import Filter

    span = None if since is None else seconds_for(since, "--since")
    return Filter(reason=reason, type=task_type, group=group, tenant=tenant, since=span)


def _meant(
    ids: list[str] | None,
    partition: int | None,
    options: tuple[str | None, str | None, str | None, str | None, str | None],
    *,
    everything: bool,
) -> list[str] | Filter:
    """The ids, or the filter.

    Raises:
        typer.BadParameter: neither is named, or both are.
    """
    reason, task_type, group, tenant, since = options
    # With ids a tenant is no filter: it says whose letter of an id is meant.
    wanted = _filter_of(reason, task_type, group, None if ids else tenant, since)
    if partition is not None and not ids:
        raise typer.BadParameter("--partition chooses among letters of an id: name ids.")
    if not ids and not everything and not wanted.is_set:
        raise typer.BadParameter(
            "Name ids, a filter (--reason, --type, --group, --tenant, --since), --all."
        )
    if ids and (everything or wanted.is_set):
        raise typer.BadParameter("Name ids, or a filter or --all: not both.")
    return ids or wanted


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


def _act_on(
    call: Call,
    verb_: _Verb,
    meant: list[str] | Filter,
    chosen: Chosen,
    *,
    dry_run: bool,
    yes: bool,
) -> Answer:
    """Count what a filter matches, or act, where need be once the user has said yes."""
    if isinstance(meant, list):
        if dry_run:
            raise typer.BadParameter(
                "--dry-run counts what a filter or --all matches: name no ids."
            )
    elif dry_run or (not yes and (verb_.deletes or sys.stdin.isatty())):
        from groupflow.operate.bulk import count

        wanted = meant
        matching = call.ask(lambda namespace: count(namespace, wanted))
        if dry_run:
            told = f"{matching} dead letters match; without --dry-run each is {verb_.past}"
            return Answer({"matching": matching}, [told])
        confirm(f"{verb_.name} {matching} dead letters?", deletes=verb_.deletes)
    return _act_on_each(call, verb_, meant, chosen)


def _act_on_each(call: Call, verb_: _Verb, wanted: list[str] | Filter, chosen: Chosen) -> Answer:
    """Act on letters that are named, or that pass a filter; say what kept others as they were."""
    is_by_id = isinstance(wanted, list)

    async def act_on_all(namespace: Namespace) -> tuple[list[tuple[str, _Kept]], bool]:
        from groupflow.operate.bulk import each_step
        from groupflow.operate.dead import DeadLetters
        from groupflow.operate.several import act_on_each
        from groupflow.operate.tasks import Choice

        letters, ends = DeadLetters(namespace), list[tuple[str, _Kept]]()
        choice = Choice(chosen.tenant, chosen.partition)

        async def act_on(meant: str | DeadLetter) -> str | None:
            letter = await letters.find(meant, choice) if isinstance(meant, str) else meant
            is_done = letter is not None and await verb_.act(namespace, letter)
            return None if is_done else "unknown"

        async def act_on_some(meant: Iterable[str | DeadLetter]) -> None:
            async for each, kept in act_on_each(meant, act_on, len(namespace)):
                ends.append((each if isinstance(each, str) else each.id, kept))
                if isinstance(kept, GroupflowError):
                    say(f"{ends[-1][0]} stays: {kept}", err=True)

        if isinstance(wanted, list):
            await act_on_some(dict.fromkeys(wanted))
        else:
            async for some in each_step(namespace, wanted):
                await act_on_some(some)
        return ends, bool(namespace.away)

    ends, is_away = call.ask(act_on_all)
    acted = [id_ for id_, kept in ends if kept is None]
    unknown = [id_ for id_, kept in ends if isinstance(kept, str)] if is_by_id else []
    end = Exit.FINE
    if unknown or any(isinstance(kept, AmbiguousId | NoRoomForDelay) for _, kept in ends):
        end = Exit.FAILED
    # Not all that may be meant could be reached.
    if (is_away and not is_by_id) or any(isinstance(kept, StoreUnavailable) for _, kept in ends):
        end = Exit.UNAVAILABLE
    return Answer(
        {verb_.past: acted, "unknown": unknown},
        [f"{verb_.past} {len(acted)}"],
        [f"no dead letter {id_}" for id_ in unknown],
        end,
    )
