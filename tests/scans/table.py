"""A table in memory, and a scan over it; what was done to which row, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from groupflow import Scan, Shard


@dataclass
class Table:
    """Rows that are whole numbers; those in `open` want work."""

    open: set[int] = field(default_factory=set)
    done: list[int] = field(default_factory=list)
    pages: list[Shard] = field(default_factory=list)  # what each fetch was told
    broken: Callable[[int], bool] = lambda _row: False  # rows that fail
    away: str = ""  # why nothing can be fetched

    def of(self, shard: Shard) -> list[int]:
        """The open rows of a slice, in order."""
        return sorted(row for row in self.open if row % shard.count == shard.index)

    async def fetch(self, shard: Shard) -> Sequence[int]:
        """A page of those that are open."""
        self.pages.append(shard)
        if self.away:
            raise OSError(self.away)
        return [row for row in self.of(shard) if row not in shard.skip][: shard.page]

    async def fetch_behind(self, shard: Shard) -> Sequence[int]:
        """A page of those behind the cursor; nothing is ever marked."""
        self.pages.append(shard)
        after = -1 if shard.after is None else shard.after
        return [row for row in self.of(shard) if row > after][: shard.page]

    async def find(self, keys: Sequence[Any], shard: Shard) -> Sequence[int]:
        """Those of some keys that are open."""
        return [row for row in self.of(shard) if row in keys]

    async def work(self, row: int, shard: Shard) -> None:
        """Do a row and mark it."""
        if self.broken(row):
            raise ValueError(f"row {row} is broken")
        self.done.append(row)
        self.open.discard(row)

    async def work_unmarked(self, row: int, shard: Shard) -> None:
        """Do a row of a table that has no status."""
        if self.broken(row):
            raise ValueError(f"row {row} is broken")
        self.done.append(row)


def scan_of(table: Table, *, find: bool = False, cursor: bool = False, **facts: Any) -> Scan:
    """A scan over it; deferred rows are due at once, unless an interval says otherwise."""
    scan = Scan("orders", **{"interval": -1e-6, "page": 10, **facts})
    scan.fetch(table.fetch_behind if cursor else table.fetch)
    if find:
        scan.find(table.find)
    work = table.work_unmarked if cursor else table.work
    scan.row(key=_itself, after=_itself if cursor else None)(work)
    return scan


def _itself(row: Any) -> Any:
    return row
