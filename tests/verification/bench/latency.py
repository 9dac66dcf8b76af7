"""From the publish to the start of the handler, at a steady rate, and through RabbitMQ alone.

Publisher, daemon and Redis are processes on one machine: CLOCK_MONOTONIC is the same for all.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from statistics import quantiles
from time import monotonic, monotonic_ns

from groupflow.broker.publisher import TermPublisher, publishing
from tests.verification.bench.bench import Bench, Figures, Side, message
from tests.verification.bench.daemons import START_WITHIN
from tests.verification.bench.load import Load
from tests.verification.bench.peers import BARE, begun, run_peer
from tests.verification.bench.records import Records
from tests.verification.bench.rows import Row
from tests.verification.pacing import comes, pause

RATE = 300  # messages a second
SECONDS, QUICK_SECONDS = 10, 4
WARM = 100  # messages before those that count
GOALS = {"p50": 1.7, "p99": 4.0}  # ms
KEY = "latency"


async def measure(bench: Bench) -> list[Row]:
    """The rows of both percentiles, of the same turns."""
    load = Load(RATE * (QUICK_SECONDS if bench.quick else SECONDS), 1_000)
    rows = [
        Row(f"{KEY}.{name}", f"publish → handler at {RATE} a second, {name}", "ms", most=most)
        for name, most in GOALS.items()
    ]
    sides: dict[str, Side] = {
        who: partial(_ours, bench, load, rows[0], code, who) for who, code in bench.codes.items()
    }
    await bench.take_turns(rows, {**sides, BARE: partial(_bare, bench, load)})
    return rows


async def _ours(bench: Bench, load: Load, row: Row, code: Path, who: str) -> Figures:
    async with bench.corner() as corner:
        async with (
            publishing(corner.rabbitmq, corner.queue) as publisher,
            corner.daemon(load, code) as daemon,
        ):
            published = await _publish(publisher, load)
            await daemon.until_done(60.0)
        records = daemon.records
    bench.judge(row, records, load, who)
    return _waits(published, records, who)


async def _bare(bench: Bench, load: Load) -> Figures:
    url = await bench.rabbitmq()
    with bench.folder() as folder:
        async with publishing(url, folder.name) as publisher:
            peer = asyncio.create_task(run_peer(BARE, load, folder, url, queue=folder.name))

            async def has_begun() -> bool:
                return peer.done() or begun(folder)

            await comes(has_begun, within=START_WITHIN)
            return _waits(await _publish(publisher, load), await peer, BARE)


def _waits(published: list[int], records: Records, who: str) -> Figures:
    starts = records.starts()
    waits = [(starts[n] - published[n]) / 1e6 for n in range(WARM, len(published))]
    hundredths = quantiles(waits, n=100)
    return {f"{KEY}.p{percent}": {who: hundredths[percent - 1]} for percent in (50, 99)}


async def _publish(publisher: TermPublisher, load: Load) -> list[int]:
    """Publish at a steady rate; when each message was handed to the library."""
    published: list[int] = []
    began = monotonic()
    async with asyncio.TaskGroup() as flying:
        for number in range(load.tasks):
            await pause(max(0.0, began + number / RATE - monotonic()))
            one = message(load, number)
            published.append(monotonic_ns())
            flying.create_task(publisher.publish(one))
    return published
