"""`groupflow publish`: messages from a file or stdin, checked, in order, confirmed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated
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
from groupflow.cli.options import option, say
from groupflow.cli.verb import Answer, Call, verb
from groupflow.core.errors import GroupflowError, Unroutable, reaching

if TYPE_CHECKING:
    from groupflow.broker.publisher import Message, Outgoing
    from groupflow.settings.model import Settings

verbs = typer.Typer()

REFUSALS_SHOWN = 20


@dataclass(slots=True)
class _Batch:
    """What a file has in it, checked."""

    first_id: str  # of one message its id; of several what their ids begin with
    outgoing: list[Outgoing] = field(default_factory=list)
    refused: list[dict[str, str]] = field(default_factory=list)  # where in the file, and why
    confirmed: int = 0
    has_begun: bool = False  # whether some may have been sent


@verb(verbs, "publish")
def publish(
    call: Call,
    file: BodiesArgument = STDIN,
    *,
    task_type: Annotated[
        str | None, option("--type T", "The task type; else the body has to name it.")
    ] = None,
    id_: Annotated[
        str | None,
        option(
            "--id ID",
            "The task's id; of several messages ID-1, ID-2 and so on. Published again under "
            "the same ids, they count once. Without it: fresh ones.",
        ),
    ] = None,
    header: HeaderOption = None,
    priority: Annotated[
        float | None, option("--priority S", "Seconds by which they count as older.")
    ] = None,
    delay: Annotated[
        float | None, option("--delay S", "Seconds before which they may not run.")
    ] = None,
    expires: Annotated[
        float | None, option("--expires S", "Seconds within which they have to start.")
    ] = None,
    partial: Annotated[
        bool, option("--partial", "Publish the others where some would be dead letters.")
    ] = False,
) -> Answer:
    """Publish messages in order and wait until RabbitMQ has confirmed each.

    They are checked first, by the rules of this configuration: where one would be a dead letter
    from the start, stderr says which line it is and why, and none is published (exit 1).

    For example:

      groupflow publish --type import.contacts contacts.jsonl

      groupflow publish --type import.contacts --id contacts-2026-11-22 contacts.jsonl

      echo '{"app_name": "crm", "tenant_id": 42}' | groupflow publish --type import.contacts
    """
    from groupflow.broker.publisher import Message
    from groupflow.settings.transport import address_of

    settings, headers, bodies = call.settings, parse_headers(header), read_bodies(file)
    like = Message(b"", task_type, headers=headers, priority=priority, delay=delay, expires=expires)
    batch = _check(settings, bodies, id_ or uuid4().hex, like)
    if batch.refused and not partial:
        batch.outgoing.clear()
    if batch.outgoing:
        with reaching("RabbitMQ", address_of(settings.rabbitmq.url.get_secret_value())):
            _send(settings, batch)
    return _answer(settings.rabbitmq.queue, batch, len(bodies), partial=partial)


def _check(settings: Settings, bodies: Sequence[FileBody], id_: str, like: Message) -> _Batch:
    """Tell the messages that can become tasks from those that can't."""
    from groupflow.broker.consumer import Delivery
    from groupflow.flow.admission import Admission

    admission = Admission.of(settings)
    batch = _Batch(id_)
    for number, body in enumerate(bodies, start=1):
        own = id_ if len(bodies) == 1 else f"{id_}-{number}"
        try:
            message = replace(like, body=body.raw, id=own).checked(settings.rabbitmq.max_headers)
            seen = Delivery(0, message.body, own, message.type, message.headers, None)
            reason = admission.admit(seen).dead
        except Unroutable as refusal:
            reason = refusal.reason
        if reason:
            batch.refused.append({"where": body.where, "reason": reason})
        else:
            batch.outgoing.append(message)
    return batch


def _send(settings: Settings, batch: _Batch) -> None:
    """Publish what is fit to go; where that ends half-way, say how to go on."""
    try:
        asyncio.run(_publish(settings, batch))
    except (GroupflowError, KeyboardInterrupt):
        if batch.has_begun:
            say(
                f"{batch.confirmed} of {len(batch.outgoing)} confirmed, some of the rest may be "
                f"there too: give the same again with --id {batch.first_id}, and each counts once",
                err=True,
            )
        raise


async def _publish(settings: Settings, batch: _Batch) -> None:
    from groupflow.broker.publisher import publishing
    from groupflow.ops.tracing import open_tracing

    tracing, rabbitmq = open_tracing(settings), settings.rabbitmq
    is_piped, total = not sys.stderr.isatty(), len(batch.outgoing)
    with typer.progressbar(
        length=total, label="publishing", file=sys.stderr, hidden=is_piped
    ) as bar:

        def on_confirm() -> None:
            batch.confirmed += 1
            bar.update(1)

        async with publishing(
            settings.rabbitmq_url(),
            rabbitmq.queue,
            partitions=rabbitmq.partitions,
            router=settings.router(),
            tracing=tracing,
        ) as publisher:
            batch.has_begun = True
            await publisher.publish_all(batch.outgoing, on_confirm)


def _answer(queue: str, batch: _Batch, total: int, *, partial: bool) -> Answer:
    """What was published, and what was not and why."""
    ids, refused = [each.message_id for each in batch.outgoing], batch.refused
    told = {"published": batch.confirmed, "queue": queue, "ids": ids, "refused": refused}
    under = f"as {' to '.join([ids[0], *ids[1:][-1:]])}" if ids else ""
    lines = [f"published {batch.confirmed} to {queue}, all confirmed, {under}"] if ids else []
    if not total:
        lines = ["published nothing: the list is empty"]
    if not refused:
        return Answer(told, lines)
    errors = [f"{each['where']}: {each['reason']}" for each in refused[:REFUSALS_SHOWN]]
    if len(refused) > REFUSALS_SHOWN:
        errors.append(f"and {len(refused) - REFUSALS_SHOWN} more")
    rest = "the others are" if partial and ids else "nothing is"
    more = "" if partial or len(refused) == total else "; --partial publishes the others"
    errors.append(f"{len(refused)} of {total} would be dead letters: {rest} published{more}")
    return Answer(told, lines, errors, Exit.FAILED)
