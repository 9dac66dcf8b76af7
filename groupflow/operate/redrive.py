"""redrive: a dead letter becomes a task again; one that was never routed is routed first.

Its body lies in Redis, or in RabbitMQ's stream; or an operator gives a corrected one, and what is
kept of the old one stays with the task.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256

import orjson

from groupflow.broker.archive import Archive
from groupflow.core.errors import (
    BodyUnfit,
    BrokerUnavailable,
    LetterArchived,
    ServerUnreachable,
    StoreFull,
    Unroutable,
)
from groupflow.core.routing import Route, Router
from groupflow.operate.archiving import WholeLetter, beside_of
from groupflow.operate.dead import DeadLetter, DeadLetters, beginning_of
from groupflow.operate.moving import move_letter, replica_wait_of
from groupflow.operate.namespace import Namespace
from groupflow.settings.model import Settings
from groupflow.settings.transport import address_of
from groupflow.store.enqueue import UNBOUNDED, bound_of_delays
from groupflow.store.envelope import Envelope

KEPT = 64 * 1024  # bytes of an old body


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


@dataclass(frozen=True, slots=True)
class NewBody:
    """A body in the place of a dead letter's, and who says so."""

    body: bytes
    by: str


def note_of(old: bytes, by: str) -> bytes:
    """What is kept of an old body, as JSON."""
    facts = {"by": by, "bytes": len(old), "sha256": sha256(old).hexdigest()}
    return orjson.dumps({**facts, **beginning_of(old, KEPT), "is_cut": len(old) > KEPT})


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
            TooFewReplicas: it goes to its group's partition, and too few replicas have it there.
        """
        try:
            if letter.died_at_the_door:  # its delay is over
                return await self._with_body(letter, new, UNBOUNDED)
            delayed_memory = await self._delayed_memory(letter.partition)
            if new is None:
                with suppress(LetterArchived):
                    return await self._letters.redrive(
                        letter, delayed_memory=delayed_memory, max_queued=self._max_queued
                    )
            return await self._with_body(letter, new, delayed_memory)
        except KeyError:  # another process took it a moment ago
            return False
        except LetterArchived:  # a moment ago: now its body is read from there
            return await self.redrive(letter, new)

    async def _with_body(
        self, letter: DeadLetter, new: NewBody | None, delayed_memory: int
    ) -> bool:
        """Redrive it by its whole envelope, which is routed first where it never had a route."""
        whole = await whole_letter(self._settings, self._namespace, letter)
        envelope = old = whole.envelope
        note, priority = b"", None
        if letter.died_at_the_door:
            route = self._route(old, new, was_routed=False)
            origin = dict(old.origin or {})  # whom to answer; it had no application
            if route.app and (origin or self._settings.events.told):
                origin["app"] = route.app
            envelope = Envelope.of(route, old.headers, old.body, origin or None)
            priority = route.priority
        elif new is not None:
            self._route(old, new, was_routed=True)  # it goes where it went, or is refused
        if new is not None:
            envelope, note = replace(envelope, body=new.body), note_of(old.body, new.by)
        await self._check_room(whole, letter.partition)
        is_routed_first = letter.died_at_the_door
        there = await self._moved(letter, envelope.group) if is_routed_first else letter
        return there is not None and await self._letters.redrive(
            there,
            envelope,
            priority,
            place=whole.place,
            beside=whole.beside,
            delayed_memory=delayed_memory,
            max_queued=self._max_queued,
            is_moved=there is not letter,
            note=note,
        )

    def _route(self, old: Envelope, new: NewBody | None, *, was_routed: bool) -> Route:
        if new is None:
            return self._router.route(old.body, old.headers, type=old.type or None)
        most = self._settings.rabbitmq.max_body
        return route_corrected(self._router, old, new.body, most=most, was_routed=was_routed)

    async def _moved(self, letter: DeadLetter, group: str | None) -> DeadLetter | None:
        """The letter in its group's partition; None if another process took it meanwhile."""
        here, clients = letter.partition, self._namespace.clients
        there = here if group is None else self._namespace.place_of(group)
        if there == here:
            return letter
        replica_wait = replica_wait_of(self._settings.redis)
        id_ = await move_letter(clients[here], clients[there], letter.id, replica_wait)
        return None if id_ is None else replace(letter, id=id_, partition=there)

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


def route_corrected(
    router: Router, old: Envelope, body: bytes, *, most: int, was_routed: bool
) -> Route:
    """Check that a body can take a dead letter's place, and route it.

    Args:
        router: of the loaded configuration.
        old: the letter's envelope.
        body: the corrected body.
        most: bytes of the largest.
        was_routed: whether the letter ever had a group or was plain; else it gets its first route.

    Raises:
        BodyUnfit: it is too large, can't be routed, or goes elsewhere than the old one went.
    """
    if len(body) > most:
        raise BodyUnfit(
            f"the corrected body has {len(body)} bytes, over rabbitmq.max_body = {most}: "
            "shorten it, or raise that"
        )
    try:
        route = router.route(body, old.headers, type=old.type or None)
    except Unroutable as refusal:
        raise BodyUnfit(f"the corrected body can't be routed: {refusal}") from None
    same = [("tenant", old.tenant, route.tenant)]
    if was_routed:
        same.append(("group", old.group, route.group))
        if old.scope != route.scope:
            was = router.application_of(old.body, old.headers)
            same.append(("application", was, route.app))
    elif old.tenant is None:
        same.clear()
    for name, was, would_be in same:
        if was != would_be:
            raise BodyUnfit(
                f"with the corrected body its {name} would be {_named(would_be)}, and was "
                f"{_named(was)}: correct that too, or publish the body as a new message and drop "
                "this letter"
            )
    return route


def _named(value: str | None) -> str:
    return "none" if value is None else repr(value)
