"""What operators ask of the store; nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient
from groupflow.store.clock import MICROSECONDS


@dataclass(frozen=True, slots=True)
class PlainStatus:
    """Tasks without a group, by whether they wait or run."""

    queued: int
    running: int


@dataclass(frozen=True, slots=True)
class GroupedStatus:
    """Tasks with a group, and the groups by state; a delayed group waits for its head's time."""

    queued: int
    running: int
    groups: int
    ready: int
    delayed: int
    parked: int


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """One daemon; `heartbeat_age` is the seconds since it last renewed its lease."""

    name: str
    pid: int
    host: str
    workers: int
    heartbeat_age: float


@dataclass(frozen=True, slots=True)
class IntakeStatus:
    """A daemon whose intake stands: why, and since when in Unix seconds by that daemon's clock."""

    daemon: str
    paused: str
    since: float


@dataclass(frozen=True, slots=True)
class Status:
    """The whole at one instant; `intake` has the daemons whose intake stands, and no others."""

    plain: PlainStatus
    grouped: GroupedStatus
    dead: int
    done_total: int
    failed_total: int
    daemons: list[DaemonStatus]
    intake: list[IntakeStatus]

    def as_json(self) -> dict[str, Any]:
        """The public shape of ``groupflow status --json``."""
        return asdict(self)


async def read_status(client: StoreClient) -> Status:
    """Read totals and daemons in one instant.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    return status_of(await client.run(OperatorVerb.STATUS))


def status_of(reply: Sequence[Any]) -> Status:
    """What status.lua has answered."""
    flat, ready, held, parked, paused, dead, _delayed, rows, *_ = reply
    count = {name.decode(): int(total) for name, total in zip(flat[::2], flat[1::2], strict=True)}
    running = count.get("running_grouped", 0)
    return Status(
        plain=PlainStatus(count.get("queued_plain", 0), count.get("running_plain", 0)),
        grouped=GroupedStatus(
            queued=count.get("queued_grouped", 0),
            running=running,
            groups=ready + held + running + parked + paused,
            ready=ready,
            delayed=held,
            parked=parked,
        ),
        dead=dead,
        done_total=count.get("done", 0),
        failed_total=count.get("buried", 0),
        daemons=[_daemon(*row) for row in rows],
        intake=[standing for row in rows if (standing := _standing(*row)) is not None],
    )


def _daemon(name: bytes, lease_left: int, packed: bytes) -> DaemonStatus:
    info = orjson.loads(packed)
    return DaemonStatus(
        name=name.decode(),
        pid=info.get("pid", 0),
        host=info.get("host", ""),
        workers=info.get("workers", 0),
        heartbeat_age=round(max(0.0, info.get("lease", 0.0) - lease_left / MICROSECONDS), 3),
    )


def _standing(name: bytes, _lease_left: int, packed: bytes) -> IntakeStatus | None:
    told = orjson.loads(packed).get("intake")
    return IntakeStatus(name.decode(), told["paused"], told["since"]) if told else None
