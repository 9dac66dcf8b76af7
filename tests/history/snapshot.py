"""A namespace read whole, as it lies in Redis at one instant.

It is read with a plain client, behind the back of the store's own scripts, and no key is known but
through `groupflow.store.keys`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import product
from typing import Any

import orjson
from redis import Redis

from groupflow.store.keys import Keys, split_checkpoint, split_entry

POOL_KINDS = (
    "pool_ordered", "pool_quarantined_plain", "pool_ready", "pool_quarantined_groups",
    "pool_pullers", "pool_holders",
)  # fmt: skip
_NAMED = {
    "lane": "lanes", "lock": "locks", "task_state": "lives", "daemon": "daemons",
    "schedule": "schedules", "scan": "scans", "waits": "waits", "shares": "shares", "lost": "lost",
    "cap_waits": "cap_waits", "types": "types", "unknown_tasks": "unknown_tasks",
    "progress": "progress",
}  # fmt: skip
"""Kinds with a name behind them, and where a snapshot has them."""
_TYPES = {b"list": "lists", b"zset": "zsets", b"hash": "hashes", b"string": "strings"}
_WHOLE_KINDS = (
    "plain", "ordered", "ready", "quarantined_plain", "quarantined_groups", "held", "delayed",
    "late", "fence", "daemons", "parked", "paused", "paused_all", "tasks", "dead", "bodies",
    "staying", "segments", "count", "carried", "samples", "tally", "tallies", "renamed", "moved",
    "partitions", "epoch", "recovering", "runs", "resumes", "schedules",
    "limits", "by_hand", "by_hand_ends", "by_hand_news", "sharing", "rates", "closed",
    "scans", "pools",
    "waiting_groups", "turns", "standing", "charged", "charges", "debouncing", "losing",
    "cancels", "expiring", "caps", "cap_lines", "cap_groups", "cap_tasks", "cap_turns",
    "cap_standing", "cap_charged", "cap_charges", "cap_reviews", "unknown", "aside", "drains",
    "outbox", "outbox_full", "actions",
)  # fmt: skip
_READ = """
local reads = {
  list = function(key) return redis.call('LRANGE', key, 0, -1) end,
  zset = function(key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end,
  hash = function(key) return redis.call('HGETALL', key) end,
  string = function(key) return redis.call('GET', key) end,
}
local rows = {}
for number, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local type_ = redis.call('TYPE', key).ok
  rows[number] = {key, type_, reads[type_](key)}
end
return rows
"""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A live claim as a worker's checkpoint has it."""

    daemon: str
    worker: str
    fence: int
    since: int
    entry: bytes
    group: str


@dataclass
class Snapshot:
    """All that lies in one namespace, decoded; nothing of it is changed once it was read."""

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
    cap_waits: dict[str, dict[bytes, float]] = field(default_factory=dict)  # by place
    types: dict[str, dict[bytes, bytes]] = field(default_factory=dict)  # by daemon, those it knows
    unknown_tasks: dict[str, dict[bytes, float]] = field(default_factory=dict)  # by type
    progress: dict[str, dict[bytes, bytes]] = field(default_factory=dict)  # by daemon
    strangers: list[str] = field(default_factory=list)
    # by kind, without its "pool_", and by pool
    pools: dict[str, dict[str, dict[bytes, float]]] = field(default_factory=dict)

    def indexes(self, kind: str) -> Iterator[tuple[str, dict[bytes, float]]]:
        """An index of that kind, of what daemons claim (pool "") and of each pool."""
        yield "", self.zsets.get(kind, {})
        yield from self.pools.get(kind, {}).items()

    @cached_property
    def leased(self) -> set[str]:
        """Daemons and workers that pull that have a lease, whether it runs or not."""
        pools = self.pools.get("pullers", {}).values()
        return {*self.names("daemons"), *(name.decode() for names in pools for name in names)}

    def pool_of(self, entry: bytes) -> str:
        """The pool of a task; empty where daemons run it."""
        return self.task_state_of(entry).get(b"pool", b"").decode()

    def count(self, name: str) -> int:
        """One of the totals."""
        return int(self.hashes.get("count", {}).get(name.encode(), 0))

    def names(self, zset: str) -> list[str]:
        """The members of a zset of groups, ids or daemons."""
        return [member.decode() for member in self.zsets.get(zset, {})]

    def fields(self, hash_: str) -> list[str]:
        """The fields of a hash of groups or ids."""
        return [name.decode() for name in self.hashes.get(hash_, {})]

    @cached_property
    def tasks(self) -> dict[str, bytes]:
        """The envelopes, by id."""
        return {id_.decode(): each for id_, each in self.hashes.get("tasks", {}).items()}

    @cached_property
    def finished(self) -> dict[str, bytes]:
        """The history: how each task ended, by id."""
        both = {**self.hashes.get("history_old", {}), **self.hashes.get("history_new", {})}
        return {id_.decode(): line for id_, line in both.items()}

    def lined_up(self) -> Iterator[tuple[str, str]]:
        """Each group that waits for its tenant's turn, with kind and tenant in front."""
        for place, members in self.waits.items():
            for group in members if place[0] in "gG" else ():
                yield place, group.decode()

    def waiting_for_turns(self) -> set[bytes]:
        """What waits for its tenant's turn."""
        return {member for members in self.waits.values() for member in members}

    @cached_property
    def sharing(self) -> dict[str, set[bytes]]:
        """Who runs in groups without locks, as locks would say it."""
        found: dict[str, set[bytes]] = {}
        for member in self.zsets.get("sharing", {}):
            end = 4 + int(member[:4])
            found.setdefault(member[4:end].decode(), set()).add(member[end:])
        return found

    def task_state_of(self, entry: bytes) -> dict[bytes, bytes]:
        """What is known of a task beside its envelope."""
        return self.lives.get(split_entry(entry)[1], {})

    def crashes_of(self, entry: bytes) -> int:
        """How many claims of a task ended in a crash."""
        return int(self.task_state_of(entry).get(b"crashes", 0))

    def facts_of(self, entry: bytes) -> list[Any] | None:
        """What the envelope of an entry's task says: type, group, tenant, rule, …, scope."""
        packed = self.tasks.get(split_entry(entry)[1])
        return None if packed is None else facts_in(packed)

    @cached_property
    def waiting(self) -> list[tuple[str, str, bytes]]:
        """Every waiting task: in which list, of which group, its entry."""
        return [*self._find_waiting()]

    def _find_waiting(self) -> Iterator[tuple[str, str, bytes]]:
        for entry in self.lists.get("plain", []):
            yield "plain", "", entry
        lined_up = {*self.hashes.get("turns", {}).values(), *self.hashes.get("cap_tasks", {})}
        for kind in ("ordered", "quarantined_plain"):
            for pool, index in self.indexes(kind):
                for entry in index:
                    if entry not in lined_up:  # else it waits for a turn, see below
                        yield f"{kind}:{pool}" if pool else kind, "", entry
        for place, members in self.waits.items():
            for entry in members if place[0] in "pP" else ():
                if entry not in self.hashes.get("cap_tasks", {}):
                    yield f"waits:{place}", "", entry
        for entry, at in self.hashes.get("cap_tasks", {}).items():
            yield f"cap_waits:{at.decode()}", "", entry
        for entry in self.zsets.get("delayed", {}):
            yield "delayed", self.task_state_of(entry).get(b"group", b"").decode(), entry
        for group, entries in self.lanes.items():
            for entry in entries:
                yield f"lane:{group}", group, entry


def facts_in(packed: bytes) -> list[Any]:
    """The facts that an envelope begins with: type, group, tenant, rule, …, scope."""
    facts: list[Any] = orjson.loads(packed.partition(b"\n")[0])
    return facts


def read(raw: Redis, keys: Keys) -> Snapshot:
    """Read a namespace whole."""
    time: Any = raw.time()
    found = Snapshot(at=int(time[0]) * 1_000_000 + int(time[1]))
    front, whole = f"{keys.tag}:", _kinds_of(keys)
    rows: Any = raw.eval(_READ, 1, front, _escaped(front) + "*")
    for name, type_, packed in sorted(rows):
        key, value = name.decode(), _UNPACK.get(type_, _itself)(packed)
        if key in whole:
            getattr(found, _TYPES[type_])[whole[key]] = value
            continue
        kind, _, rest = key[len(front) :].partition(":")
        if kind in (*_NAMED, "worker", *POOL_KINDS) and rest and keys(kind, rest) == key:
            _keep_named(found, kind, rest, value)
        else:
            found.strangers.append(key)
    return found


def _itself(value: Any) -> Any:
    return value


_UNPACK: dict[bytes, Callable[[Any], Any]] = {
    b"hash": lambda value: dict(zip(value[::2], value[1::2], strict=True)),
    b"zset": lambda value: dict(zip(value[::2], map(float, value[1::2]), strict=True)),
}


@cache
def _kinds_of(keys: Keys) -> dict[str, str]:
    """By each key that has no name behind it, which kind it is of."""
    pairs = product(("history", "results", "lately"), ("new", "old"))
    return {keys(kind): kind for kind in (*_WHOLE_KINDS, *map("_".join, pairs))}


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in "[]?*\\" else char for char in text)


def _keep_named(found: Snapshot, kind: str, name: str, value: Any) -> None:
    if kind in _NAMED:
        getattr(found, _NAMED[kind])[name] = value
    elif kind in POOL_KINDS:
        found.pools.setdefault(kind.removeprefix("pool_"), {})[name] = value
    else:
        found.workers.add(name)
        found.checkpoints += [
            Checkpoint(name, worker.decode(), *split_checkpoint(checkpoint))
            for worker, checkpoint in value.items()
            if checkpoint.startswith(b"L")
        ]
