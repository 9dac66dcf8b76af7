"""What the daemons of these tests run: orders of a real table, each noted in the transaction."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from sqlalchemy import text

from groupflow import App, SqlScan, SqlShard

TABLE = os.environ["SCAN_TABLE"]
FOLDER = Path(os.environ["SCAN_FOLDER"])
LOOK = 0.005

app = App()
orders = SqlScan(
    "orders",
    url=os.environ["SCAN_URL"],
    table=TABLE,
    where="status = 0",
    done="status = 1",
    shards=int(os.environ.get("SCAN_SHARDS", "4")),
    page=20,
    idle=float(os.environ.get("SCAN_IDLE", "0.2")),
    interval=-0.05,
    max_attempts=3,
)


@orders.row()
async def ship(order: Any, shard: SqlShard) -> None:
    """Ship it; row 100 waits at a gate, where its daemon may be killed."""
    _note("start", order.id, shard)
    if order.id == 100 and not (FOLDER / "gate").exists():
        (FOLDER / f"at-gate-{os.getpid()}").touch()
        while not (FOLDER / "gate").exists():
            await asyncio.sleep(LOOK)
    if order.id in (13, 14):
        raise ValueError("no such address")
    assert shard.connection is not None
    await shard.connection.execute(
        text(f"INSERT INTO {TABLE}_shipped (order_id) VALUES (:id)"), {"id": order.id}
    )
    _note("end", order.id, shard)


def _note(what: str, id_: int, shard: SqlShard) -> None:
    line = f"{what} {id_} {shard.index} {shard.fence} {os.getpid()}\n"
    with (FOLDER / "notes").open("a") as notes:
        notes.write(line)


app.include(orders)
