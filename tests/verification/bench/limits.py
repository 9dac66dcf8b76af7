"""The bare limits of a machine at a moment: what no queue on these servers can go beyond."""

from __future__ import annotations

import asyncio
import socket
from statistics import median
from time import perf_counter

TRIPS = 2_000


def _round_trip(port: int) -> float:
    times: list[float] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(TRIPS):
            began = perf_counter()
            connection.sendall(b"PING\r\n")
            connection.recv(64)
            times.append(perf_counter() - began)
    return median(times)


async def redis_round_trip(port: int) -> float:
    """Seconds of one round trip to a Redis: the median of bare PINGs over a bare socket."""
    return await asyncio.to_thread(_round_trip, port)
