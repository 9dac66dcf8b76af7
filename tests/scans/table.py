"""A table in memory, and a scan over it; what was done to which row, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from groupflow import Scan, Shard


@dataclass
class Table:
    """Rows that are whole numbers; those in `open` want work."""

    open: set[int] = field(default_factory=set)
    broken: set[int] = field(default_factory=set)  # rows that fail
    hangs: set[int] = field(default_factory=set)  # rows that never end
    silent: str = ""  # "fetch" or "find", which never answers
    away: BaseException | None = None  # why nothing can be fetched
    is_marked: bool = True  # else nothing says of a row that it is done
    done: list[int] = field(default_factory=list)
    pages: list[Shard] = field(default_factory=list)  # what each fetch was told
    reached: asyncio.Event = field(default_factory=asyncio.Event)  # a row that hangs

    def of(self, shard: Shard) -> list[int]:
        """The open rows of a slice, in order."""
        return sorted(row for row in self.open if row % shard.count == shard.index)

    async def fetch(self, shard: Shard) -> Sequence[int]:
        """A page of those that are open, or behind the cursor."""
        self.pages.append(shard)
        if self.away:
            raise self.away
        await self._answer("fetch")
        after = -1 if shard.after is None else shard.after
        passed = shard.skip if self.is_marked else ()
        return [r for r in self.of(shard) if r > after and r not in passed][: shard.page]

    async def find(self, keys: Sequence[Any], shard: Shard) -> Sequence[int]:
        """Those of some keys that are open."""
        await self._answer("find")
        return [row for row in self.of(shard) if row in keys]

    async def work(self, row: int, shard: Shard) -> None:
        """Do a row and mark it."""
        if row in self.broken:
            raise ValueError(f"row {row} is broken")
        if row in self.hangs:
            self.reached.set()
            await asyncio.Event().wait()
        self.done.append(row)
        if self.is_marked:
            self.open.discard(row)

    async def _answer(self, what: str) -> None:
        if what == self.silent:
            await asyncio.Event().wait()


def scan_of(table: Table, *, find: bool = False, cursor: bool = False, **facts: Any) -> Scan:
    """A scan over it; deferred rows are due at once, unless an interval says otherwise."""
    table.is_marked = not cursor
    scan = Scan("orders", **{"interval": -1e-6, "page": 10, **facts})
    scan.fetch(table.fetch)
    if find:
        scan.find(table.find)
    scan.row(key=_itself, after=_itself if cursor else None)(table.work)
    return scan


def _itself(row: Any) -> Any:
    return row
