"""Intakes: one for each queue that a daemon takes messages from, each on a connection of its own.

The daemon looks once, at the start, which queues there are: those of the configuration, and those
left by another number of partitions, so that no message stays in a queue without a consumer.

A daemon that has more queues than its share hands some over to daemons that stand by. RabbitMQ
gives a queue to the consumer that began first, so the first daemon gets all queues, and keeps them.
Each daemon consumes every queue; consumers that aren't active stand by, in a line. A daemon that
gets messages from more queues than its share gives up the surplus and stands at the end of their
lines; if the next daemon in line has its share already, it does the same. As the shares cover all
queues, each queue ends where there is room. Redis knows how many daemons there are: RabbitMQ 3.10
doesn't count consumers that stand by. Nor does it heed their priorities; from 4.0 on it does, but a
priority knows nothing of shares.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from time import monotonic
from typing import Any, Protocol

import structlog

from groupflow.broker.connection import Connection, close_quietly, connect
from groupflow.broker.consumer import Delivery
from groupflow.broker.partitions import declare, names_of, others_of
from groupflow.core.backoff import Backoff
from groupflow.core.checkup import Check
from groupflow.core.errors import BrokerUnavailable, ServerUnreachable, StoreUnavailable
from groupflow.core.events import Following
from groupflow.core.measures import IntakeMeasures
from groupflow.core.tracing import Tracing
from groupflow.flow.admission import Admission
from groupflow.flow.backpressure import IntakeState
from groupflow.flow.counting import count_ends
from groupflow.flow.entrance import Entrance
from groupflow.flow.intake import BATCH, SET_UP, Intake, IntakeQueue
from groupflow.flow.parts import run_part
from groupflow.settings.model import Settings
from groupflow.store.enqueue import Arrival, Enqueued

log = structlog.get_logger("groupflow.intake")

DECLARED_FOR = 2.0  # seconds
LOOK_EVERY = 2.0  # seconds between two looks at our queues, give or take a quarter


class Intakes:
    """All intakes of a daemon, as one."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        admission: Admission,
        entrance: Entrance,
        *,
        measures: IntakeMeasures,
        tracing: Tracing | None,
        on_pause: Callable[[], None],
        count_daemons: Callable[[str], Awaitable[int]],
        retell: Callable[[], None],
    ) -> None:
        """Binds what they share.

        Args:
            settings: as for `Intake`.
            name: as for `Intake`.
            admission: as for `Intake`.
            entrance: as for `Intake`.
            measures: as for `Intake`.
            tracing: as for `Intake`.
            on_pause: called at a pause, and at its end.
            count_daemons: how many daemons consume the partitions of a queue.
            retell: called when what `told` returns has changed.
        """
        self._retell = retell
        self._count_daemons = partial(count_daemons, settings.rabbitmq.queue)
        self._settings = settings
        self._url = settings.rabbitmq_url()
        self._queue = settings.rabbitmq.queue
        self._partitions = settings.rabbitmq.partitions
        self._queues = names_of(self._queue, self._partitions)
        self._name = name
        self._admission = admission
        self._measures = measures
        self._following = entrance.of_follow_up_tasks()
        self.state = IntakeState(measures, on_pause, self._queues)
        # A thread of our own, as handlers may hold all of the loop's for as long as they like. One
        # large body at a time, of all queues: memory for parsed bodies doesn't add up.
        self._parsing = ThreadPoolExecutor(1, thread_name_prefix="groupflow-admission")
        self._make = partial(
            Intake,
            settings,
            name,
            entrance=entrance,
            measures=measures,
            tracing=tracing,
            state=self.state,
            parsing=self._parsing,
        )
        self._intakes: list[Intake] = []
        self._is_stopping = False
        self._declaring = asyncio.Lock()
        self._declared = -math.inf  # when the queues were last declared

    def check(self) -> Check:
        """Whether messages come in, in a word for `/readyz`."""
        return self.state.check(self._queue)

    @property
    def consumes(self) -> bool:
        """Whether this daemon has a consumer of every queue."""
        return bool(self._intakes) and all(intake.consumes for intake in self._intakes)

    def told(self) -> dict[str, Any]:
        """What other daemons are told: why intake pauses, and how many queues it consumes."""
        consumed = sum(intake.consumes for intake in self._intakes)
        if self._partitions == 1 or not consumed:
            return self.state.told()
        queues = {"of": self._queue, "consumed": consumed, "active": self.active_queues}
        return {**self.state.told(), "queues": queues}

    @property
    def active_queues(self) -> int:
        """How many queues send this daemon their messages."""
        return sum(intake.is_active for intake in self._intakes)

    @property
    def bytes_in_flight(self) -> int:
        """Bytes (bodies and headers) of what was delivered and not taken yet."""
        return sum(intake.bytes_in_flight for intake in self._intakes)

    def adopt(self, admission: Admission) -> None:
        """Route by other rules, from the next batches on."""
        self._admission = admission
        for intake in self._intakes:
            intake.adopt(admission)

    async def follow(
        self, following: Sequence[tuple[str, Following]], made: dict[str, bool]
    ) -> None:
        """Make tasks of follow-up tasks, in order; those that are known already stay what they are.

        They pass no queue of RabbitMQ, and no limit of intake holds them back: they take the place
        of what waits to be told in Redis, and as many bytes.

        Args:
            following: each with its id.
            made: gets the ids of those that are made, also before an error, and whether each is
                new.

        Raises:
            StoreUnavailable: no answer; call again.
        """
        for first in range(0, len(following), BATCH):
            some = following[first : first + BATCH]
            arrivals = [self._admission.admit(_delivery_of(*each)) for each in some]
            batch = self._following.batch(arrivals)
            try:
                await batch.write()
            finally:
                for places, enqueued in batch.written():
                    self._followed([arrivals[place] for place in places], enqueued)
                    ids = (some[place][0] for place in places)
                    made.update(zip(ids, enqueued.taken, strict=True))

    def _followed(self, arrivals: Sequence[Arrival], enqueued: Enqueued) -> None:
        count_ends(self._measures, arrivals, enqueued)  # no message has brought them
        for n, arrival in enumerate(arrivals):
            if arrival.dead and enqueued.taken[n]:
                task = enqueued.renamed.get(n, arrival.id)
                log.error("task.buried", task=task, reason=arrival.dead)

    def stop(self) -> None:
        """End after the batches in hand, acked; what was not taken yet stays in RabbitMQ."""
        self._is_stopping = True
        for intake in self._intakes:
            intake.stop()

    async def run(self) -> None:
        """Consume until `stop`.

        Raises:
            ServerUnreachable: RabbitMQ refused the credentials before the first term.
            ConfigError: the queues can't be declared as they are configured.
            ExceptionGroup: of such errors, of several queues.
        """
        try:
            self._intakes = await self._find()
            async with asyncio.TaskGroup() as group:
                spreading = group.create_task(self._spread())
                running = [
                    group.create_task(run_part(f"intake of {intake.queue}", self._run(intake)))
                    for intake in self._intakes
                ]
                if running:
                    await asyncio.wait(running)
                spreading.cancel()
        finally:
            self._parsing.shutdown(wait=False, cancel_futures=True)

    async def _run(self, intake: Intake) -> None:
        """Run an intake; one that ends before a stop has no queue any more."""
        await intake.run()
        if not self._is_stopping:
            self._intakes.remove(intake)

    async def _spread(self) -> None:
        """Tell which queues this daemon has, and hand over surplus ones, again and again."""
        told: dict[str, Any] = {}
        while len(self._intakes) > 1:
            # Out of step, or daemons might hand over to each other.
            await asyncio.sleep(LOOK_EVERY * random.uniform(0.75, 1.25))  # noqa: S311  no secret
            if told != (told := self.told()):
                self._retell()
            await hand_over_surplus(self._name, self._intakes, self._count_daemons)

    async def _find(self) -> list[Intake]:
        """An intake for each queue, as soon as RabbitMQ lets the daemon look; none at a stop."""
        backoff, others = Backoff(), list[str]()
        while not self._is_stopping:
            try:
                others = await self._look()
            except TimeoutError:
                # RabbitMQ never answers for a queue without a leader; the others need not wait.
                log.warning("intake.not_looked", reason=f"no answer within {SET_UP:g} s")
                break
            except BrokerUnavailable as error:
                for queue in self._queues:
                    self.state.set("away", str(error), queue)
                if (facts := self.state.outage.failed()) is not None:
                    log.warning("intake.interrupted", error=str(error), **facts)
                await asyncio.sleep(backoff.next())
            else:
                break
        self.state.outage.forget()
        return [] if self._is_stopping else self._intakes_of(others)

    async def _look(self) -> list[str]:
        """Declare the configured queues. Returns the others that there are."""
        rabbitmq = self._settings.rabbitmq
        connection = await connect(
            self._url, heartbeat=rabbitmq.heartbeat, timeout=10.0, name=self._name
        )
        try:
            async with asyncio.timeout(SET_UP):
                await self._declare(connection)
                return await others_of(connection, self._queue, self._partitions)
        finally:
            await close_quietly(connection.close())

    async def _declare(self, connection: Connection) -> None:
        async with self._declaring:
            await declare(connection, self._queue, self._partitions)
            self._declared = monotonic()

    async def _ensure(self, connection: Connection) -> None:
        """Declare them, once for all intakes that connect shortly after each other."""
        if self._partitions > 1 and monotonic() - self._declared >= DECLARED_FOR:
            await self._declare(connection)

    def _intakes_of(self, others: list[str]) -> list[Intake]:
        if others:
            log.warning(
                "intake.other_queues",
                queues=others,
                remedy="they are of another rabbitmq.partitions, and are consumed as well: delete "
                "them, the highest number first, once they are empty and no application publishes "
                "to them",
            )
        among = len(self._queues) + len(others)
        sources = [
            *(IntakeQueue(queue, among, self._declare, self._ensure) for queue in self._queues),
            *(IntakeQueue(queue, among) for queue in others),
        ]
        return [self._make(admission=self._admission, source=source) for source in sources]


