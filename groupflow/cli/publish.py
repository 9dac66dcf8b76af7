"""`groupflow publish`: messages from a file or stdin, checked, in order, confirmed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from groupflow.cli.bodies import (
    STDIN,
    BodiesArgument,
    FileBody,
    HeaderOption,
    parse_headers,
    read_bodies,
)
from groupflow.cli.exits import Exit
from groupflow.cli.options import ConfigOption, JsonOption, print_json
from groupflow.cli.safe import say
from groupflow.core.errors import GroupflowError, Unroutable, reaching

if TYPE_CHECKING:
    from groupflow.broker.publisher import Outgoing
    from groupflow.settings.model import Settings

verbs = typer.Typer()

REFUSALS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class _Refused:
    """A message that would be a dead letter from the start."""

    where: str  # in the file
    reason: str


@dataclass(slots=True)
class _Batch:
    """What a file has in it, checked."""

    first_id: str  # of one message its id; of several what their ids begin with
    outgoing: list[Outgoing] = field(default_factory=list)
    refused: list[_Refused] = field(default_factory=list)
    confirmed: int = 0
    has_begun: bool = False  # whether some may have been sent

    @property
    def ids(self) -> list[str]:
        """Of those that are fit to go."""
        return [each.message_id for each in self.outgoing]


@verbs.command("publish")
def publish(
    file: BodiesArgument = STDIN,
    *,
    config: ConfigOption = None,
    task_type: Annotated[
        str | None,
        typer.Option("--type", metavar="T", help="The task type; else the body has to name it."),
    ] = None,
    id_: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="The task's id; of several messages ID-1, ID-2 and so on. Published again under "
            "the same ids, they count once. Without it: fresh ones.",
        ),
    ] = None,
    header: HeaderOption = None,
    priority: Annotated[
        float | None,
        typer.Option("--priority", metavar="S", help="Seconds by which they count as older."),
    ] = None,
    delay: Annotated[
        float | None,
        typer.Option("--delay", metavar="S", help="Seconds before which they may not run."),
    ] = None,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="Publish the others where some would be dead letters."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Publish messages in order and wait until RabbitMQ has confirmed each.

    They are checked first, by the rules of this configuration: where one would be a dead letter
    from the start, stderr says which line it is and why, and none is published (exit 1).

    For example:

      groupflow publish --type import.contacts contacts.jsonl

      groupflow publish --type import.contacts --id contacts-2026-11-22 contacts.jsonl

      echo '{"app_name": "crm", "tenant_id": 42}' | groupflow publish --type import.contacts
    """
    from groupflow.broker.connection import address_of
    from groupflow.settings.load import load_settings

    settings = load_settings(config)
    headers = parse_headers(header)
    bodies = read_bodies(file)
    facts = _Facts(task_type, headers, priority, delay)
    batch = _check(settings, bodies, id_ or uuid4().hex, facts)
    if batch.refused and not partial:
        batch.outgoing.clear()
    if batch.outgoing:
        with reaching("RabbitMQ", address_of(settings.rabbitmq.url.get_secret_value())):
            _send(settings, batch)
    _report(settings, batch, len(bodies), partial=partial, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What all messages of a call have."""

    type: str | None
    headers: Mapping[str, str]
    priority: float | None
    delay: float | None


def _check(settings: Settings, bodies: Sequence[FileBody], id_: str, facts: _Facts) -> _Batch:
    """Tell the messages that can become tasks from those that can't."""
    from groupflow.broker.consumer import Delivery
    from groupflow.broker.messages import Message
    from groupflow.flow.admission import Admission

    admission = Admission.of(settings)
    batch = _Batch(id_)
    for number, body in enumerate(bodies, start=1):
        own = id_ if len(bodies) == 1 else f"{id_}-{number}"
        try:
            message = Message(
                body.raw, facts.type, own, facts.headers, facts.priority, facts.delay
            ).checked(settings.rabbitmq.max_headers)
        except Unroutable as refusal:
            batch.refused.append(_Refused(body.where, refusal.reason))
            continue
        seen = Delivery(0, message.body, own, message.type, message.headers, message.priority)
        reason = admission.admit(seen).dead
        if reason:
            batch.refused.append(_Refused(body.where, reason))
        else:
            batch.outgoing.append(message)
    return batch


def _send(settings: Settings, batch: _Batch) -> None:
    """Publish what is fit to go; where that ends half-way, say how to go on."""
    try:
        asyncio.run(_publish(settings, batch))
    except GroupflowError:
        if batch.has_begun:
            say(
                f"{batch.confirmed} of {len(batch.outgoing)} confirmed, some of the rest may be "
                f"there too: give the same again with --id {batch.first_id}, and each counts once",
                err=True,
            )
        raise


def _report(settings: Settings, batch: _Batch, total: int, *, partial: bool, as_json: bool) -> None:
    """Say what was published, and what was not and why.

    Raises:
        typer.Exit: some were refused.
    """
    ids, queue = batch.ids, settings.rabbitmq.queue
    if as_json:
        refused = [{"where": each.where, "reason": each.reason} for each in batch.refused]
        print_json({"published": batch.confirmed, "queue": queue, "ids": ids, "refused": refused})
    for each in batch.refused[:REFUSALS_SHOWN]:
        say(f"{each.where}: {each.reason}", err=True)
    if len(batch.refused) > REFUSALS_SHOWN:
        say(f"and {len(batch.refused) - REFUSALS_SHOWN} more", err=True)
    if ids and not as_json:
        under = f"as {ids[0]}" if len(ids) == 1 else f"as {ids[0]} to {ids[-1]}"
        say(f"published {batch.confirmed} to {queue}, all confirmed, {under}")
    if batch.refused:
        rest = "the others are" if partial and ids else "nothing is"
        more = "" if partial or len(batch.refused) == total else "; --partial publishes the others"
        say(
            f"{len(batch.refused)} of {total} would be dead letters: {rest} published{more}",
            err=True,
        )
        raise typer.Exit(Exit.FAILED)


async def _publish(settings: Settings, batch: _Batch) -> None:
    from groupflow.broker.publisher import publishing
    from groupflow.ops.tracing import open_tracing

    tracing = open_tracing(settings)
    rabbitmq = settings.rabbitmq
    with _progress(len(batch.outgoing)) as advance:

        def on_confirm() -> None:
            batch.confirmed += 1
            advance()

        async with publishing(
            settings.rabbitmq_url(),
            rabbitmq.queue,
            partitions=rabbitmq.partitions,
            router=settings.router(),
            tracing=tracing,
        ) as publisher:
            batch.has_begun = True
            await publisher.publish_all(batch.outgoing, on_confirm)


def _progress(total: int) -> Any:
    """A context that gives what to call after each confirm; a bar on a terminal."""
    if not sys.stderr.isatty():
        return nullcontext(lambda: None)
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import Progress

    @contextmanager
    def bar() -> Any:
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("publishing", total=total)
            advance: Callable[[], None] = lambda: progress.advance(task)  # noqa: E731
            yield advance

    return bar()
