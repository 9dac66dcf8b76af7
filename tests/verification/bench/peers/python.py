"""The peers of Python, on uvloop as ours: `python -m tests.verification.bench.peers.python FACTS`.

- bare: the limit of intake and latency: aio-pika consumes, acks many at once, and does no more.
- rabbitmq: RabbitMQ alone: a consistent-hash exchange into single-active-consumer queues, one task
  each. A queue per worker, so groups that hash alike wait for each other. Quorum queues, as ours.
- source: a plain copy of the loop that groupflow's design came from: queue lock, scan, LREM. It was
  written from its description. Its polls of 0.8 s and 2 s are shortened to a millisecond, in its
  favour; all else is as described, faults included.
- procrastinate: Procrastinate on PostgreSQL: a job's `lock` makes a group serial.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from time import monotonic_ns
from typing import Any
from uuid import uuid4

import aio_pika
import uvloop
from aio_pika.abc import AbstractIncomingMessage
from redis.asyncio import Redis

from groupflow.broker.topology import ARGUMENTS
from tests.verification.bench.filling import fill_queue
from tests.verification.bench.load import Load, number_in
from tests.verification.bench.records import Recorder

PREFETCH = 500  # groupflow's own default
AT_ONCE = 200  # messages published before the first confirm is awaited
BATCH = 500
QUEUE, LOCK = "queue", "queue:lock"
POLL = 0.001  # seconds
PAGE = 100  # tasks looked at in one LRANGE
LOCKED = 300  # seconds that a lock lives


class Spec:
    """What this process has to do: see `peers/__init__.py`.

    Attributes:
        load: the tasks.
        workers: how many may run at once.
        url: its server.
        queue: where somebody else queues the tasks; empty where the peer fills its own.
        is_over: whether `finish` has written the records, so that nothing counts any more.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        self.load = Load(**facts["load"])
        self.workers: int = facts["workers"]
        self.url: str = facts["url"]
        self.queue: str = facts.get("queue", "")
        self.is_over = False
        self._seconds: float = facts["seconds"]
        self._records = Path(facts["records"])
        self._recorder = Recorder()
        self._reached = asyncio.Event()

    async def handle(self, number: int) -> None:
        """What the handler of a task does, in every peer."""
        start = monotonic_ns()
        if self.load.handler_ms:
            await asyncio.sleep(self.load.handler_ms / 1000)
        self.note(number, start)

    def note(self, number: int, start: int) -> None:
        """Record a task that ends now."""
        self._recorder.add(number, start, monotonic_ns())
        if len(self._recorder) >= self.load.tasks:
            self._reached.set()

    def begin(self) -> None:
        """All is ready."""
        Path(f"{self._records}.begun").touch()

    async def finish(self) -> None:
        """Wait until all tasks are recorded or the time is over, and write what is there."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._reached.wait()
        except TimeoutError:
            pass
        self._recorder.write(self._records)
        self.is_over = True


async def bare(spec: Spec) -> None:
    """Fill a queue, unless somebody else does, and consume it."""
    name = spec.queue or "bench-bare"
    if not spec.queue:
        await fill_queue(spec.url, name, spec.load)
    connection = await aio_pika.connect(spec.url)
    channel = await connection.channel(publisher_confirms=False)
    await channel.set_qos(prefetch_count=PREFETCH)
    queue = await channel.get_queue(name)
    unacked = 0

    async def on_message(message: AbstractIncomingMessage) -> None:
        nonlocal unacked
        number = number_in(message.body)
        spec.note(number, monotonic_ns())
        unacked += 1
        if unacked >= PREFETCH // 2 or number == spec.load.tasks - 1:
            unacked = 0
            await message.ack(multiple=True)

    await queue.consume(on_message)
    spec.begin()
    await spec.finish()
    await channel.queue_delete(name)
    await connection.close()


async def rabbitmq(spec: Spec) -> None:
    """Fill the queues through the exchange, then consume all of them with prefetch 1."""
    connection = await aio_pika.connect(spec.url)
    mark = uuid4().hex[:8]
    channel = await connection.channel()
    exchange = await channel.declare_exchange(
        f"bench-{mark}", aio_pika.ExchangeType.X_CONSISTENT_HASH, durable=True
    )
    names = [f"bench-{mark}-{n}" for n in range(spec.workers)]
    for name in names:
        queue = await channel.declare_queue(name, durable=True, arguments=dict(ARGUMENTS))
        await queue.bind(exchange, routing_key="1")
    waiting = list(spec.load)
    for first in range(0, len(waiting), AT_ONCE):
        await asyncio.gather(
            *(
                exchange.publish(
                    aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT),
                    f"g{group}",
                )
                for _, group, body in waiting[first : first + AT_ONCE]
            )
        )

    async def on_message(message: AbstractIncomingMessage) -> None:
        await spec.handle(number_in(message.body))
        await message.ack()

    channels = []
    for name in names:
        own = await connection.channel(publisher_confirms=False)
        await own.set_qos(prefetch_count=1)
        await (await own.get_queue(name)).consume(on_message)
        channels.append(own)  # a connection holds its channels weakly
    await spec.finish()
    for name in names:
        await channel.queue_delete(name)
    await exchange.delete()
    await connection.close()


async def source(spec: Spec) -> None:
    """Fill the list, then let all workers loop over it."""
    redis = Redis.from_url(spec.url, max_connections=spec.workers + 8)
    waiting = [b"%d|%s" % (group, body) for _, group, body in spec.load]
    for first in range(0, len(waiting), BATCH):
        await redis.lpush(QUEUE, *waiting[first : first + BATCH])
    workers = [asyncio.create_task(_work(redis, spec, n)) for n in range(spec.workers)]
    await spec.finish()
    await asyncio.gather(*workers)  # not cancelled: redis-py may swallow that
    await redis.aclose()


async def _work(redis: Redis, spec: Spec, worker: int) -> None:
    while not spec.is_over:
        job = None
        if await redis.setnx(LOCK, worker):
            await redis.expire(LOCK, LOCKED)
            job = await _take(redis, worker)
            await redis.delete(LOCK)
        if job is None:
            await asyncio.sleep(POLL)
            continue
        group, _, body = job.partition(b"|")
        await spec.handle(number_in(body))
        await redis.delete(f"checkpoint:{worker}")
        await redis.delete(b"lock:" + group)
        await redis.incr("done")


async def _take(redis: Redis, worker: int) -> bytes | None:
    """The oldest job whose group is free, or ``None``: a walk over the list from its tail."""
    end = -1
    while True:
        page: list[Any] = await redis.lrange(QUEUE, end - PAGE + 1, end)
        if not page:
            return None
        for job in reversed(page):
            lock = b"lock:" + job.partition(b"|")[0]
            if await redis.setnx(lock, worker):
                await redis.expire(lock, LOCKED)
                await redis.set(f"checkpoint:{worker}", job)
                await redis.lrem(QUEUE, -1, job)
                return bytes(job)
        end -= PAGE


async def procrastinate(spec: Spec) -> None:
    """Fill the table, then run a worker."""
    import procrastinate as library

    connector = library.PsycopgConnector(conninfo=spec.url)
    app = library.App(connector=connector)

    async def bench(body: str) -> None:
        await spec.handle(number_in(body.encode()))

    task = app.task(name="bench", queue="bench")(bench)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        waiting = [
            task.configure(lock=f"g{group}", task_kwargs={"body": body.decode()}).job
            for _, group, body in spec.load
        ]
        for first in range(0, len(waiting), BATCH):
            await app.job_manager.batch_defer_jobs_async(waiting[first : first + BATCH])
        await connector.execute_query_async("ANALYZE procrastinate_jobs")
        worker = asyncio.create_task(
            app.run_worker_async(
                queues=["bench"],
                concurrency=spec.workers,
                install_signal_handlers=False,
                delete_jobs="successful",
            )
        )
        await spec.finish()
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def main() -> None:
    """Run the peer that this process's argument names."""
    peers = {each.__name__: each for each in (bare, rabbitmq, source, procrastinate)}
    facts = json.loads(sys.argv[1])
    await peers[facts["peer"]](Spec(facts))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
