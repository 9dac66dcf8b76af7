"""Our side of the family `scans`: the same table, the same 2 ms a row."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from groupflow import App, SqlScan, SqlShard
from tests.verification.bench.peers.scan_loops import WORK

app = App()
orders = SqlScan(
    "orders",
    url=os.environ["SCAN_URL"],
    table="orders",
    columns="id",
    where="status = 0",
    done="status = 1, times = times + 1",
    shards=int(os.environ["SCAN_SHARDS"]),
    page=100,
)


@orders.row()
async def work(_row: Any, _shard: SqlShard) -> None:
    """Two milliseconds of waiting, as for another system."""
    await asyncio.sleep(WORK)


app.include(orders)
