"""Intakes: one for each queue that a daemon takes messages from, each on a connection of its own.

The daemon looks once, at the start, which queues there are: those of the configuration, and those
left by another number of partitions, so that no message stays in a queue without a consumer.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Any

import structlog

from groupflow.broker.connection import Connection, close_quietly, connect
from groupflow.broker.partitions import declare, names_of, others_of
from groupflow.core.backoff import Backoff
from groupflow.core.checkup import Check
from groupflow.core.errors import BrokerUnavailable
from groupflow.core.measures import IntakeMeasures
from groupflow.core.tracing import Tracing
from groupflow.flow.admission import Admission
from groupflow.flow.entrance import Entrance
from groupflow.flow.intake import SET_UP, Intake, Source, parsing_thread
from groupflow.flow.parts import run_part
from groupflow.flow.spread import Spread
from groupflow.flow.standstill import Standstill
from groupflow.settings.model import Settings

log = structlog.get_logger("groupflow.intake")

DECLARED_FOR = 2.0  # seconds


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
        on_standstill: Callable[[], None],
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
            on_standstill: called at a pause, and at its end.
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
        self.standstill = Standstill(measures, on_standstill, self._queues)
        # One large body at a time, of all queues: memory for parsed bodies doesn't add up.
        self._parsing = parsing_thread()
        self._make = partial(
            Intake,
            settings,
            name,
            entrance=entrance,
            measures=measures,
            tracing=tracing,
            standstill=self.standstill,
            parsing=self._parsing,
        )
        self._intakes: list[Intake] = []
        self._is_stopping = False
        self._declaring = asyncio.Lock()
        self._declared = -math.inf  # when the queues were last declared

    def check(self) -> Check:
        """Whether messages come in, in a word for `/readyz`."""
        return self.standstill.check(self._queue)

    @property
    def consumes(self) -> bool:
        """Whether this daemon has a consumer of every queue."""
        return bool(self._intakes) and all(intake.consumes for intake in self._intakes)

    def told(self) -> dict[str, Any]:
        """What other daemons are told: why intake stands, and how many queues it consumes."""
        consumed = sum(intake.consumes for intake in self._intakes)
        if self._partitions == 1 or not consumed:
            return self.standstill.told()
        queues = {"of": self._queue, "consumed": consumed, "active": self.active_queues}
        return {**self.standstill.told(), "queues": queues}

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
                    group.create_task(run_part(f"intake of {intake.queue}", intake.run()))
                    for intake in self._intakes
                ]
                if running:
                    await asyncio.wait(running)
                spreading.cancel()
        finally:
            self._parsing.shutdown(wait=False, cancel_futures=True)

    async def _spread(self) -> None:
        """Tell which queues this daemon has, and hand over surplus ones, again and again."""
        spread = Spread(self._name, self._intakes, self._count_daemons)
        told: dict[str, Any] = {}
        while len(self._intakes) > 1:
            await spread.pause()
            if told != (told := self.told()):
                self._retell()
            await spread.run_once()

    async def _find(self) -> list[Intake]:
        """An intake for each queue, as soon as RabbitMQ lets the daemon look; none at a stop."""
        backoff = Backoff()
        while not self._is_stopping:
            try:
                others = await self._look()
            except TimeoutError:
                # RabbitMQ never answers for a queue without a leader; the others need not wait.
                log.warning("intake.not_looked", reason=f"no answer within {SET_UP:g} s")
                self.standstill.outage.forget()
                return self._intakes_of([])
            except BrokerUnavailable as error:
                for queue in self._queues:
                    self.standstill.set("away", str(error), queue)
                if (facts := self.standstill.outage.failed()) is not None:
                    log.warning("intake.interrupted", error=str(error), **facts)
                await asyncio.sleep(backoff.next())
            else:
                self.standstill.outage.forget()
                return [] if self._is_stopping else self._intakes_of(others)
        return []

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
                "them once they are empty and nobody publishes to them",
            )
        among = len(self._queues) + len(others)
        sources = [
            *(Source(queue, among, self._declare, self._ensure) for queue in self._queues),
            *(Source(queue, among) for queue in others),
        ]
        return [self._make(admission=self._admission, source=source) for source in sources]
