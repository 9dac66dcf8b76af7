"""Tasks that match: by each filter, page by page, over several partitions, by a bounded look."""

from __future__ import annotations

import pytest

from groupflow.operate import listing as search
from groupflow.operate.listing import TaskFilter, search_tasks
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from tests.store.bench import Bench


def task(id_: str, group: str | None, type_: str = "work", tenant: str = "7") -> Arrival:
    return Arrival(id_, Envelope(type_, group, tenant, "rule", {}, b"{}"))


async def every(bench: Bench, wanted: TaskFilter, limit: int) -> list[str]:
    """All that match, page by page."""
    found: list[str] = []
    cursor: str | None = "0"
    while cursor is not None:
        page = await search_tasks(bench.namespace, "queued", wanted, cursor=cursor, limit=limit)
        found += [row.id for row in page.rows]
        cursor = page.next
    return found


async def test_each_filter(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "CHUNK", 3)
    monkeypatch.setattr(search, "LOOKS", 2)
    await bench.enqueue(
        *(task(f"p{n}", None, "import.a" if n % 2 else "mail") for n in range(10)),
        *(task(f"g{n}", f"contact:{n % 3}", "import.b", str(n)) for n in range(9)),
    )
    everything = {*(f"p{n}" for n in range(10)), *(f"g{n}" for n in range(9))}
    for wanted, ids in (
        (TaskFilter(), everything),
        (TaskFilter(id="p1"), {"p1"}),
        (TaskFilter(type="mail"), {f"p{n}" for n in range(0, 10, 2)}),
        (TaskFilter(type="import.*"), everything - {f"p{n}" for n in range(0, 10, 2)}),
        (TaskFilter(tenant="8"), {"g8"}),
        (TaskFilter(group="contact:1"), {"g1", "g4", "g7"}),
        (TaskFilter(type="mail", tenant="8"), set()),
        (TaskFilter(older=3600.0), set()),
        (TaskFilter(older=0.000001), everything),
    ):
        found = await every(bench, wanted, 4)
        assert sorted(found) == sorted(ids), wanted
    page = await search_tasks(bench.namespace, "queued", TaskFilter(id="p9"))
    assert (page.rows, page.looked_at, page.next is None) == ([], 6, False), "a bounded look"
    for cursor in ("7.1.0.0", "1.2", "a.b.c.d"):
        with pytest.raises(ValueError, match="cursor"):
            await search_tasks(bench.namespace, "queued", TaskFilter(), cursor=cursor)