def _delivery_of(id_: str, following: Following) -> Delivery:
    """A follow-up task as if RabbitMQ had handed it over."""
    body = following.body.encode()
    return Delivery(0, body, id_, following.type, following.headers, None)


class ConsumedQueue(Protocol):
    """A queue as one daemon consumes it; an `Intake`."""

    queue: str

    @property
    def is_active(self) -> bool:
        """Whether its messages come to this daemon."""

    def hand_over(self) -> None:
        """Give it to a daemon that stands by."""


async def hand_over_surplus(
    name: str, intakes: Sequence[ConsumedQueue], count_daemons: Callable[[], Awaitable[int]]
) -> list[str]:
    """Hand over the queues that are more than a daemon's share. Returns their names.

    Args:
        name: of the daemon.
        intakes: all that it has, active or not.
        count_daemons: how many daemons consume their queues.
    """

    def weight(intake: ConsumedQueue) -> bytes:
        """How much this daemon wants a queue: each daemon prefers and gives up different ones."""
        return sha256(f"{name}\0{intake.queue}".encode()).digest()

    active = sorted((intake for intake in intakes if intake.is_active), key=weight, reverse=True)
    # Only messages tell that a queue is ours; a queue without any loads no daemon.
    if len(active) <= 1:
        return []
    try:
        daemons = await count_daemons()
    except (StoreUnavailable, ServerUnreachable):
        return []  # no other daemon could do more with the queue than this one
    surplus = active[math.ceil(len(intakes) / max(1, daemons)) :]
    for intake in surplus:
        intake.hand_over()
    return [intake.queue for intake in surplus]
