"""What goes wrong with the queue and what is published to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from groupflow.broker import topology
from groupflow.broker.connection import connect
from groupflow.core.errors import GroupflowError
from tests.history.configuration import QUEUE
from tests.verification.pacing import comes, pause
from tests.verification.soak.faults.fault import Fault, Skipped, fault
from tests.verification.soak.world import World, amqp


@fault("queue deleted", "rabbitmq", "wire to rabbitmq", "redis", "wire to redis", weight=2.0)
async def delete_queue(world: World, _: Fault) -> AsyncIterator[None]:
    """An operator deletes the queue, after all that was confirmed has come through it."""

    async def are_taken() -> bool:
        counts = await world.counts() or {}
        return counts.get("taken", 0) >= len(world.workload.ids)

    try:
        if not await world.workload.pause(within=8.0):
            raise Skipped("not everything was confirmed in time")
        # The queue then holds nothing but duplicates.
        if not await comes(are_taken, within=8.0):
            raise Skipped("not everything was taken in in time")
        connection = await connect(amqp(world.nodes), heartbeat=10, timeout=5.0, name="nemesis")
        async with connection:
            await topology.delete(connection, QUEUE)
        # RabbitMQ confirms what reaches a queue that is just going, and drops it with it.
        await pause(0.5)
    except GroupflowError as error:
        raise Skipped(str(error)) from error
    finally:
        world.workload.resume()
    yield


@fault("duplicates", weight=2.0)
async def duplicates(world: World, fault: Fault) -> AsyncIterator[None]:
    """The latest messages are published once more."""
    world.workload.inject_duplicates(fault.chance.randrange(8, 80))
    yield


@fault("header flood", weight=2.0)
async def header_flood(world: World, fault: Fault) -> AsyncIterator[None]:
    """Messages with large headers that aren't UTF-8: half of them tasks, half too large for one."""
    world.workload.inject_headers(fault.chance.randrange(40, 160))
    yield


@fault("poison", weight=2.0)
async def poison(world: World, fault: Fault) -> AsyncIterator[None]:
    """Messages that no handler can work on."""
    world.workload.inject_poison(fault.chance.randrange(4, 30))
    yield
