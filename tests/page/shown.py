"""What the daemon of the pictures runs: the handlers of the end-to-end tests, and a scan."""

from __future__ import annotations

from collections.abc import Sequence

from groupflow import Scan, Shard
from tests.endtoend.handlers import app

orders = Scan("orders", shards=4, idle=5.0, interval=-600.0)
_shipped: set[int] = set()


@orders.fetch
async def fetch(shard: Shard) -> Sequence[int]:
    """Ten orders a shard, and one of them in all that is refused."""
    mine = range(4711 + shard.index, 4751, shard.count)
    return [order for order in mine if order not in _shipped and order not in shard.skip]


@orders.row(key=lambda order: order)
async def ship(order: int, shard: Shard) -> None:
    """Ship it."""
    if order == 4726:
        raise ValueError("no such address")
    _shipped.add(order)


app.include(orders)
__all__ = ["app"]
