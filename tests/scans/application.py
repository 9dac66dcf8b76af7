"""What the daemons of these tests run: orders of a real table, each shipped once."""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy import text

from groupflow import App, SqlScan, SqlShard

TABLE = os.environ["SCAN_TABLE"]

app = App()
orders = SqlScan(
    "orders",
    url=os.environ["SCAN_URL"],
    table=TABLE,
    where="status = 0",
    done="status = 1",
    shards=4,
    idle=3600.0,
)


@orders.row()
async def ship(order: Any, shard: SqlShard) -> None:
    """Ship it."""
    assert shard.connection is not None
    statement = text(f"INSERT INTO {TABLE}_shipped (order_id) VALUES (:id)")
    await shard.connection.execute(statement, {"id": order.id})


app.include(orders)
