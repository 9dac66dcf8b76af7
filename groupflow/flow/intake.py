"""intake: RabbitMQ's messages become tasks in Redis, in order, and only then are acked.

An `Intake` takes in what one queue has; a daemon's `Intakes` have one for each of its queues. One
reader takes the delivered messages as a batch, routes each, writes the batch by one script, and
acks it with one frame. Nothing else acks. The daemon never rejects or requeues, which would put a
message at the back of its queue. A batch that can't be written waits, and everything behind it
waits with it, unacked, in RabbitMQ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from time import monotonic

import structlog

from groupflow.broker import topology
from groupflow.broker.connection import Connection, close_quietly, connect
from groupflow.broker.consumer import Consumer, Delivery, consuming
from groupflow.core.backoff import Backoff, Outage
from groupflow.core.errors import (
    BrokerUnavailable,
    ConfigError,
    OtherLayout,
    ServerUnreachable,
    StoreFull,
    StoreUnavailable,
    TooFewReplicas,
)
from groupflow.core.measures import IntakeMeasures
from groupflow.core.tracing import Tracing
from groupflow.crashpoints import crash_point
from groupflow.flow.admission import Admission
from groupflow.flow.backpressure import IntakeState, Kind
from groupflow.flow.counting import FullGroups, count_batch
from groupflow.flow.entrance import Entrance
from groupflow.settings.model import RabbitMQ, Settings
from groupflow.store.enqueue import Arrival, Enqueued, no_room

log = structlog.get_logger("groupflow.intake")

BATCH = 500  # messages a script at most: bounds how long one script may block Redis
WINDOW = 4  # parts of the prefetch: while one is written, RabbitMQ sends the others
BATCH_BYTES = 4 * 1024 * 1024
LARGE_BODY = 256 * 1024  # bytes; a larger one is parsed in a thread
TURN_BYTES = 256 * 1024  # that are routed before the loop may turn
SET_UP = 15.0  # seconds from a connection to its consumer
PAUSE_LOOK = 0.25  # seconds between two looks during a pause


@dataclass(frozen=True, slots=True)
class IntakeQueue:
    """A queue to take in."""

    queue: str
    among: int = 1  # so many queues share what may be in flight
    declare: Callable[[Connection], Awaitable[None]] | None = None
    """Declares the queue where it is missing; ``None``: its intake ends when it is gone."""
    ensure: Callable[[Connection], Awaitable[None]] | None = None
    """Declares what leads to the queue, which may be missing where the queue is not."""

    def held(self, settings: RabbitMQ) -> int:
        """Bytes of its messages that may be in flight."""
        return max(1, settings.max_in_flight // self.among)


class _QueueGone(Exception):
    """The queue is gone, and isn't to be declared again."""


