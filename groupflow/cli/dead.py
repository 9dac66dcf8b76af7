"""`groupflow dead`: list, show, redrive and drop dead letters."""

from __future__ import annotations

import base64
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias

import typer

from groupflow.cli.exits import Exit
from groupflow.cli.options import (
    ConfigOption,
    FullHelp,
    JsonOption,
    OfTenantOption,
    PartitionOption,
    confirm,
    moment,
    print_attempts,
    print_json,
)
from groupflow.cli.safe import say
from groupflow.cli.store import ask_store
from groupflow.core.errors import AmbiguousId, GroupflowError, NoRoomForDelay, StoreUnavailable

if TYPE_CHECKING:
    from groupflow.operate.dead import DeadLetter, DeadStory, Filter
    from groupflow.operate.namespace import Namespace
    from groupflow.operate.tasks import Choice
    from groupflow.settings.model import Settings

_Act: TypeAlias = "Callable[[Settings, Namespace, DeadLetter], Awaitable[bool]]"

verbs = typer.Typer()
dead = typer.Typer(
    help="Dead letters: list, show, redrive, drop.", no_args_is_help=True, cls=FullHelp
)
verbs.add_typer(dead, name="dead")

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Which, by id.")]
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
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


@dead.command("list")
def list_(
    *,
    reason: ReasonOption = None,
    task_type: TypeOption = None,
    group: GroupOption = None,
    tenant: TenantOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most.")] = 1000,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List dead letters, the latest first.

    For example:

      groupflow dead list --type import.contacts

      groupflow dead list --reason "no handler" --json
    """
    wanted = _filter(reason, task_type, group, tenant)
    found = ask_store(config, lambda namespace: _collect(namespace, wanted, limit))
    if as_json:
        print_json([letter.as_json() for letter in found])
        return
    for letter in found:
        say(
            f"{moment(letter.died_at)}  {letter.id}  {letter.type or '(no type)'}  "
            f"{letter.group or '-'}  {_first_line(letter.reason)}"
        )
    if not found:
        say("no dead letters")


@dead.command("show")
def show(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The dead letter's id.")],
    *,
    tenant: OfTenantOption = None,
    partition: PartitionOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one dead letter: its reason, its attempts, its headers and its body.

    A body that has left Redis for RabbitMQ is read from there. With --json it is text where it is
    UTF-8, else `body_base64`.

    For example:

      groupflow dead show 01c8b175db8147af99efc6899b9455af
    """
    from groupflow.operate.tasks import Choice
    from groupflow.settings.load import load_settings

    settings, choice = load_settings(config), Choice(tenant, partition)
    try:
        found = ask_store(config, lambda namespace: _look(settings, namespace, id_, choice))
    except AmbiguousId:
        if as_json:
            print_json(None)
        raise
    if found is None:
        _none_such(id_)
    letter, headers, body = found
    if as_json:
        print_json(_as_json(letter, headers, body))
        return
    say(f"{letter.id}, {letter.type or '(no type)'}, {letter.group or 'plain'}")
    say(f"died {moment(letter.died_at)}: {letter.reason}")
    print_attempts(letter.errors)
    for name, value in headers.items():
        say(f"  {name}: {value}")
    say(body.decode(errors="backslashreplace"))


def _verb(name: str, past: str, *, deletes: bool = False) -> Callable[[_Act], _Act]:
    """Make a verb of what is done to one dead letter; its docstring is the verb's help."""

    def registered(act: _Act) -> _Act:
        @dead.command(name, help=inspect.getdoc(act))
        def verb(
            ids: Ids = None,
            *,
            reason: ReasonOption = None,
            task_type: TypeOption = None,
            group: GroupOption = None,
            tenant: WhoseOption = None,
            partition: PartitionOption = None,
            everything: AllOption = False,
            yes: YesOption = False,
            config: ConfigOption = None,
            as_json: JsonOption = False,
        ) -> None:
            from groupflow.operate.tasks import Choice
            from groupflow.settings.load import load_settings

            # With ids a tenant is no filter: it says whose letter of an id is meant.
            wanted = _filter(reason, task_type, group, None if ids else tenant)
            choice = Choice(tenant, partition)
            if partition is not None and not ids:
                raise typer.BadParameter("--partition chooses among letters of an id: name ids.")
            if not ids and not everything and not wanted.is_set:
                raise typer.BadParameter(
                    "Name ids, a filter (--reason, --type, --group, --tenant), --all."
                )
            if ids and (everything or wanted.is_set):
                raise typer.BadParameter("Name ids, or a filter or --all: not both.")
            if not ids and not yes and (deletes or sys.stdin.isatty()):
                found = ask_store(config, lambda namespace: _collect(namespace, wanted, 10**9))
                confirm(f"{name} {len(found)} dead letters?", deletes=deletes)
            bound = partial(act, load_settings(config))
            done = ask_store(
                config, lambda namespace: _act_on_each(namespace, ids, wanted, choice, bound)
            )
            _report(past, done, as_json=as_json)

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


def _filter(
    reason: str | None, task_type: str | None, group: str | None, tenant: str | None
) -> Filter:
    from groupflow.operate.dead import Filter

    return Filter(reason=reason, type=task_type, group=group, tenant=tenant)


async def _collect(namespace: Namespace, wanted: Filter, limit: int) -> list[DeadLetter]:
    from groupflow.operate.dead import DeadLetters

    found = []
    async for letter in DeadLetters(namespace).each(wanted):
        found.append(letter)
        if len(found) >= limit:
            break
    return found


async def _look(
    settings: Settings, namespace: Namespace, id_: str, choice: Choice
) -> tuple[DeadStory, dict[str, Any], bytes] | None:
    from groupflow.operate.dead import DeadLetters
    from groupflow.operate.redrive import whole_letter

    letter = await DeadLetters(namespace).find(id_, choice)
    if letter is None:
        return None
    whole = await whole_letter(settings, namespace, letter)
    return letter.with_beside(whole.beside), dict(whole.envelope.headers), whole.envelope.body


def _as_json(letter: DeadStory, headers: dict[str, Any], body: bytes) -> dict[str, Any]:
    found = {**letter.as_json(), "tenant": letter.tenant, "errors": letter.errors}
    found["headers"] = headers
    try:
        found["body"] = body.decode()
    except UnicodeDecodeError:
        found["body_base64"] = base64.b64encode(body).decode()
    return found


@dataclass
class _Done:
    """What became of the letters that were named, by id."""

    acted: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    kept: list[GroupflowError] = field(default_factory=list)  # what kept others as they were
    is_part: bool = False  # not all that may be meant could be reached


async def _act_on_each(
    namespace: Namespace,
    ids: list[str] | None,
    wanted: Filter,
    choice: Choice,
    act: Callable[[Namespace, DeadLetter], Awaitable[bool]],
) -> _Done:
    from groupflow.operate.dead import DeadLetters
    from groupflow.operate.several import act_on_each

    done, letters = _Done(), DeadLetters(namespace)

    async def act_on(meant: str | DeadLetter) -> str | None:
        letter = await letters.find(meant, choice) if isinstance(meant, str) else meant
        return None if letter is not None and await act(namespace, letter) else "unknown"

    meant: Iterable[str | DeadLetter] = dict.fromkeys(ids or ())
    if not ids:
        meant = await _collect(namespace, wanted, 10**9)
    async for each, kept in act_on_each(meant, act_on, len(namespace)):
        id_ = each if isinstance(each, str) else each.id
        if kept is None:
            done.acted.append(id_)
        elif isinstance(kept, GroupflowError):
            done.kept.append(kept)
            say(f"{id_} stays: {kept}", err=True)
        elif ids:
            done.unknown.append(id_)
    is_away = not ids and bool(namespace.away)
    done.is_part = is_away or any(isinstance(each, StoreUnavailable) for each in done.kept)
    return done


def _report(past: str, done: _Done, *, as_json: bool) -> None:
    if as_json:
        print_json({past: done.acted, "unknown": done.unknown})
    else:
        say(f"{past} {len(done.acted)}")
    for id_ in done.unknown:
        say(f"no dead letter {id_}", err=True)
    if done.is_part:
        raise typer.Exit(Exit.UNAVAILABLE)
    if done.unknown or any(isinstance(each, AmbiguousId | NoRoomForDelay) for each in done.kept):
        raise typer.Exit(Exit.FAILED)


def _none_such(id_: str) -> NoReturn:
    say(f"no dead letter {id_}: see groupflow dead list", err=True)
    raise typer.Exit(Exit.FAILED)
