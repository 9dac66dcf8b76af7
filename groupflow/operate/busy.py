"""The groups that matter just now, and the tasks that run: what a live view shows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient
from groupflow.store.clock import MICROSECONDS

LOOKED_AT = 200  # groups of each state, and running tasks: bounds the script


@dataclass(frozen=True, slots=True)
class Busy:
    """A group, or a plain task that runs.

    Attributes:
        group: which; ``None`` for a plain task.
        state: running, ready, delayed, parked or paused.
        waiting: tasks that wait in it, beside the one that runs.
        seconds: how long its task has been running, ``None`` unless one is.
        task: its id; ``daemon`` and ``worker`` say where it runs.
        daemon: by name.
        worker: within the daemon.
    """

    group: str | None
    state: str
    waiting: int
    seconds: float | None = None
    task: str | None = None
    daemon: str | None = None
    worker: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The public shape of a row of ``groupflow top --json``."""
        return asdict(self)


async def read_busy(client: StoreClient) -> list[Busy]:
    """Groups that run or are next in line, and plain tasks that run; some of each, never all.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    now, rows = await client.run(OperatorVerb.TOP, LOOKED_AT)
    return [_busy(now, *row) for row in rows]


def _busy(  # noqa: PLR0917  the row that top.lua answers, in its order
    now: int,
    group: bytes,
    state: bytes,
    waiting: int,
    since: int,
    task: bytes,
    daemon: bytes,
    worker: bytes,
) -> Busy:
    return Busy(
        group=group.decode() or None,
        state=state.decode(),
        waiting=waiting,
        seconds=round((now - since) / MICROSECONDS, 3) if since else None,
        task=task.decode() or None,
        daemon=daemon.decode() or None,
        worker=worker.decode() or None,
    )
