"""relay: tells RabbitMQ of tasks that have ended, and publishes their follow-up tasks.

What a settle wrote to the outbox stays there until RabbitMQ has confirmed it: whenever this process
dies, another one tells it, maybe again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import structlog

from groupflow.broker.events import EventPublisher, EventsRefused, NotTaken, Published
from groupflow.core.backoff import Backoff
from groupflow.core.errors import GroupflowError, StoreUnavailable
from groupflow.core.events import Following, Told
from groupflow.core.measures import UpkeepMeasures
from groupflow.store.client import StoreClient
from groupflow.store.outbox import Outbox, look
from groupflow.store.sessions import Session
from groupflow.store.wire import ReplicaWait
from groupflow.upkeep.duty import Duty

PAUSE = 1.0  # seconds between two looks; a wake says that there is something
REFUSED_PAUSE = 30.0  # seconds until RabbitMQ may have an exchange for us

log = structlog.get_logger("groupflow.relay")


class Relay(Duty):
    """Tells what lies in one partition's outbox. Any daemon may; the store lets one at a time."""

    bears = Exception  # an odd entry ends no daemon

    def __init__(  # noqa: PLR0917  both sides, and what binds them
        self,
        client: StoreClient,
        session: Session,
        events: EventPublisher,
        names: frozenset[str],
        follow: Callable[[Sequence[tuple[str, Following]], dict[str, bool]], Awaitable[None]],
        measures: UpkeepMeasures,
        replica_wait: ReplicaWait | None = None,
    ) -> None:
        """Binds both sides.

        Args:
            client: of the partition.
            session: the daemon's there.
            events: over a connection to RabbitMQ that partitions may share.
            names: the ends that the exchange is told of.
            follow: makes tasks of follow-up tasks, in order; notes the ids of those that are made,
                also before an error, and whether each is new.
            measures: where it counts.
            replica_wait: the replicas that have to have what it tells.
        """
        super().__init__("relay", self._pass, PAUSE)
        self._client, self._session, self._events = client, session, events
        self._names, self._follow, self._measures = names, follow, measures
        self._replica_wait = replica_wait
        self._confirmed = 0  # the number up to which all is
        # The number up to which follow-up tasks are made, the connection to the server that has
        # them, and its epoch: Redis keeps that number, but another server may lack the tasks.
        self._followed, self._wire, self._epoch = 0, object(), session.epoch
        self._made = set[str]()  # ids of those made behind it, of the last look's
        self._over = set[int]()  # numbers that are, of the last look's, maybe behind one that isn't
        self._is_ours = True  # by the last look
        self._backoff = Backoff()
        self._trouble = ""

    def wake(self) -> None:
        """There is something in the outbox."""
        if self._is_ours:
            super().wake()

    def failed(self, error: Exception) -> float:
        """Log an error once, until another one comes or a pass succeeds."""
        event = "relay.refused" if isinstance(error, EventsRefused) else "relay.failed"
        facts = {} if isinstance(error, GroupflowError) else {"kind": type(error).__name__}
        if event != self._trouble and not isinstance(error, StoreUnavailable):
            self._trouble = event
            log.warning(event, error=str(error), **facts)
        return REFUSED_PAUSE if isinstance(error, EventsRefused) else self._backoff.next()

    async def _pass(self) -> float:
        """Tell some of it, and more at once where there may be more."""
        outbox = await self._look()
        self._is_ours = outbox.is_ours
        if not outbox.entries:
            return PAUSE
        try:
            await self._tell(outbox.entries)
        except NotTaken:
            raise
        except GroupflowError:
            # Another daemon may reach RabbitMQ. Without Redis the turn ends by itself.
            with suppress(GroupflowError):
                await self._look(lets_others=True)
            raise
        self._backoff.reset()
        self._trouble = ""
        return 0.0

    async def _look(self, *, lets_others: bool = False) -> Outbox:
        """Look at it, and say how far this daemon has come."""
        epoch = self._session.epoch
        outbox = await look(
            self._client,
            self._session,
            self._confirmed,
            None if lets_others else self._replica_wait,
            followed=self._followed if epoch.id and epoch is self._epoch else 0,
            lets_others=lets_others,
        )
        if outbox.wire is not self._wire:  # another server may lead
            self._followed, self._wire = 0, outbox.wire
            self._over.clear()
            self._made.clear()
        self._followed, self._epoch = max(self._followed, outbox.followed), epoch
        return outbox

    async def _tell(self, entries: Sequence[bytes]) -> None:
        told = [_read(entry) for entry in entries]
        ready, error = await self._make(told)
        await self._publish(told[:ready])
        if error is not None:
            raise error

    async def _make(self, told: Sequence[Told]) -> tuple[int, GroupflowError | None]:
        """Make follow-up tasks: of how many of the first entries all are made, and what failed.

        One that can't be made, as a partition is away, holds up the entries from its own on.
        """
        made, error = dict[str, bool](), None
        left = [
            each
            for one in told
            if one.number > self._followed
            for each in one.following
            if each[0] not in self._made
        ]
        try:
            if left:
                await self._follow(left, made)
        except GroupflowError as met:
            error = met
        finally:
            self._made |= made.keys()
            self._measures.followed += sum(made.values())
        for place, one in enumerate(told):
            ids = {id_ for id_, _ in one.following if one.number > self._followed}
            if not ids <= self._made:
                self._made &= {id_ for behind in told[place:] for id_, _ in behind.following}
                return place, error
            self._made -= ids
            self._followed = max(self._followed, one.number)
        return len(told), error

    async def _publish(self, told: Sequence[Told]) -> None:
        published = Published({n for n, one in enumerate(told) if one.number in self._over})
        try:
            await self._events.publish(told, self._names, published)
        finally:
            self._over = {told[n].number for n in published.done}
            if published.first:
                self._confirmed = told[published.first - 1].number
            self._measures.told += published.events
            self._measures.untold += published.unrouted
            self._measures.replied += published.replies
            if published.unanswered:
                remedy = "let the user publish to the default exchange (amq.default)"
                log.error("reply.refused", error=published.unanswered, remedy=remedy)


def _read(entry: bytes) -> Told:
    """An entry; one that isn't ours tells nothing, and goes."""
    with suppress(ValueError):
        return Told.of(entry)
    log.error("relay.odd_entry", begins=entry[:80].decode(errors="replace"))
    number = int(entry[:16]) if entry[:16].isdigit() else 0
    return Told(number, {"id": ""})
