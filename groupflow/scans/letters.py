"""Rows that have failed for good, as dead letters of their shard's group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import orjson

from groupflow.core.policy import ROW_RULE
from groupflow.scans.state import Deferred
from groupflow.scans.turn import Held
from groupflow.store.client import StoreClient
from groupflow.store.envelope import Envelope
from groupflow.store.scans import RowDeath, group_of, present, scope_of, type_of


class RowLetters:
    """The dead letters of a shard's rows."""

    def __init__(self, held: Held, store_of: Callable[[str], StoreClient]) -> None:
        """Binds the shard; `store_of` gives the store of a group."""
        self._held = held
        self._store_of = store_of

    async def bury(self, key: str, story: Deferred, kind: str) -> str | None:
        """Make a dead letter of a row; returns its id, or ``None`` if the shard is lost."""
        record, index = self._held.record, self._held.index
        type_, group = type_of(record.name), group_of(record.name, index)
        facts = {
            "scan": record.name,
            "row": orjson.loads(key),
            "shard": index,
            "of": record.count,
            "token": record.token,
        }
        scope = scope_of(record.name)
        envelope = Envelope(type_, group, None, ROW_RULE, {}, orjson.dumps(facts), scope)
        error = {"attempt": story.attempts, "stage": None, "error": kind, "message": story.error}
        death = RowDeath(
            id=f"{group}/{key}/{story.fence}",
            group=group,
            fence=self._held.task.fence,
            packed=envelope.pack(),
            type=type_,
            scope=scope,
            reason=f"row {key}: {story.error}",
            kind=kind,
            errors=[error],
            attempts=story.attempts,
        )
        return death.id if await death.bury(self._store_of(group)) else None

    async def present(self, ids: Sequence[str]) -> set[str]:
        """Those of some letters that are still there, or were redriven and wait or run."""
        by_store: dict[StoreClient, list[str]] = defaultdict(list)
        for id_ in ids:  # of this shard, or of one of an earlier generation
            by_store[self._store_of(id_.partition("/")[0])].append(id_)
        there: set[str] = set()
        for client, some in by_store.items():
            scope = scope_of(self._held.record.name)
            found = await present(client, [(id_, scope) for id_ in some])
            there |= {id_ for id_, is_there in zip(some, found, strict=True) if is_there}
        return there
