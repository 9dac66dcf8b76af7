"""bodies: the whole of a dead letter, with its body from Redis or from RabbitMQ."""

from __future__ import annotations

from dataclasses import replace

from groupflow.broker.archive import Archive
from groupflow.broker.connection import address_of
from groupflow.core.errors import BrokerUnavailable, ServerUnreachable
from groupflow.operate.archiving import Whole, beside_of
from groupflow.operate.dead import DeadLetters
from groupflow.settings.model import Settings
from groupflow.store.envelope import Envelope


def archive_of(settings: Settings, name: str = "groupflow archive") -> Archive:
    """The stream of the configured queue; it doesn't connect yet. `name` is for RabbitMQ's page.

    Raises:
        ConfigError: the way to RabbitMQ isn't safe.
    """
    return Archive(
        settings.rabbitmq_url(),
        settings.rabbitmq.queue,
        retention=settings.history.dead_retention,
        trusts_policy=settings.history.dead_policy,
        name=name,
    )


async def whole_letter(settings: Settings, letters: DeadLetters, id_: str) -> Whole:
    """A dead letter, its headers, body and errors from RabbitMQ if they lie there.

    Raises:
        KeyError: there is no such dead letter (any more).
        BodyMissing: its body is not where it was put.
        ArchiveRefused: RabbitMQ doesn't let us read it.
        ServerUnreachable: its body lies in RabbitMQ, which doesn't answer.
    """
    envelope, place = await letters.envelope(id_)
    if place is None:
        return Whole(envelope)
    try:
        packed = await archive_of(settings).read(place)
    except BrokerUnavailable as error:
        cause = f"the body of {id_} lies there ({error.__cause__ or error})"
        address = address_of(settings.rabbitmq_url())
        raise ServerUnreachable("RabbitMQ", address, cause) from error
    try:
        envelope = Envelope.unpack(packed)
    except ValueError:  # not ours, but its letter knows what it was
        envelope = replace(envelope, body=packed)
    return Whole(envelope, place, len(packed), beside_of(packed))
