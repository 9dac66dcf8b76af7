"""What a claim costs as the backlog grows: the promise is that it does not."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import quantiles
from time import perf_counter

from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Arrival, Enqueuer
from groupflow.store.envelope import Envelope
from groupflow.store.keys import Keys
from groupflow.store.scripts import load_scripts
from groupflow.store.sessions import Session, Sessions
from groupflow.store.settlements import Complete, Settlement

BODY = b'{"row":"' + b"x" * 190 + b'"}'
BATCH = 500


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement.

    Attributes:
        name: what was measured.
        enqueued: tasks enqueued a second.
        claimed: tasks claimed and completed a second.
        p50: median milliseconds of one exchange (settle and claim for all workers).
        p99: the same at the 99th percentile.
        overhead: bytes of Redis memory a waiting task above its body.
    """

    name: str
    enqueued: float
    claimed: float
    p50: float
    p99: float
    overhead: float


async def measure(
    url: str, name: str, *, waiting: int, groups: int, hot: float, workers: int, exchanges: int
) -> Row:
    """Fill a store, then settle and claim for all workers at once, again and again.

    Args:
        url: an empty Redis.
        name: what to call the row.
        waiting: tasks that wait at first.
        groups: how many groups they are in.
        hot: the share of them that is in one group.
        workers: how many claim together.
        exchanges: how many round trips at most; fewer where the tasks run out.
    """
    keys = Keys("bench")
    client = StoreClient(url, keys, load_scripts(keys, "oldest"), timeout=60.0)
    try:
        await client.erase_namespace()
        before = (await client.info("memory"))["used_memory"]
        began = perf_counter()
        await _fill(client, waiting, groups, hot)
        enqueued = waiting / (perf_counter() - began)
        memory = (await client.info("memory"))["used_memory"] - before
        times, claimed = await _drain(client, workers, exchanges)
        cuts = quantiles((seconds * 1000 for seconds in times), n=100)
        overhead = memory / waiting - len(BODY)
        return Row(name, enqueued, claimed / sum(times), cuts[49], cuts[98], overhead)
    finally:
        await client.erase_namespace()
        await client.close()


async def _fill(client: StoreClient, waiting: int, groups: int, hot: float) -> None:
    enqueuer = Enqueuer(client)
    for first in range(0, waiting, BATCH):
        await enqueuer.enqueue(
            [
                Arrival(
                    f"{number:036d}",
                    Envelope(
                        "bench",
                        "hot" if number % 100 < hot * 100 else f"group:{number % groups}",
                        "1",
                        "r",
                        {},
                        BODY,
                    ),
                )
                for number in range(first, min(first + BATCH, waiting))
            ]
        )


async def _drain(client: StoreClient, workers: int, exchanges: int) -> tuple[list[float], int]:
    session = Session("bench")
    await Sessions(client, session, 600.0).register({})
    claims = Claims(client, session, "grouped")
    idle = [f"grouped-{number}" for number in range(workers)]
    finished: list[Settlement] = []
    times: list[float] = []
    claimed = 0
    for _ in range(exchanges):
        began = perf_counter()
        _, given = await claims.exchange(finished, idle)
        times.append(perf_counter() - began)
        claimed += len(given)
        finished = [Complete(claim) for claim in given]
        if not given:
            break
    await claims.exchange(finished, [])
    return times, claimed
