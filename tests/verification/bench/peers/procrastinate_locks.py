"""Procrastinate on PostgreSQL: a job's `lock` makes a group serial."""

from __future__ import annotations

import asyncio

import procrastinate

from tests.verification.bench.load import number_in
from tests.verification.bench.peers.spec import Spec, main

BATCH = 1000


async def run(spec: Spec) -> None:
    """Fill the table, then run a worker."""
    connector = procrastinate.PsycopgConnector(conninfo=spec.url)
    app = procrastinate.App(connector=connector)

    @app.task(name="bench", queue="bench")
    async def bench(body: str) -> None:
        await spec.handle(number_in(body.encode()))

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        waiting = [(f"g{group}", body.decode()) for _, group, body in spec.load]
        for first in range(0, len(waiting), BATCH):
            await app.job_manager.batch_defer_jobs_async(
                [
                    bench.configure(lock=lock, task_kwargs={"body": body}).job
                    for lock, body in waiting[first : first + BATCH]
                ]
            )
        await connector.execute_query_async("ANALYZE procrastinate_jobs")
        spec.begin()
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


if __name__ == "__main__":
    main(run)
