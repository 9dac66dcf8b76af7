"""One namespace over many partitions: which of them a task lies in, and a client of each.

Each partition has all of a namespace's keys under a hash tag of its own, so each script stays
within one slot of a Redis Cluster, and partitions can lie on different nodes. None knows of the
others. A namespace keeps their number for life, or until it is moved as a whole
(``groupflow repartition``).
"""

from __future__ import annotations

import asyncio
from hashlib import sha256

from groupflow.core.errors import StoreUnavailable
from groupflow.core.measures import ScriptMeasures
from groupflow.settings.model import Settings
from groupflow.store.client import StoreClient
from groupflow.store.hearing import StoreHearing
from groupflow.store.keys import Keys
from groupflow.store.layout import compare
from groupflow.store.scripts import Telling, Verb


def partition_of(group: str | None, id: str, count: int) -> int:
    """The partition in which a task lies: by its group, and without one by its id.

    The first eight bytes of the SHA-256 of the name in UTF-8, as a big-endian number, modulo
    `count`. That never changes: what is stored lies where this said.
    """
    if count == 1:
        return 0
    name = id if group is None else group
    digest = sha256(name.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % count


def keys_of(namespace: str, count: int) -> list[Keys]:
    """The keys of each partition. The tag of a namespace with only one has no number."""
    return [Keys(namespace)] if count == 1 else [Keys(namespace, n) for n in range(count)]


class Partitions(tuple[StoreClient, ...]):
    """A client of each partition, in order."""

    __slots__ = ()

    def of(self, group: str | None, id: str = "") -> StoreClient:
        """The one in which a task lies: by its group, and without one by its id."""
        return self[partition_of(group, id, len(self))]

    async def close(self) -> None:
        """Close all of them, even if one fails."""
        await asyncio.gather(*(client.close() for client in self), return_exceptions=True)


def open_partitions(settings: Settings) -> Partitions:
    """A client of each partition of the configured namespace; they connect on first use.

    Raises:
        ConfigError: the way to Redis isn't safe.
    """
    every = keys_of(settings.redis.namespace, settings.redis.partitions)
    return Partitions(open_client(settings, keys) for keys in every)


def open_client(
    settings: Settings,
    keys: Keys,
    *,
    timeout: float | None = None,
    measures: ScriptMeasures | None = None,
    hearing: StoreHearing | None = None,
    partitions: int | None = None,
) -> StoreClient:
    """A client for some keys of the configured Redis; it connects on first use.

    `timeout` (seconds) is `redis.timeout`, unless given; so is the number of `partitions`.
    """
    redis = settings.redis
    return StoreClient(
        settings.redis_url(),
        keys,
        settings.workers.order,
        timeout=redis.timeout if timeout is None else timeout,
        measures=measures,
        partitions=redis.partitions if partitions is None else partitions,
        hearing=hearing,
        telling=telling_of(settings),
    )


def telling_of(settings: Settings) -> Telling:
    """What scripts write of ended tasks."""
    events = settings.events
    return Telling(events.told, events.max_memory, settings.history.results_memory)


async def agree(client: StoreClient, count: int) -> None:
    """Note a namespace's number of partitions and format, or make sure that they are those noted.

    Args:
        client: of the namespace's keys without a partition's number.
        count: how many the configuration says.

    Raises:
        OtherLayout: the namespace has another of these, or is being moved.
        StoreUnavailable: no answer.
    """
    name = client.keys.namespace
    try:
        noted = await client.run(Verb.AGREE, count)
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"how many partitions namespace {name!r} has isn't noted in each of them yet, and the "
            f"node of {client.keys.tag}, which would tell, is away: {error}"
        ) from error
    compare(name, count, *noted)
