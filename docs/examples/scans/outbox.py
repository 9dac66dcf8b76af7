"""A transactional outbox: what the application writes with its own rows is published, in order.

The application inserts into `outbox` in the transaction that changes its own rows. This scan
publishes the rows to RabbitMQ: those of one aggregate in the order of their ids, each once it is
committed, none lost. A crash between the publishing and the mark publishes a row again under the
same message id: consumers know it by that, as groupflow does.

    CREATE TABLE outbox (
        id BIGSERIAL PRIMARY KEY, aggregate TEXT NOT NULL, body TEXT NOT NULL,
        sent BOOLEAN NOT NULL DEFAULT FALSE);
    CREATE INDEX ON outbox (id) WHERE NOT sent;

Run it with the URLs of both servers in the environment:

    groupflow run --app outbox:app --only workers
"""

import os
from collections.abc import AsyncIterator
from typing import Any

from groupflow import App, Publisher, SqlScan, SqlShard

app = App()
outbox = SqlScan(
    "outbox",
    url=os.environ["OUTBOX_DATABASE"],
    table="outbox",
    where="NOT sent",
    done="sent = TRUE",
    # All rows of an aggregate are one shard's, and it waits behind a row that can't be published:
    # so none overtakes another.
    slice="hashtext(aggregate)",
    on_retry="hold",
    max_attempts=1_000_000,
    shards=8,
    listen="outbox",
)


@app.lifespan
async def connect(app: App) -> AsyncIterator[None]:
    """A publisher for as long as the daemon lives."""
    queue = os.environ.get("OUTBOX_QUEUE", "groupflow.jobs")
    async with Publisher(os.environ["OUTBOX_RABBITMQ"], queue) as publisher:
        app.state["publisher"] = publisher
        yield


@outbox.row()
async def publish(row: Any, _shard: SqlShard) -> None:
    """Publish a row; it is marked once RabbitMQ has confirmed it."""
    await app.state["publisher"].publish(row.body, type="outbox", id=f"outbox:{row.id}")


app.include(outbox)
