"""redrive: a dead letter becomes a task again; one that was never routed is routed first."""

from __future__ import annotations

from groupflow.core.errors import LetterArchived
from groupflow.flow.bodies import whole_letter
from groupflow.flow.pressure import DELAYED_SHARE
from groupflow.settings.model import Settings
from groupflow.store.dead import DeadLetter, DeadLetters
from groupflow.store.enqueue import UNBOUNDED
from groupflow.store.envelope import Envelope


class Redriver:
    """Redrives by the rules of the loaded configuration."""

    def __init__(self, settings: Settings, letters: DeadLetters) -> None:
        self._settings = settings
        self._router = settings.router()
        self._letters = letters
        limit = settings.redis.max_memory
        share = int(limit * DELAYED_SHARE) if limit else UNBOUNDED
        self._delayed_memory = min(settings.redis.delayed_memory, share)

    async def redrive(self, letter: DeadLetter) -> bool:
        """Put a dead letter back at its original place in its group.

        Returns:
            Whether it was still there.

        Raises:
            Unroutable: it never had a route, and has none now either; it stays as it is.
            KeyError: it went while it was routed.
            BodyMissing: its body is gone from where it was put.
            ServerUnreachable: its body lies in RabbitMQ, which doesn't answer.
            NoRoomForDelay: what waits for delays is at its bound; it stays as it is.
            StoreFull: Redis has no memory for its body.
        """
        if letter.died_at_the_door:
            return await self._route_first(letter)
        try:
            return await self._letters.redrive(letter, delayed_memory=self._delayed_memory)
        except LetterArchived:
            whole = await whole_letter(self._settings, self._letters, letter.id)
            return await self._letters.redrive(letter, whole, delayed_memory=self._delayed_memory)

    async def _route_first(self, letter: DeadLetter) -> bool:
        old = await whole_letter(self._settings, self._letters, letter.id)
        route = self._router.route(old.body, old.headers, type=old.type or None)
        envelope = Envelope(
            route.type, route.group, route.tenant, route.rule, old.headers, old.body, route.scope
        )
        return await self._letters.redrive(letter, envelope, route.priority)
