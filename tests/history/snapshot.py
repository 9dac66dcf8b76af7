"""A namespace read whole, as it lies in Redis at one instant.

It is read with a plain client, behind the back of the store's own scripts, and no key is known but
through `groupflow.store.keys`. It is for a store that stands still: it takes several round trips.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from redis import Redis

from groupflow.store.keys import Keys, split_checkpoint, split_element

POOL_KINDS = (
    "pool_ordered", "pool_suspect_plain", "pool_ready", "pool_suspect_groups", "pool_pullers",
    "pool_holders",
)  # fmt: skip
_NAMED = (
    "lane", "lock", "life", "daemon", "worker", "schedule", "scan", "waits", "shares", "lost",
    *POOL_KINDS,
)  # fmt: skip
_WHOLE_KINDS = (
    "plain", "ordered", "suspect_plain", "ready", "suspect_groups", "held", "delayed", "late",
    "fence", "daemons", "parked", "paused", "paused_all", "tasks", "dead", "bodies", "staying",
    "segments", "count", "carried", "samples", "tallies", "renamed", "moved", "partitions", "epoch",
    "recovering", "runs", "resumes", "schedules",
    "limits", "by_hand", "by_hand_ends", "by_hand_news", "sharing", "rates", "closed",
    "scans", "pools", "pullers",
    "waiting_groups", "turns", "standing", "charged", "charges", "debouncing", "losing",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A live claim as a worker's checkpoint has it."""

    daemon: str
    worker: str
    fence: int
    since: int
    element: bytes
    group: str


@dataclass(slots=True)
class Snapshot:
    """All that lies in one namespace, decoded."""

    at: int = field(default=0, compare=False)  # when it was read, by the server's clock (µs)
    lists: dict[str, list[bytes]] = field(default_factory=dict)
    zsets: dict[str, dict[bytes, float]] = field(default_factory=dict)
    hashes: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    strings: dict[str, bytes] = field(default_factory=dict)
    lanes: dict[str, list[bytes]] = field(default_factory=dict)
    locks: dict[str, bytes] = field(default_factory=dict)
    lives: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    daemons: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    scans: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    workers: set[str] = field(default_factory=set)
    lost: dict[str, list[bytes]] = field(default_factory=dict)  # by daemon: its process, then ids
    schedules: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    shares: dict[str, dict[bytes, float]] = field(default_factory=dict)  # by pool
    waits: dict[str, dict[bytes, float]] = field(default_factory=dict)  # by kind and tenant
    strangers: list[str] = field(default_factory=list)
    # by kind, without its "pool_", and by pool
    pools: dict[str, dict[str, dict[bytes, float]]] = field(default_factory=dict)

    def indexes(self, kind: str) -> Iterator[tuple[str, dict[bytes, float]]]:
        """An index of that kind, of what daemons claim (pool "") and of each pool."""
        yield "", self.zsets.get(kind, {})
        yield from self.pools.get(kind, {}).items()

    @property
    def leased(self) -> set[str]:
        """Daemons and workers that pull that have a lease, whether it runs or not."""
        pullers = (name.decode() for _, members in self.indexes("pullers") for name in members)
        return {*self.names("daemons"), *pullers}

    def pool_of(self, element: bytes) -> str:
        """The pool of a task; empty where daemons run it."""
        return self.lives.get(split_element(element)[1], {}).get(b"pool", b"").decode()

    def count(self, name: str) -> int:
        """One of the totals."""
        return int(self.hashes.get("count", {}).get(name.encode(), 0))

    def names(self, zset: str) -> list[str]:
        """The members of a zset of groups, ids or daemons."""
        return [member.decode() for member in self.zsets.get(zset, {})]

    def fields(self, hash_: str) -> list[str]:
        """The fields of a hash of groups or ids."""
        return [name.decode() for name in self.hashes.get(hash_, {})]

    @property
    def tasks(self) -> dict[str, bytes]:
        """The envelopes, by id."""
        return {id_.decode(): each for id_, each in self.hashes.get("tasks", {}).items()}

    @property
    def finished(self) -> dict[str, bytes]:
        """The history: how each task ended, by id."""
        both = {**self.hashes.get("history_old", {}), **self.hashes.get("history_new", {})}
        return {id_.decode(): line for id_, line in both.items()}

    def lined_up(self) -> Iterator[tuple[str, str]]:
        """Each group that waits for its tenant's turn, with kind and tenant in front."""
        for place, members in self.waits.items():
            for group in members if place[0] in "gG" else ():
                yield place, group.decode()

    @property
    def sharing(self) -> dict[str, set[bytes]]:
        """Who runs in groups without locks, as locks would say it."""
        found: dict[str, set[bytes]] = {}
        for member in self.zsets.get("sharing", {}):
            end = 4 + int(member[:4])
            found.setdefault(member[4:end].decode(), set()).add(member[end:])
        return found

    def group_of(self, element: bytes) -> str:
        """The group of a task that stands aside."""
        return self.lives.get(split_element(element)[1], {}).get(b"group", b"").decode()

    def crashes_of(self, element: bytes) -> int:
        """How many claims of a task ended in a crash."""
        return int(self.lives.get(split_element(element)[1], {}).get(b"crashes", 0))

    def waiting(self) -> Iterator[tuple[str, str, bytes]]:
        """Every waiting task: in which list, of which group, its element."""
        for element in self.lists.get("plain", []):
            yield "plain", "", element
        lined_up = set(self.hashes.get("turns", {}).values())
        for kind in ("ordered", "suspect_plain"):
            for pool, index in self.indexes(kind):
                for element in index:
                    if pool or element not in lined_up:  # else it waits for a turn, see below
                        yield f"{kind}:{pool}" if pool else kind, "", element
        for place, members in self.waits.items():
            for element in members if place[0] in "pP" else ():
                yield f"waits:{place}", "", element
        for element in self.zsets.get("delayed", {}):
            yield "delayed", self.group_of(element), element
        for group, elements in self.lanes.items():
            for element in elements:
                yield f"lane:{group}", group, element


