"""`groupflow dead`: list, show, redrive and drop dead letters."""

from __future__ import annotations

import base64
import inspect
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias

import typer

from groupflow.cli.exits import Exit
from groupflow.cli.options import ConfigOption, JsonOption, print_json
from groupflow.cli.safe import say
from groupflow.cli.store import ask_store
from groupflow.cli.task import moment
from groupflow.core.errors import BodyMissing, NoRoomForDelay, StoreFull, Unroutable

if TYPE_CHECKING:
    from groupflow.operate.dead import DeadLetter, DeadLetters, DeadStory, Filter
    from groupflow.settings.model import Settings
    from groupflow.store.client import StoreClient

_Act: TypeAlias = "Callable[[Settings, DeadLetters, DeadLetter], Awaitable[bool]]"

verbs = typer.Typer()
dead = typer.Typer(help="Dead letters: list, show, redrive, drop.", no_args_is_help=True)
verbs.add_typer(dead, name="dead")

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Which, by id.")]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Those whose reason has this in it.")
]
TypeOption = Annotated[str | None, typer.Option("--type", metavar="T", help="Those of a type.")]
GroupOption = Annotated[str | None, typer.Option("--group", metavar="G", help="Those of a group.")]
TenantOption = Annotated[
    str | None, typer.Option("--tenant", metavar="T", help="Those of a tenant.")
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
    letters = ask_store(config, lambda client: _collect(client, wanted, limit))
    if as_json:
        print_json([letter.as_json() for letter in letters])
        return
    for letter in letters:
        say(
            f"{moment(letter.died_at)}  {letter.id}  {letter.type or '(no type)'}  "
            f"{letter.group or '-'}  {_first_line(letter.reason)}"
        )
    if not letters:
        say("no dead letters")


@dead.command("show")
def show(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The dead letter's id.")],
    *,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one dead letter: its reason, its attempts, its headers and its body.

    A body that has left Redis for RabbitMQ is read from there. With --json it is text where it is
    UTF-8, else `body_base64`.

    For example:

      groupflow dead show 01c8b175db8147af99efc6899b9455af
    """
    from groupflow.settings.load import load_settings

    settings = load_settings(config)
    found = ask_store(config, lambda client: _look(settings, client, id_))
    if found is None:
        _none_such(id_)
    letter, headers, body = found
    if as_json:
        print_json(_as_json(letter, headers, body))
        return
    say(f"{letter.id}, {letter.type or '(no type)'}, {letter.group or 'plain'}")
    say(f"died {moment(letter.died_at)}: {letter.reason}")
    for error in letter.errors:
        line = f"attempt {error.get('attempt', '-')}: {error['error']}: {error['message']}"
        say(f"  {line}")
    for name, value in headers.items():
        say(f"  {name}: {value}")
    say(body.decode(errors="backslashreplace"))


def _verb(name: str, past: str) -> Callable[[_Act], _Act]:
    """Make a verb of what is done to one dead letter; its docstring is the verb's help."""

    def registered(act: _Act) -> _Act:
        @dead.command(name, help=inspect.getdoc(act))
        def verb(
            ids: Ids = None,
            *,
            reason: ReasonOption = None,
            task_type: TypeOption = None,
            group: GroupOption = None,
            tenant: TenantOption = None,
            everything: AllOption = False,
            yes: YesOption = False,
            config: ConfigOption = None,
            as_json: JsonOption = False,
        ) -> None:
            from groupflow.settings.load import load_settings

            wanted = _filter(reason, task_type, group, tenant)
            if not ids and not everything and not wanted.is_set:
                raise typer.BadParameter(
                    "Name ids, a filter (--reason, --type, --group, --tenant), --all."
                )
            if ids and (everything or wanted.is_set):
                raise typer.BadParameter("Name ids, or a filter or --all: not both.")
            if not ids and not yes and sys.stdin.isatty():
                count = len(ask_store(config, lambda client: _collect(client, wanted, 10**9)))
                typer.confirm(f"{name} {count} dead letters?", abort=True)
            bound = partial(act, load_settings(config))
            done = ask_store(config, lambda client: _act_on_each(client, ids, wanted, bound))
            _report(past, done, as_json=as_json)

        return act

    return registered


@_verb("redrive", "redriven")
async def redrive(settings: Settings, letters: DeadLetters, letter: DeadLetter) -> bool:
    """Make dead letters tasks again, each at its original place in its group.

    One that was rejected on its way in (a missing key field, say) is routed first, by the
    configuration as it is now; its delay is over.

    For example:

      groupflow dead redrive 01c8b175db8147af99efc6899b9455af

      groupflow dead redrive --reason "exit code 1" --tenant 42
    """
    from groupflow.operate.redrive import Redriver

    return await Redriver(settings, letters).redrive(letter)


@_verb("drop", "dropped")
async def drop(_: Settings, letters: DeadLetters, letter: DeadLetter) -> bool:
    """Remove dead letters for good. A group that was parked behind one goes on.

    For example:

      groupflow dead drop 01c8b175db8147af99efc6899b9455af

      groupflow dead drop --type import.test --yes
    """
    return await letters.drop(letter)


def _first_line(reason: str) -> str:
    """The start of a reason; a traceback's worth of text is what `dead show` is for."""
    line = reason.partition("\n")[0]
    return f"{line[:120]} …" if len(reason) > len(line[:120]) else line


def _filter(
    reason: str | None, task_type: str | None, group: str | None, tenant: str | None
) -> Filter:
    from groupflow.operate.dead import Filter

    return Filter(reason=reason, type=task_type, group=group, tenant=tenant)


async def _collect(client: StoreClient, wanted: Filter, limit: int) -> list[DeadLetter]:
    from groupflow.operate.dead import DeadLetters

    letters = []
    async for letter in DeadLetters(client).each(wanted):
        letters.append(letter)
        if len(letters) >= limit:
            break
    return letters


async def _look(
    settings: Settings, client: StoreClient, id_: str
) -> tuple[DeadStory, dict[str, Any], bytes] | None:
    from groupflow.operate.bodies import whole_letter
    from groupflow.operate.dead import DeadLetters

    letters = DeadLetters(client)
    letter = await letters.get(id_)
    if letter is None:
        return None
    whole = await whole_letter(settings, letters, id_)
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
    is_full: bool = False  # there was no room for the rest of a delay


async def _act_on_each(
    client: StoreClient,
    ids: list[str] | None,
    wanted: Filter,
    act: Callable[[DeadLetters, DeadLetter], Awaitable[bool]],
) -> _Done:
    from groupflow.operate.dead import DeadLetters

    done, letters = _Done(), DeadLetters(client)
    chosen: list[DeadLetter] = [] if ids else await _collect(client, wanted, 10**9)
    for id_ in ids or ():
        letter = await letters.get(id_)
        if letter is None:
            done.unknown.append(id_)
        else:
            chosen.append(letter)
    for each in chosen:
        try:
            if await act(letters, each):
                done.acted.append(each.id)
        except (Unroutable, NoRoomForDelay, BodyMissing, StoreFull) as error:
            done.is_full |= isinstance(error, NoRoomForDelay)
            say(f"{each.id} stays: {error}", err=True)
    return done


def _report(past: str, done: _Done, *, as_json: bool) -> None:
    if as_json:
        print_json({past: done.acted, "unknown": done.unknown})
    else:
        say(f"{past} {len(done.acted)}")
    for id_ in done.unknown:
        say(f"no dead letter {id_}", err=True)
    if done.unknown or done.is_full:
        raise typer.Exit(Exit.FAILED)


def _none_such(id_: str) -> NoReturn:
    say(f"no dead letter {id_}: see groupflow dead list", err=True)
    raise typer.Exit(Exit.FAILED)
