"""What the store holds just now, in numbers: one script, whatever waits."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient
from groupflow.store.clock import MICROSECONDS


@dataclass(frozen=True, slots=True)
class Gauges:
    """The whole store at one instant; every daemon reads the same.

    Attributes:
        queued: tasks that wait, in a lane or delayed too, by pool.
        running: tasks that workers hold, by pool.
        groups: groups that aren't idle, by state.
        delayed: of the queued tasks, those that stand aside until they are due.
        dead: dead letters.
        waited: seconds for which the task that goes next could have been claimed, by pool; 0 where
            none waits.
        daemons: with an open session.
        workers: of all of them.
        heartbeat_age: seconds since the daemon that is silent for longest renewed its lease.
    """

    queued: dict[str, int]
    running: dict[str, int]
    groups: dict[str, int]
    delayed: int
    dead: int
    waited: dict[str, float]
    daemons: int
    workers: int
    heartbeat_age: float


async def read_gauges(client: StoreClient) -> Gauges:
    """Read all of them in one instant.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    reply = await client.run(OperatorVerb.STATUS)
    flat, ready, held, parked, paused, dead, delayed, rows, plain, grouped, *_ = reply
    count = {name.decode(): int(total) for name, total in zip(flat[::2], flat[1::2], strict=True)}
    infos = [orjson.loads(packed) for _, _, packed in rows]
    ages = [
        info.get("lease", 0.0) - left / MICROSECONDS
        for info, (_, left, _) in zip(infos, rows, strict=True)
    ]
    running = {pool: count.get(f"running_{pool}", 0) for pool in ("plain", "grouped")}
    return Gauges(
        queued={pool: count.get(f"queued_{pool}", 0) for pool in ("plain", "grouped")},
        running=running,
        groups={
            "ready": ready,
            "running": running["grouped"],
            "delayed": held,
            "parked": parked,
            "paused": paused,
        },
        delayed=delayed,
        dead=dead,
        waited={
            pool: max(0, waited) / MICROSECONDS
            for pool, waited in (("plain", plain), ("grouped", grouped))
        },
        daemons=len(rows),
        workers=sum(info.get("workers", 0) for info in infos),
        heartbeat_age=max(0.0, *ages) if ages else 0.0,
    )
