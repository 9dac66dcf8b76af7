"""redrive: a dead letter becomes a task again; one that was never routed is routed first.

Its body lies in Redis, or in RabbitMQ's stream.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from groupflow.broker.archive import Archive
from groupflow.core.errors import BrokerUnavailable, LetterArchived, ServerUnreachable, StoreFull
from groupflow.core.routing import Route
from groupflow.operate.archiving import WholeLetter, beside_of
from groupflow.operate.corrections import NewBody, note_of, route_corrected
from groupflow.operate.dead import DeadLetter, DeadLetters
from groupflow.operate.moving import move_letter
from groupflow.operate.namespace import Namespace
from groupflow.settings.model import Settings
from groupflow.settings.transport import address_of
from groupflow.store.enqueue import bound_of_delays
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


async def whole_letter(settings: Settings, namespace: Namespace, letter: DeadLetter) -> WholeLetter:
    """A dead letter, its headers, body and errors from RabbitMQ if they lie there.

    Raises:
        KeyError: there is no such dead letter (any more).
        BodyMissing: its body is not where it was put.
        ArchiveRefused: RabbitMQ doesn't let us read it.
        ServerUnreachable: its body lies in RabbitMQ, which doesn't answer.
    """
    envelope, place = await DeadLetters(namespace).envelope(letter.id, letter.partition)
    if place is None:
        return WholeLetter(envelope)
    try:
        packed = await archive_of(settings).read(place)
    except BrokerUnavailable as error:
        cause = f"the body of {letter.id} lies there ({error.__cause__ or error})"
        address = address_of(settings.rabbitmq_url())
        raise ServerUnreachable("RabbitMQ", address, cause) from error
    try:
        envelope = Envelope.unpack(packed)
    except ValueError:  # not ours, but its letter knows what it was
        envelope = replace(envelope, body=packed)
    return WholeLetter(envelope, place, len(packed), beside_of(packed))


class Redriver:
    """Redrives by the rules of the loaded configuration."""

    def __init__(self, settings: Settings, namespace: Namespace) -> None:
        """Takes the loaded configuration, and the namespace whose letters it redrives."""
        self._settings = settings
        self._router = settings.router()
        self._max_queued = settings.max_queued()
        self._namespace = namespace
        self._letters = DeadLetters(namespace)

    async def redrive(self, letter: DeadLetter, new: NewBody | None = None) -> bool:
        """Put a dead letter back at its original place in its group, with another body if given.

        Returns:
            Whether it was still there.

        Raises:
            Unroutable: it never had a route, and has none now either; it stays as it is.
            BodyUnfit: that body can't take its place; it stays as it is.
            BodyMissing: its body is gone from where it was put.
            ServerUnreachable: its body lies in RabbitMQ, which doesn't answer.
            GroupFull: as many tasks wait in its group as its rule lets; it stays as it is.
            NoRoomForDelay: tasks that wait for delays are at their bound; it stays as it is.
            StoreFull: Redis has no memory for its body, or not within `redis.max_memory`.
        """
        try:
            if letter.died_at_the_door:
                return await self._route_first(letter, new)
            return await self._put_back(letter, new)
        except KeyError:  # another process took it a moment ago
            return False
        except LetterArchived:  # a moment ago: now its body is read from there
            return await self.redrive(letter, new)

    async def _put_back(self, letter: DeadLetter, new: NewBody | None) -> bool:
        delayed_memory = await self._delayed_memory(letter.partition)
        if new is None:
            with suppress(LetterArchived):
                return await self._letters.redrive(
                    letter, delayed_memory=delayed_memory, max_queued=self._max_queued
                )
        whole = await whole_letter(self._settings, self._namespace, letter)
        envelope, note = whole.envelope, b""
        if new is not None:
            self._route(envelope, new, was_routed=True)
            note = note_of(envelope.body, new.by)
            envelope = replace(envelope, body=new.body)
        await self._check_room(whole, letter.partition)
        return await self._letters.redrive(
            letter,
            envelope,
            place=whole.place,
            beside=whole.beside,
            delayed_memory=delayed_memory,
            note=note,
            max_queued=self._max_queued,
        )

    def _route(self, old: Envelope, new: NewBody | None, *, was_routed: bool) -> Route:
        if new is None:
            return self._router.route(old.body, old.headers, type=old.type or None)
        most = self._settings.rabbitmq.max_body
        return route_corrected(self._router, old, new.body, most=most, was_routed=was_routed)

    async def _delayed_memory(self, partition: int) -> int:
        """Bytes that may wait for delays, as intake has it: `Backpressure.delayed_memory`."""
        redis, memory = self._settings.redis, await self._letters.memory(partition)
        bound = redis.delayed_memory // redis.partitions
        return bound_of_delays(bound, redis.max_memory, memory.limit)

    async def _check_room(self, whole: WholeLetter, partition: int) -> None:
        """Refuse a body from RabbitMQ that would make intake stand.

        Raises:
            StoreFull: it would.
        """
        memory = await self._letters.memory(partition)
        limits = {"redis.max_memory": self._settings.redis.max_memory, "maxmemory": memory.limit}
        for name, limit in limits.items():
            if whole.place is not None and limit and memory.used + whole.size > limit:
                raise StoreFull(
                    f"its {whole.size} bytes come back from RabbitMQ, and Redis uses {memory.used} "
                    f"of the {limit} that {name} lets it: wait, or raise that"
                )

    async def _route_first(self, letter: DeadLetter, new: NewBody | None) -> bool:
        whole = await whole_letter(self._settings, self._namespace, letter)
        old = whole.envelope
        route = self._route(old, new, was_routed=False)
        body = old.body if new is None else new.body
        facts = (route.type, route.group, route.tenant, route.rule)
        envelope = Envelope(*facts, old.headers, body, route.scope, route.pool)
        await self._check_room(whole, letter.partition)
        here, clients = letter.partition, self._namespace.clients
        there = here if route.group is None else self._namespace.place_of(route.group)
        if there != here:
            id_ = await move_letter(clients[here], clients[there], letter.id)
            if id_ is None:
                return False
            letter = replace(letter, id=id_, partition=there)
        return await self._letters.redrive(
            letter,
            envelope,
            route.priority,
            place=whole.place,
            beside=whole.beside,
            max_queued=self._max_queued,
            is_moved=there != here,
            note=b"" if new is None else note_of(old.body, new.by),
        )
