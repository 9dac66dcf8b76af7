"""`groupflow dead`: list, show, redrive and drop dead letters."""

from __future__ import annotations

import base64
import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupflow.cli.bodies import read_whole
from groupflow.cli.dead_acting import DeadVerb, act_on
from groupflow.cli.options import (
    FullHelp,
    IdsArgument,
    OfTenantOption,
    PartitionOption,
    YesOption,
    attempt_lines,
    correction_lines,
    moment,
    seconds_for,
)
from groupflow.cli.verb import Answer, Call, failed, verb

if TYPE_CHECKING:
    from groupflow.operate.dead import DeadLetter, DeadStory, Filter
    from groupflow.operate.namespace import Namespace


verbs = typer.Typer()
dead = typer.Typer(
    help="Dead letters: list, show, redrive, drop.", no_args_is_help=True, cls=FullHelp
)
verbs.add_typer(dead, name="dead")


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
BodyOption = Annotated[
    Path | None,
    typer.Option("--body", metavar="FILE", help="A corrected body of the one letter; - is stdin."),
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
    facts = {name: getattr(letter, name) for name in ("tenant", "errors", "corrections")}
    facts["headers"] = headers
    lines = [
        f"{letter.id}, {letter.type or '(no type)'}, {letter.group or 'plain'}",
        f"died {moment(letter.died_at)}: {letter.reason}",
        *attempt_lines(letter.errors),
        *correction_lines(letter.corrections),
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
    body: BodyOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> Answer:
    """Make dead letters tasks again, each at its original place in its group.

    With --body one gets a corrected body of the same group and tenant; `groupflow task ID` shows
    the old one.

    One that was rejected on its way in (a missing key field, say) is routed first, by the
    configuration as it is now; its delay is over.

    For example:

      groupflow dead redrive 01c8b175db8147af99efc6899b9455af

      groupflow dead redrive --reason "exit code 1" --tenant 42 --since 2h --dry-run

      groupflow dead redrive 01c8b175db8147af99efc6899b9455af --body corrected.json
    """
    from groupflow.operate.corrections import NewBody
    from groupflow.operate.redrive import Redriver
    from groupflow.operate.tasks import Choice

    if body is not None and len(ids or []) != 1:
        raise typer.BadParameter("--body corrects one dead letter: name its id alone.")
    new = None if body is None else NewBody(read_whole(body), getpass.getuser())

    async def act(namespace: Namespace, letter: DeadLetter) -> bool:
        return await Redriver(call.settings, namespace).redrive(letter, new)

    verb_ = DeadVerb("redrive", "redriven", act, deletes=False)
    meant = _meant(ids, partition, (reason, task_type, group, tenant, since), everything=everything)
    return act_on(call, verb_, meant, Choice(tenant, partition), dry_run=dry_run, yes=yes)


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
    from groupflow.operate.tasks import Choice

    async def act(namespace: Namespace, letter: DeadLetter) -> bool:
        return await DeadLetters(namespace).drop(letter)

    verb_ = DeadVerb("drop", "dropped", act, deletes=True)
    meant = _meant(ids, partition, (reason, task_type, group, tenant, since), everything=everything)
    return act_on(call, verb_, meant, Choice(tenant, partition), dry_run=dry_run, yes=yes)


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
