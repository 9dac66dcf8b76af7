"""What goes wrong with the queue and what is published to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from groupflow.broker import topology
from groupflow.broker.connection import connected
from groupflow.core.errors import GroupflowError
from tests.history.configuration import QUEUE
from tests.verification.pacing import comes, pause
from tests.verification.soak.faults.fault import Fault, Kind, Skipped, fault
from tests.verification.soak.workload import Workload
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
        async with connected(amqp(world.nodes), timeout=5.0, name="nemesis") as connection:
            await topology.delete(connection, QUEUE)
        # RabbitMQ confirms what reaches a queue that is just going, and drops it with it.
        await pause(0.5)
    except GroupflowError as error:
        raise Skipped(str(error)) from error
    finally:
        world.workload.resume()
    yield


def flood(name: str, inject: Callable[[Workload, int], None], least: int, most: int) -> Kind:
    """More messages than usual, at once."""

    @fault(name, weight=2.0)
    async def happen(world: World, fault: Fault) -> AsyncIterator[None]:
        inject(world.workload, fault.chance.randrange(least, most))
        yield

    return happen


duplicates = flood("duplicates", Workload.inject_duplicates, 8, 80)
header_flood = flood("header flood", Workload.inject_headers, 40, 160)
poison = flood("poison", Workload.inject_poison, 4, 30)