class Intake:
    """Takes the messages of one queue in, term after term."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        admission: Admission,
        entrance: Entrance,
        *,
        source: IntakeQueue,
        measures: IntakeMeasures,
        tracing: Tracing | None,
        state: IntakeState,
        parsing: Executor,
    ) -> None:
        """Binds RabbitMQ's side and the store's.

        Args:
            settings: as loaded.
            name: under which RabbitMQ shows the connection.
            admission: routes messages.
            entrance: writes them, and says when to wait.
            source: the queue.
            measures: where it counts.
            tracing: where spans go.
            state: told when intake takes nothing in.
            parsing: a thread for large bodies, which all intakes share.
        """
        self._source = source
        self.queue = source.queue
        """The queue's name."""
        self._tracing = tracing
        self._measures = measures
        self.state = state
        self._url = settings.rabbitmq_url()
        self._settings = settings.rabbitmq
        self._name = name
        self._prefetch = settings.rabbitmq.prefetch
        self._admission = admission
        self._entrance = entrance
        self._has_consumed = False
        self._consumer: Consumer | None = None
        self._is_stopping = False
        self._hands_over = False
        self._parsing = parsing
        self._full_groups = FullGroups()

    @property
    def consumes(self) -> bool:
        """Whether it has a connection on which messages come."""
        return self._consumer is not None and self._consumer.is_open

    @property
    def is_active(self) -> bool:
        """Whether it is sure that the queue's messages come to this daemon, and to no other."""
        return (
            self._consumer is not None and self._consumer.is_open and self._consumer.has_delivered
        )

    @property
    def bytes_in_flight(self) -> int:
        """Bytes (bodies and headers) of what was delivered and not taken yet."""
        return self._consumer.bytes_waiting if self._consumer is not None else 0

    def adopt(self, admission: Admission) -> None:
        """Route by other rules, from the next batch on."""
        self._admission = admission

    def stop(self) -> None:
        """End after the batch in hand, acked; what was not taken yet stays in RabbitMQ."""
        self._is_stopping = True
        if self._consumer is not None:
            self._consumer.finish()

    def hand_over(self) -> None:
        """End the term after the batch in hand, so that a daemon that stands by gets the queue.

        This closes the connection. If it only cancelled the consumer, RabbitMQ would send the next
        messages to the other daemon while this one still had unacked ones: out of order.
        """
        if self._consumer is not None and self._consumer.is_open:
            self._hands_over = True
            self._consumer.finish("the queue is handed over")

    async def run(self) -> None:
        """Consume until `stop`; a lost connection ends a term and begins the next.

        Raises:
            ServerUnreachable: RabbitMQ refused the credentials before the first term.
            ConfigError: the queue can't be declared as it is configured, before the first term.
            OtherLayout: the store was moved to another number of partitions, at any time.
        """
        try:
            await self._consume_until_stopped()
        except _QueueGone:
            self.state.forget(self.queue)
            self.state.outage.forget(self.queue)
            log.info("intake.queue_over", queue=self.queue)
        log.info("intake.stopped", queue=self.queue)

    async def _consume_until_stopped(self) -> None:
        backoff = Backoff()
        while not self._is_stopping:
            try:
                await self._consume_one_term(backoff)
            except BrokerUnavailable as error:
                if self._is_stopping:
                    break
                if self._hands_over:
                    self._hands_over = False
                    self._measures.handed_over += 1
                    log.info("intake.handed_over", queue=self.queue)
                    continue  # at once: the daemon that has the queue now may be the next to die
                self._set_state("away", str(error))
                self._tell("intake.interrupted", str(error))
            except (ServerUnreachable, ConfigError) as error:
                if not self._has_consumed or isinstance(error, OtherLayout):
                    raise
                self._set_state("away", str(error))
                self._tell("intake.refused", str(error))
            await asyncio.sleep(backoff.next())

    async def _consume_one_term(self, backoff: Backoff) -> None:
        settings = self._settings
        connection = await connect(
            self._url, heartbeat=settings.heartbeat, timeout=10.0, name=self._name
        )
        try:
            async with AsyncExitStack() as stack:
                consumer = await self._set_up(connection, stack)
                self._consumer = consumer
                await self._entrance.look()
                if self._is_stopping:
                    return
                self._has_consumed = True
                self._measures.terms += 1
                self._set_state("")
                backoff.reset()
                away = self.state.outage.answered(self.queue)
                facts = {} if away is None else {"away_for": away}
                log.info("intake.started", queue=self.queue, prefetch=self._prefetch, **facts)
                try:
                    while True:
                        await self.run_once(consumer)
                finally:
                    self._set_state("away", "it has no connection to RabbitMQ")
                    self._prefetch = self._next_prefetch(consumer)
        finally:
            await close_quietly(connection.close())

    def _tell(self, event: str, error: str) -> None:
        """Log that RabbitMQ is away, where that is news."""
        facts = self.state.outage.failed(self.queue)
        if facts is not None:
            log.warning(event, queue=self.queue, error=error, **facts)

    async def _set_up(self, connection: Connection, stack: AsyncExitStack) -> Consumer:
        """Find or declare the queue and begin to consume it, until the stack is closed.

        Raises:
            BrokerUnavailable: the connection has ended, or there was no answer in time: RabbitMQ
                never answers for a queue without a leader.
            _QueueGone: the queue is missing, and not to be declared.
        """
        consumer = Consumer(self.queue, self._source.held(self._settings))
        try:
            async with asyncio.timeout(SET_UP):
                await self._ensure(connection)
                consuming_it = consuming(connection, consumer, self._prefetch)
                await stack.enter_async_context(consuming_it)
        except TimeoutError as error:
            raise BrokerUnavailable(
                f"RabbitMQ did not let us consume {self.queue!r} within {SET_UP:g} s: "
                "does the queue have a leader?"
            ) from error
        return consumer

    async def _ensure(self, connection: Connection) -> None:
        """Have the queue, and what leads to it."""
        source = self._source
        is_missing = await topology.presence_of(connection, self.queue) is topology.Presence.MISSING
        if source.declare is None:
            if is_missing:
                raise _QueueGone
            return
        if is_missing and self._has_consumed:
            remedy = "it was deleted with all messages in it; this daemon declares it again"
            log.error("intake.queue_gone", queue=self.queue, remedy=remedy)
        if is_missing:
            await source.declare(connection)
        elif source.ensure is not None:
            await source.ensure(connection)

    def _set_state(self, kind: Kind, reason: str = "") -> None:
        self.state.set(kind, reason, self.queue)

    def _next_prefetch(self, consumer: Consumer) -> int:
        """The next term's prefetch: smaller where this one's messages were too large together."""
        if not consumer.overflowed:
            return self._settings.prefetch
        return max(1, consumer.overflowed // 2)

    async def run_once(self, consumer: Consumer) -> None:
        """Take one batch, make it durable, ack it.

        Raises:
            BrokerUnavailable: the term has ended; RabbitMQ sends again what was not acked.
        """
        most = min(BATCH, max(1, self._prefetch // WINDOW))
        deliveries = await consumer.take(most, BATCH_BYTES)
        arrivals = await self._admit(deliveries)
        crash_point("before_enqueue")
        with self._span_of(arrivals):
            enqueued = await self._enqueue(consumer, arrivals)
        self._set_state("")
        crash_point("before_ack")
        # The proven path: Redis has answered for every message up to the end of this batch.
        await consumer.ack_through(deliveries[-1])
        crash_point("after_ack")
        count_batch(self._measures, arrivals, enqueued)
        self._report(deliveries, arrivals, enqueued)
        if reason := await self._entrance.reason(enqueued.queued):
            await self._pause(consumer, reason)

    async def _admit(self, deliveries: list[Delivery]) -> list[Arrival]:
        """Route a batch, by the rules of its beginning; the loop turns meanwhile."""
        admission = self._admission
        arrivals = []
        weight = 0
        for delivery in deliveries:
            if len(delivery.body) > LARGE_BODY:
                arrivals.append(await self._admit_large(admission, delivery))
            else:
                arrivals.append(admission.admit(delivery))
            weight += delivery.weight
            if weight >= TURN_BYTES:
                weight = 0
                await asyncio.sleep(0)
        return arrivals

    async def _admit_large(self, admission: Admission, delivery: Delivery) -> Arrival:
        """Route it in the thread, one at a time: memory for parsed bodies doesn't add up."""
        given = [delivery]
        loop = asyncio.get_running_loop()
        try:
            admitted = loop.run_in_executor(self._parsing, lambda: admission.admit(given.pop()))
        except RuntimeError:  # no thread can be started
            return admission.admit(given.pop())  # a call that is left in its queue keeps no body
        return await admitted

    def _span_of(self, arrivals: list[Arrival]) -> AbstractContextManager[object]:
        if self._tracing is None:
            return nullcontext()
        return self._tracing.enqueueing([arrival.envelope.headers for arrival in arrivals])

    async def _enqueue(self, consumer: Consumer, arrivals: list[Arrival]) -> Enqueued:
        """Write a batch, however long that takes, as long as its connection lasts."""
        backoff, batch, refused = Backoff(), self._entrance.batch(arrivals), Outage(monotonic)
        while True:
            try:
                enqueued = await batch.write()
            except StoreFull as error:
                reason = "Redis is out of memory"
                self._set_state("store_full", reason)
                if (facts := refused.failed()) is not None:
                    log.error("intake.paused", reason=reason, error=str(error), **facts)
            except TooFewReplicas as error:
                self._set_state("too_few_replicas", str(error))
                if (facts := refused.failed()) is not None:
                    reason = "too few replicas"
                    log.error("intake.paused", reason=reason, error=str(error), **facts)
            except StoreUnavailable as error:
                self._set_state("store_unavailable", str(error))
                log.debug("intake.waiting", reason="Redis does not answer", error=str(error))
            else:
                return enqueued
            if not consumer.is_open:
                raise BrokerUnavailable("the connection ended while Redis was away")
            await asyncio.sleep(backoff.next())

    async def _pause(self, consumer: Consumer, reason: str) -> None:
        log.warning("intake.paused", reason=reason)
        while reason:
            self._set_state(self._entrance.kind, reason)
            await asyncio.sleep(PAUSE_LOOK)
            if not consumer.is_open:
                return  # the next term looks again after its first batch
            queued = (await self._enqueue(consumer, [])).queued
            reason = await self._entrance.reason(queued)
        self._set_state("")
        log.info("intake.resumed")

    def _report(
        self, deliveries: list[Delivery], arrivals: list[Arrival], enqueued: Enqueued
    ) -> None:
        duplicates = enqueued.taken.count(False)
        log.debug("batch.enqueued", messages=len(deliveries), duplicates=duplicates)
        self._full_groups.tell(arrivals, enqueued)
        for n, verdict in enqueued.cancels.items():
            log.debug("message.cancels", task=arrivals[n].cancels, verdict=verdict)
        for n, id_ in enqueued.renamed.items():
            log.warning("message.renamed", message=arrivals[n].id, task=id_)
        for n, (arrival, taken) in enumerate(zip(arrivals, enqueued.taken, strict=True)):
            if n in enqueued.crowded_out:
                task = enqueued.renamed.get(n, arrival.id)
                reason = no_room(self._entrance.delayed_memory)
                log.error("task.buried", task=task, reason=reason)
            elif not taken:
                log.info("message.duplicate", task=arrival.id)
            elif arrival.dead:
                task = enqueued.renamed.get(n, arrival.id)
                log.error("task.buried", task=task, reason=arrival.dead)
