"""What daemons report of themselves, beyond the totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

import orjson

from groupflow.operate.namespace import Namespace
from groupflow.operate.scripts import OperatorVerb, named
from groupflow.store.client import StoreClient


@dataclass(frozen=True, slots=True)
class KnownDaemon:
    """A daemon that has a session."""

    name: str
    lease_left: float  # seconds until its lease ends
    # what it reports: host, pid, workers, lease, a standing intake, its queues, its last reload
    info: dict[str, Any]

    @property
    def host(self) -> str:
        return str(self.info.get("host", ""))

    @property
    def pid(self) -> int:
        return int(self.info.get("pid", 0))

    @property
    def workers(self) -> int:
        return int(self.info.get("workers", 0))

    def consumes(self, queue: str) -> bool:
        """Whether it consumes the partitions of a queue."""
        return bool(self.info.get("queues", {}).get("of") == queue)

    @property
    def reload(self) -> dict[str, Any]:
        """What became of its last reload (see `flow.reload.Reload`); empty before the first."""
        return dict(self.info.get("reload", {}))


def known_daemon(row: Sequence[Any]) -> KnownDaemon:
    """A daemon as `status.lua` answers it."""
    facts = named(row, "lease_left")
    return KnownDaemon(facts["name"], facts["lease_left"], orjson.loads(facts["info"]))


async def read_daemons(namespace: Namespace) -> list[KnownDaemon]:
    """The daemons whose lease runs in any partition, each as its newest session reports it.

    Raises:
        StoreUnavailable: no partition answers.
    """
    answers = await namespace.ask_all(daemons_in)
    known = sorted(chain.from_iterable(answers.all), key=attrgetter("lease_left"))
    return [*{each.name: each for each in known}.values()]


async def daemons_in(client: StoreClient) -> list[KnownDaemon]:
    """The daemons whose lease runs in a partition."""
    facts = named(await client.run(OperatorVerb.STATUS))
    known = [known_daemon(row) for row in facts["daemons"]]
    return [each for each in known if each.lease_left > 0]


async def count_consumers(client: StoreClient, queue: str) -> int:
    """How many daemons consume the partitions of a queue.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    return sum(daemon.consumes(queue) for daemon in await daemons_in(client))


async def read_configuration(namespace: Namespace, daemon: str) -> dict[str, Any] | None:
    """The configuration of a daemon, passwords hidden; ``None`` if it reported none.

    Raises:
        StoreUnavailable: no partition answers.
    """
    answers = await namespace.ask_all(lambda client: client.run(OperatorVerb.CONFIGURATION, daemon))
    return next((orjson.loads(packed) for packed in answers.all if packed), None)
