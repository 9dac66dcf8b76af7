"""redrive: a dead letter becomes a task again; one that was never routed is routed first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from groupflow.core.errors import LetterArchived, StoreFull
from groupflow.operate.archiving import Whole
from groupflow.operate.bodies import whole_letter
from groupflow.operate.dead import DeadLetter, DeadLetters
from groupflow.settings.model import Settings
from groupflow.store.enqueue import bound_of_delays
from groupflow.store.envelope import Envelope

Forward: TypeAlias = Callable[[DeadLetter, str], Awaitable[tuple[DeadLetters, DeadLetter] | None]]
"""Takes a letter to the store of a group: the letters there, and which one it is; ``None`` if
another process took it meanwhile."""


class Redriver:
    """Redrives by the rules of the loaded configuration."""

    def __init__(
        self, settings: Settings, letters: DeadLetters, forward: Forward | None = None
    ) -> None:
        """Redrives letters of one store.

        Args:
            settings: the loaded configuration.
            letters: of that store.
            forward: takes a letter that was routed again to the store of its group.
        """
        self._settings = settings
        self._router = settings.router()
        self._letters = letters
        self._forward = forward

    async def redrive(self, letter: DeadLetter) -> bool:
        """Put a dead letter back at its original place in its group.

        Returns:
            Whether it was still there.

        Raises:
            Unroutable: it never had a route, and has none now either; it stays as it is.
            KeyError: it left while it was routed.
            BodyMissing: its body is gone from where it was put.
            ServerUnreachable: its body lies in RabbitMQ, which doesn't answer.
            NoRoomForDelay: tasks that wait for delays are at their bound; it stays as it is.
            StoreFull: Redis has no memory for its body, or not within `redis.max_memory`.
        """
        if letter.died_at_the_door:
            return await self._route_first(letter)
        delayed_memory = await self._delayed_memory()
        try:
            return await self._letters.redrive(letter, delayed_memory=delayed_memory)
        except LetterArchived:
            whole = await whole_letter(self._settings, self._letters, letter.id)
        await self._check_room(whole)
        return await self._letters.redrive(
            letter,
            whole.envelope,
            place=whole.place,
            beside=whole.beside,
            delayed_memory=delayed_memory,
        )

    async def _delayed_memory(self) -> int:
        """Bytes that may wait for delays, as intake has it: `Backpressure.delayed_memory`."""
        redis, memory = self._settings.redis, await self._letters.memory()
        bound = redis.delayed_memory // redis.partitions
        return bound_of_delays(bound, redis.max_memory, memory.limit)

    async def _check_room(self, whole: Whole) -> None:
        """Refuse a body from RabbitMQ that would make intake stand.

        Raises:
            StoreFull: it would.
        """
        memory = await self._letters.memory()
        limits = {"redis.max_memory": self._settings.redis.max_memory, "maxmemory": memory.limit}
        for name, limit in limits.items():
            if whole.place is not None and limit and memory.used + whole.size > limit:
                raise StoreFull(
                    f"its {whole.size} bytes come back from RabbitMQ, and Redis uses {memory.used} "
                    f"of the {limit} that {name} lets it: wait, or raise that"
                )

    async def _route_first(self, letter: DeadLetter) -> bool:
        whole = await whole_letter(self._settings, self._letters, letter.id)
        old = whole.envelope
        route = self._router.route(old.body, old.headers, type=old.type or None)
        envelope = Envelope(
            route.type,
            route.group,
            route.tenant,
            route.rule,
            old.headers,
            old.body,
            route.scope,
            route.pool,
        )
        await self._check_room(whole)
        letters = self._letters
        if self._forward is not None and route.group is not None:
            found = await self._forward(letter, route.group)
            if found is None:
                return False
            letters, letter = found
        return await letters.redrive(
            letter, envelope, route.priority, place=whole.place, beside=whole.beside
        )
