"""Scans in the store: what daemons agree on about a scan, and the names of its shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from secrets import token_hex
from typing import Any, Literal

import orjson

from groupflow.core.app import SCAN_TYPES
from groupflow.core.errors import TooFewReplicas
from groupflow.store.client import Argument, StoreClient
from groupflow.store.clock import seconds
from groupflow.store.envelope import Envelope
from groupflow.store.scripts import Verb
from groupflow.store.wire import ReplicaWait


def type_of(scan: str) -> str:
    """The type of a scan's tasks."""
    return f"{SCAN_TYPES}{scan}"


def group_of(scan: str, index: int) -> str:
    """The group that a shard is."""
    return f"{SCAN_TYPES}{scan}:{index}"


def scope_of(scan: str) -> str:
    """The scope of the ids of a scan's tasks: of no application and no tenant."""
    return blake2b(scan.encode(), digest_size=4, person=b"groupflow scan").hexdigest()


@dataclass(frozen=True, slots=True)
class Record:
    """What is agreed about a scan; times in Unix seconds."""

    name: str
    now: float  # by Redis's clock
    generation: int  # of its shards; the next one begins when all of this one have ended
    count: int  # shards of this generation
    wanted: int  # shards that the next one is to have
    token: str  # by which its tasks are known: no message can have it in its body
    after: Any = None  # from where this generation goes on
    done: int = 0  # rows done by those before
    closing: bool = False  # whether this generation is to end
    # by shard, what it told: how far it is; that it has ended, and what it leaves
    closed: Mapping[int, Any] = field(default_factory=dict)
    ended: Mapping[int, Any] = field(default_factory=dict)
    carried: Any = None  # what the last generation left, if asked for

    def id_of(self, index: int) -> str:
        """The id of a shard's task. No client can take it beforehand."""
        return f"{group_of(self.name, index)}.{self.generation}.{self.token[:8]}"

    def envelope(self, index: int, rule: str, **facts: Any) -> Envelope:
        """That of a shard's task, or of a row's, with further facts; `rule` tells which."""
        known = {"scan": self.name, "shard": index, "of": self.count, "token": self.token}
        body, scope = orjson.dumps({**known, **facts}), scope_of(self.name)
        return Envelope(type_of(self.name), group_of(self.name, index), None, rule, {}, body, scope)

    @property
    def shards(self) -> list[int]:
        """The shards of this generation."""
        return list(range(self.count))


def _record(name: str, now: int, flat: Sequence[bytes]) -> Record | None:
    facts = dict(zip([each.decode() for each in flat[::2]], flat[1::2], strict=True))
    if "token" not in facts:
        return None

    def told(kind: str) -> dict[int, Any]:
        front = f"{kind}:"
        return {
            int(key.removeprefix(front)): orjson.loads(value)
            for key, value in facts.items()
            if key.startswith(front)
        }

    return Record(
        name=name,
        now=seconds(now),
        generation=int(facts["generation"]),
        count=int(facts["count"]),
        wanted=int(facts["wanted"]),
        token=facts["token"].decode(),
        after=orjson.loads(facts.get("after", b"null")),
        done=int(facts.get("done", 0)),
        closing="closing" in facts,
        closed=told("closed"),
        ended=told("ended"),
        carried=orjson.loads(facts.get("carried", b"null")),
    )


class ScanRecords:
    """What is agreed about the scans of a namespace; it lies apart from all partitions."""

    def __init__(self, client: StoreClient, replica_wait: ReplicaWait | None = None) -> None:
        """Binds a client of the namespace's keys without a partition's number.

        With `replica_wait` the client is its own, and what a shard tells before it ends counts as
        written once so many replicas have it. It may lie on another server than the shard, and a
        fail-over there would leave a scan whose last shard never ends.
        """
        self._client = client
        self._replica_wait = replica_wait

    async def open(self, scan: str, shards: int) -> bool:
        """A daemon begins to run it, with so many shards. Whether that changed what is wanted."""
        return bool(await self._client.run(Verb.SCAN_OPEN, scan, shards, token_hex(16)))

    async def look(self, scan: str, *, carried: bool = False) -> Record | None:
        """What is agreed about a scan; ``None`` where there is none."""
        now, flat = await self._client.run(Verb.SCAN_LOOK, scan, "carried" if carried else "")
        return _record(scan, now, flat)

    async def report(
        self, record: Record, kind: Literal["closed", "ended"], index: int, told: Any
    ) -> Record | None:
        """Tell, once, how far a shard is, or that it has ended; returns what is agreed since.

        Raises:
            TooFewReplicas: it is told, and may still be lost. Tell it again.
            StoreUnavailable: no answer; it may have been told.
        """
        client, waits = self._client, self._replica_wait
        arguments: list[Argument] = [
            record.name,
            record.generation,
            kind,
            index,
            orjson.dumps(told),
        ]
        (now, flat), number, _ = await client.run_replicated(Verb.SCAN_REPORT, arguments, waits)
        if waits is not None and number < waits.replicas:
            raise TooFewReplicas(
                f"Redis at {client.address}: {number} replicas have what a shard told, and "
                f"redis.replicas is {waits.replicas}"
            )
        return _record(record.name, now, flat)

    async def begin_next(self, record: Record, after: Any, carried: Any, done: int) -> bool:
        """Begin the next generation. False where another daemon has."""
        place = b"" if after is None else orjson.dumps(after)
        begun = await self._client.run(
            *(Verb.SCAN_NEXT, record.name, record.generation, place, orjson.dumps(carried), done)
        )
        return bool(begun)

    async def names(self) -> list[str]:
        """All scans."""
        return sorted(name.decode() for name in await self._client.run(Verb.SCAN_NAMES))

    async def drop(self, scan: str) -> bool:
        """Forget a scan; its shards end. Returns whether there was one."""
        return bool(await self._client.run(Verb.SCAN_DROP, scan))


async def present(client: StoreClient, ids: Sequence[tuple[str, str]]) -> list[bool]:
    """Of each message id of a scope, whether a task of it waits, runs, or is a dead letter."""
    if not ids:
        return []
    found = await client.run(Verb.EXIST, *(part for each in ids for part in each))
    return [bool(is_there) for is_there in found]


async def hasten(client: StoreClient, ids: Sequence[str]) -> int:
    """Make delayed tasks due; of one that runs, the next stage. Returns how many are there."""
    return int(await client.run(Verb.HASTEN, *ids)) if ids else 0


async def bury_row(
    client: StoreClient,
    envelope: Envelope,
    id: str,
    fence: int,
    *,
    reason: str,
    kind: str,
    errors: list[dict[str, Any]],
    attempts: int,
) -> bool:
    """Write the dead letter of a row that has failed for good, once.

    Args:
        client: of the partition of its shard.
        envelope: by which it can be run again, in the group of its shard.
        id: the letter's.
        fence: of the claim that holds that group.
        reason: why it is dead.
        kind: what the last attempt failed of.
        errors: of its attempts, oldest first.
        attempts: how many.

    Returns:
        False where another claim holds the group by now.
    """
    buried = await client.run(
        *(Verb.BURY_ROW, envelope.group or "", fence, id, envelope.pack(), envelope.type),
        *(envelope.scope, reason, kind, orjson.dumps(errors), attempts),
    )
    return bool(buried)