def read(raw: Redis, keys: Keys) -> Snapshot:
    """Read a namespace whole."""
    time: Any = raw.time()
    found = Snapshot(at=int(time[0]) * 1_000_000 + int(time[1]))
    front = f"{keys.tag}:"
    names: list[Any] = sorted(raw.scan_iter(match=_escaped(front) + "*", count=1000))
    pipeline = raw.pipeline(transaction=False)
    for name in names:
        pipeline.type(name)
    types = pipeline.execute()
    for name, type_ in zip(names, types, strict=True):
        _ask(pipeline, name, type_.decode())
    values = pipeline.execute()
    whole = {keys(kind): kind for kind in (*_WHOLE_KINDS, "history_new", "history_old")}
    for name, type_, value in zip(names, types, values, strict=True):
        key = name.decode()
        if key in whole:
            _keep(found, whole[key], type_.decode(), value)
            continue
        kind, _, rest = key[len(front) :].partition(":")
        if kind in _NAMED and rest and keys(kind, rest) == key:
            _keep_named(found, kind, rest, value)
        else:
            found.strangers.append(key)
    return found


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in "[]?*\\" else char for char in text)


def _ask(pipeline: Any, name: bytes, type_: str) -> None:
    match type_:
        case "list":
            pipeline.lrange(name, 0, -1)
        case "zset":
            pipeline.zrange(name, 0, -1, withscores=True)
        case "hash":
            pipeline.hgetall(name)
        case _:
            pipeline.get(name)


def _keep(found: Snapshot, kind: str, type_: str, value: Any) -> None:
    match type_:
        case "list":
            found.lists[kind] = value
        case "zset":
            found.zsets[kind] = {row[0]: row[1] for row in value}
        case "hash":
            found.hashes[kind] = value
        case _:
            found.strings[kind] = value


def _keep_named(found: Snapshot, kind: str, name: str, value: Any) -> None:
    match kind:
        case "lane":
            found.lanes[name] = value
        case "shares":
            found.shares[name] = {row[0]: row[1] for row in value}
        case "waits":
            found.waits[name] = {row[0]: row[1] for row in value}
        case "lost":
            found.lost[name] = value
        case "lock":
            found.locks[name] = value
        case "life":
            found.lives[name] = value
        case "daemon":
            found.daemons[name] = value
        case "schedule":
            found.schedules[name] = value
        case "scan":
            found.scans[name] = value
        case _ if kind in POOL_KINDS:
            members = {row[0]: row[1] for row in value}
            found.pools.setdefault(kind.removeprefix("pool_"), {})[name] = members
        case _:
            found.workers.add(name)
            found.checkpoints += [
                _claim(name, worker.decode(), checkpoint)
                for worker, checkpoint in value.items()
                if checkpoint.startswith(b"L")
            ]


def _claim(daemon: str, worker: str, checkpoint: bytes) -> Checkpoint:
    fence, since, element, group = split_checkpoint(checkpoint)
    return Checkpoint(daemon, worker, fence, since, element, group)
