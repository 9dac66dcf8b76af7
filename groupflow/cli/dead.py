"""`groupflow dead`: list, show, redrive and drop dead letters."""

from __future__ import annotations

import base64
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable
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
)
from groupflow.cli.safe import say
from groupflow.cli.verb import Answer, Call, failed, verb
from groupflow.core.errors import AmbiguousId, GroupflowError, NoRoomForDelay, StoreUnavailable

if TYPE_CHECKING:
    from groupflow.operate.dead import DeadLetter, DeadStory, Filter
    from groupflow.operate.namespace import Namespace
    from groupflow.operate.tasks import Choice
    from groupflow.settings.model import Settings

_Act: TypeAlias = "Callable[[Settings, Namespace, DeadLetter], Awaitable[bool]]"
_Kept: TypeAlias = str | GroupflowError | None  # why a letter is as it was; None if it isn't

verbs = typer.Typer()
dead = typer.Typer(
    help="Dead letters: list, show, redrive, drop.", no_args_is_help=True, cls=FullHelp
)
verbs.add_typer(dead, name="dead")

EVERY = 10**9  # letters: more than there can be
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Those whose reason has this in it.")
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
AllOption = Annotated[bool, typer.Option("--all", help="All of them.")]


@verb(dead, "list")
def list_(
    call: Call,
    *,
    reason: ReasonOption = None,
    task_type: TypeOption = None,
    group: GroupOption = None,
    tenant: TenantOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most.")] = 1000,
) -> Answer:
    """List dead letters, the latest first.

    For example:

      groupflow dead list --type import.contacts

      groupflow dead list --reason "no handler" --json
    """
    from groupflow.operate.dead import Filter

    wanted = Filter(reason=reason, type=task_type, group=group, tenant=tenant)
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


def _verb(name: str, past: str, *, deletes: bool = False) -> Callable[[_Act], _Act]:
    """Make a verb of what is done to one dead letter; its docstring is the verb's help."""

    def registered(act: _Act) -> _Act:
        @verb(dead, name, help=inspect.getdoc(act))
        def act_on_letters(
            call: Call,
            ids: IdsArgument = None,
            *,
            reason: ReasonOption = None,
            task_type: TypeOption = None,
            group: GroupOption = None,
            tenant: WhoseOption = None,
            partition: PartitionOption = None,
            everything: AllOption = False,
            yes: YesOption = False,
        ) -> Answer:
            from groupflow.operate.dead import Filter
            from groupflow.operate.tasks import Choice

            # With ids a tenant is no filter: it says whose letter of an id is meant.
            named = None if ids else tenant
            wanted = Filter(reason=reason, type=task_type, group=group, tenant=named)
            if partition is not None and not ids:
                raise typer.BadParameter("--partition chooses among letters of an id: name ids.")
            if not ids and not everything and not wanted.is_set:
                raise typer.BadParameter(
                    "Name ids, a filter (--reason, --type, --group, --tenant), --all."
                )
            if ids and (everything or wanted.is_set):
                raise typer.BadParameter("Name ids, or a filter or --all: not both.")
            if not ids and not yes and (deletes or sys.stdin.isatty()):
                found = call.ask(lambda namespace: collect(namespace, EVERY, wanted))
                confirm(f"{name} {len(found)} dead letters?", deletes=deletes)
            meant = ids or wanted
            return _act_on_each(call, past, meant, Choice(tenant, partition), act)

        return act

    return registered


@_verb("redrive", "redriven")
async def redrive(settings: Settings, namespace: Namespace, letter: DeadLetter) -> bool:
    """Make dead letters tasks again, each at its original place in its group.

    One that was rejected on its way in (a missing key field, say) is routed first, by the
    configuration as it is now; its delay is over.

    For example:

      groupflow dead redrive 01c8b175db8147af99efc6899b9455af

      groupflow dead redrive --reason "exit code 1" --tenant 42
    """
    from groupflow.operate.redrive import Redriver

    return await Redriver(settings, namespace).redrive(letter)


@_verb("drop", "dropped", deletes=True)
async def drop(_: Settings, namespace: Namespace, letter: DeadLetter) -> bool:
    """Remove dead letters for good. A group that was parked behind one goes on.

    Where they aren't named by id it asks first; without a terminal it wants --yes.

    For example:

      groupflow dead drop 01c8b175db8147af99efc6899b9455af

      groupflow dead drop --type import.test --yes
    """
    from groupflow.operate.dead import DeadLetters

    return await DeadLetters(namespace).drop(letter)


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


def _act_on_each(
    call: Call, past: str, wanted: list[str] | Filter, choice: Choice, act: _Act
) -> Answer:
    """Act on letters that are named, or that pass a filter; say what kept others as they were."""
    is_by_id = isinstance(wanted, list)

    async def act_on_all(namespace: Namespace) -> tuple[list[tuple[str, _Kept]], bool]:
        from groupflow.operate.dead import DeadLetters
        from groupflow.operate.several import act_on_each

        letters, ends = DeadLetters(namespace), list[tuple[str, _Kept]]()

        async def act_on(meant: str | DeadLetter) -> str | None:
            letter = await letters.find(meant, choice) if isinstance(meant, str) else meant
            is_done = letter is not None and await act(call.settings, namespace, letter)
            return None if is_done else "unknown"

        meant: Iterable[str | DeadLetter]
        if isinstance(wanted, list):
            meant = dict.fromkeys(wanted)
        else:
            meant = await collect(namespace, EVERY, wanted)
        async for each, kept in act_on_each(meant, act_on, len(namespace)):
            ends.append((each if isinstance(each, str) else each.id, kept))
            if isinstance(kept, GroupflowError):
                say(f"{ends[-1][0]} stays: {kept}", err=True)
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
        {past: acted, "unknown": unknown},
        [f"{past} {len(acted)}"],
        [f"no dead letter {id_}" for id_ in unknown],
        end,
    )
