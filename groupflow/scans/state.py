"""A shard's state: how far it is, and which rows failed. Its task carries it as its context."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import orjson

MOST_ASIDE = 1000  # rows of a shard that failed: deferred, or dead letters that pages have to skip
KEY_BYTES = 200
ERROR_CHARS = 100  # of an error that is kept with a deferred row


def text_of_key(key: Any) -> str:
    """A row's key as it is stored.

    Raises:
        ValueError: it can't be stored.
    """
    try:
        packed = orjson.dumps(key)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a row's key is nothing that JSON can carry: {error}") from None
    if len(packed) > KEY_BYTES:
        raise ValueError(f"a row's key has {len(packed)} bytes, over {KEY_BYTES}")
    return packed.decode()


@dataclass(slots=True)
class Deferred:
    """A row that failed and is to be tried again."""

    attempts: int  # that failed
    due: float  # Unix seconds by Redis's clock
    fence: int  # of the claim under which it failed first: tells this story of the row from others
    error: str  # of the last attempt


@dataclass(slots=True)
class ShardState:
    """Rows are known by the JSON text of their keys; times are Unix seconds by Redis's clock."""

    after: Any = None  # the place of the last row that was done
    deferred: dict[str, Deferred] = field(default_factory=dict)
    dead: dict[str, str] = field(default_factory=dict)  # the ids of their dead letters
    done: int = 0  # rows, in this generation
    died: int = 0  # rows that became dead letters, in this generation
    last_pass: float | None = None  # when it last had nothing more to do
    trouble: str = ""  # why it can't fetch
    troubles: int = 0  # how often it couldn't, in a row
    # The row that is tried alone, since the shard crashed; and the shard's crashes before
    trying: Sequence[Any] | None = None
    inherited: int = 0  # rows that shards of the generation before had put aside, and still are

    @classmethod
    def of(cls, context: Mapping[str, Any]) -> Self:
        """The state that a task's context carries."""
        facts = {"deferred": {}, "dead": {}, **context}
        facts["deferred"] = {key: Deferred(*each) for key, each in facts["deferred"].items()}
        facts["dead"] = dict(facts["dead"])
        state = cls(**facts)
        state.inherited = min(state.inherited, len(state.deferred) + len(state.dead))
        return state

    def as_json(self) -> dict[str, Any]:
        """A context that carries it."""
        deferred = {
            key: [each.attempts, round(each.due, 3), each.fence, each.error]
            for key, each in self.deferred.items()
        }
        told = {each.name: getattr(self, each.name) for each in fields(self)}
        if not self.inherited:
            del told["inherited"]  # a daemon of a version before doesn't know it
        return told | {"deferred": deferred}

    def left(self) -> dict[str, Any]:
        """The facts that the next generation needs."""
        told = self.as_json()
        return {name: told[name] for name in ("deferred", "dead", "done")}

    @property
    def aside(self) -> int:
        """How many rows pages skip, without inherited ones, which all shards have."""
        return max(0, len(self.deferred) + len(self.dead) - self.inherited)

    def due(self, now: float) -> list[str]:
        """The rows whose time has come, the earliest first."""
        rows = [(each.due, key) for key, each in self.deferred.items() if each.due <= now]
        return [key for _, key in sorted(rows)]

    def skipped(self, now: float) -> list[str]:
        """The rows not to fetch now."""
        waiting = [key for key, each in self.deferred.items() if each.due > now]
        return [*waiting, *self.dead]

    def next_due(self) -> float | None:
        """When the next deferred row is due."""
        return min((each.due for each in self.deferred.values()), default=None)


def merged(ended: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What the shards of a generation left, merged."""
    deferred: dict[str, Any] = {}
    dead: dict[str, str] = {}
    for each in ended:
        deferred |= each["deferred"]
        dead |= each["dead"]
    number = len(deferred) + len(dead)
    return {"deferred": deferred, "dead": dead} | ({"inherited": number} if number else {})
