"""What goes wrong with the queue and what is published to it."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from groupflow.broker import topology
from groupflow.broker.connection import connect
from groupflow.core.errors import GroupflowError
from tests.history.configuration import QUEUE
from tests.verification.pacing import comes, pause
from tests.verification.soak.faults.fault import Fault, Skipped
from tests.verification.soak.world import World, amqp


class DeleteQueue(Fault):
    """Somebody deletes the queue, after all that was confirmed has come through it."""

    name = "queue deleted"
    weight = 2.0
    holds = frozenset({"rabbitmq", "wire to rabbitmq", "redis", "wire to redis"})

    async def apply(self, world: World) -> None:
        try:
            if not await world.workload.pause(within=8.0):
                raise Skipped("not everything was confirmed in time")
            await _all_taken(world)
            connection = await connect(amqp(world.nodes), heartbeat=10, timeout=5.0, name="nemesis")
            async with connection:
                await topology.delete(connection, QUEUE)
            # RabbitMQ confirms what reaches a queue that is just going, and drops it with it.
            await pause(0.5)
        except GroupflowError as error:
            raise Skipped(str(error)) from error
        finally:
            world.workload.resume()


async def _all_taken(world: World) -> None:
    """Wait until the store has every id, so that the queue holds nothing but duplicates."""

    async def are_taken() -> bool:
        counts = await world.counts() or {}
        return counts.get("taken", 0) >= len(world.workload.ids)

    if not await comes(are_taken, within=8.0):
        raise Skipped("not everything was taken in in time")


class Injected(Fault):
    """Messages beside the steady stream, between so many and so many."""

    weight = 2.0
    number: ClassVar[tuple[int, int]]

    def __init__(self, chance: Random, daemons: int) -> None:
        super().__init__(chance, daemons)
        self.count = chance.randrange(*self.number)


class Duplicates(Injected):
    """The latest messages are published once more."""

    name = "duplicates"
    number = 8, 80

    async def apply(self, world: World) -> None:
        world.workload.inject_duplicates(self.count)


class HeaderFlood(Injected):
    """Messages with large headers that aren't UTF-8: half of them tasks, half too large for one."""

    name = "header flood"
    number = 40, 160

    async def apply(self, world: World) -> None:
        world.workload.inject_headers(self.count)


class Poison(Injected):
    """Messages that nobody can work on."""

    name = "poison"
    number = 4, 30

    async def apply(self, world: World) -> None:
        world.workload.inject_poison(self.count)
