"""archive: moves dead letters' bodies beyond a bound from Redis to RabbitMQ, the oldest first.

The daemon writes a body to the stream, reads it back, and only then removes it from Redis: whenever
this process dies, the body is still in Redis, or readable where the letter says. While intake
stands for want of memory the bound is 0: so dead letters of one sender stop no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from groupflow.broker.archive import Archive
from groupflow.core.errors import ArchiveRefused, BodyRefused, GroupflowError, StoreUnavailable
from groupflow.core.measures import UpkeepMeasures
from groupflow.crashpoints import crash_point
from groupflow.operate.archiving import LetterBody, archive, oldest_bodies, stay
from groupflow.store.client import StoreClient
from groupflow.store.sessions import Session
from groupflow.upkeep.duty import Duty

log = structlog.get_logger("groupflow.archive")

AT_ONCE = 200  # letters, and
BYTES_AT_ONCE = 8 * 1024 * 1024  # bytes a pass, or one larger letter: bounds the memory here
PAUSE = 1.0  # seconds between two looks at what dead letters hold
REFUSED_PAUSE = 60.0  # seconds until RabbitMQ may have a stream for us

_REMEDY = "history.dead_memory can't be kept: see groupflow doctor"


class Archiver(Duty):
    """Archives bodies of dead letters. Any daemon may; the store lets one at a time."""

    bears = Exception  # an odd letter ends no daemon

    def __init__(  # noqa: PLR0917  both sides, and what binds them
        self,
        client: StoreClient,
        session: Session,
        stream: Archive,
        bound: int,
        is_pressed: Callable[[], bool],
        measures: UpkeepMeasures | None = None,
    ) -> None:
        """Binds both sides; dead letters may hold `bound` bytes in Redis, when pressed none."""
        super().__init__("archive", self._pass, PAUSE)
        self._client = client
        self._session = session
        self._stream = stream
        self._bound = bound
        self._is_pressed = is_pressed
        self._measures = measures or UpkeepMeasures()
        self._trouble = ""

    def failed(self, error: Exception) -> float:
        """Log an error once, until another one comes or a pass succeeds."""
        event, facts = "archive.failed", {}
        if isinstance(error, ArchiveRefused):
            event, facts = "archive.refused", {"remedy": _REMEDY}
        elif not isinstance(error, GroupflowError):
            facts = {"kind": type(error).__name__}
        if event != self._trouble and not isinstance(error, StoreUnavailable):
            self._trouble = event
            log.warning(event, error=str(error), **facts)
        is_lasting = isinstance(error, ArchiveRefused) or not isinstance(error, GroupflowError)
        return REFUSED_PAUSE if is_lasting else PAUSE

    async def _pass(self) -> float:
        """Make one pass, and another at once where there may be more."""
        if not await self.archive():
            return PAUSE
        self._trouble = ""
        return 0.0

    async def archive(self) -> int:
        """Make one pass.

        Returns:
            How many bodies over the bound it took on.

        Raises:
            StoreUnavailable: no answer from Redis.
            ArchiveRefused: RabbitMQ has no stream for us.
            BrokerUnavailable: no answer from RabbitMQ.
        """
        bound = 0 if self._is_pressed() else self._bound
        bodies = await self._oldest(bound, most=AT_ONCE)
        if not bodies:
            return 0
        crash_point("before_archive")
        try:
            archived = await self._move(bodies)
        except GroupflowError:
            # Give up the turn: another daemon may reach RabbitMQ. Without Redis it ends by itself.
            with suppress(GroupflowError):
                await self._oldest(bound, most=0)
            raise
        self._measures.archived += archived
        size = sum(len(body.packed) for body in bodies)
        log.info("dead.archived", letters=archived, bytes=size)
        return len(bodies)

    async def _oldest(self, bound: int, *, most: int) -> list[LetterBody]:
        return await oldest_bodies(
            self._client, self._session, bound, most=most, most_bytes=BYTES_AT_ONCE
        )

    async def _move(self, bodies: Sequence[LetterBody]) -> int:
        """Move bodies to the stream; those that RabbitMQ refuses are found by halving."""
        try:
            places = await self._stream.write([body.packed for body in bodies])
        except BodyRefused as error:
            if len(bodies) == 1:
                await self._leave(bodies[0], error)
                return 0
            middle = len(bodies) // 2
            return await self._move(bodies[:middle]) + await self._move(bodies[middle:])
        crash_point("after_archive")
        return await archive(self._client, bodies, places)

    async def _leave(self, body: LetterBody, error: BodyRefused) -> None:
        """Let a body stay in Redis for good, as RabbitMQ takes others and not this one."""
        await self._stream.write([b""])  # raises where RabbitMQ takes none at all
        if await stay(self._client, body):
            size = len(body.packed)
            log.warning("archive.body_stays", task=body.id, bytes=size, error=str(error))
