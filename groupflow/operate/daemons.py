"""What daemons tell of themselves, for those who ask beyond `status`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient


@dataclass(frozen=True, slots=True)
class KnownDaemon:
    """A daemon that has a session.

    Attributes:
        name: its name.
        host: where it runs.
        pid: its process.
        workers: how many it has.
        reload: what became of its last reload (see `flow.reload.Outcome`); empty before the first.
    """

    name: str
    host: str
    pid: int
    workers: int
    reload: dict[str, Any]


async def read_daemons(client: StoreClient) -> list[KnownDaemon]:
    """The daemons whose lease runs.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    _, _, _, _, _, _, _, rows, *_ = await client.run(OperatorVerb.STATUS)
    return [_known(name, packed) for name, lease_left, packed in rows if lease_left > 0]


async def read_configuration(client: StoreClient, daemon: str) -> dict[str, Any] | None:
    """The configuration that a daemon runs with, passwords hidden; ``None`` where it told none.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    packed = await client.run(OperatorVerb.TOLD, daemon)
    found: dict[str, Any] | None = orjson.loads(packed) if packed else None
    return found


def _known(name: bytes, packed: bytes) -> KnownDaemon:
    info = orjson.loads(packed)
    return KnownDaemon(
        name.decode(),
        info.get("host", ""),
        info.get("pid", 0),
        info.get("workers", 0),
        info.get("reload", {}),
    )
