"""How a list comes in and is written: in slices, within limits, at a pace, one of each token."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson
import pytest

from groupflow.core.routing import scope_of
from groupflow.pools import filling
from groupflow.pools.lists import IN_MEMORY, SLICE_BYTES, SpooledList
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from tests.deadlines import deadline
from tests.pools.conftest import Shop
from tests.pools.shop import OTHER, TOKEN, Worker, api_of, as_, lines

LIST = "/couriers/tasks"


def spooled(*sizes: int) -> SpooledList:
    """A list of bodies of so many bytes, about."""
    found = SpooledList(("t",), 16 * 1024 * 1024, 1_000_000)
    for n, size in enumerate(sizes):
        found.feed(orjson.dumps({"id": f"{n}", "body": {"x": "x" * size}}) + b"\n")
    found.end()
    return found


def test_slices_are_bounded_in_tasks_and_in_bytes() -> None:
    """A line that is larger than a slice goes alone."""
    tenth, large = SLICE_BYTES // 10, 3 * SLICE_BYTES
    found = spooled(*[tenth] * 25, large, large, *[10] * 600)
    slices = [[len(line.body) for line in some] for some in found.read(250)]
    assert [len(some) for some in slices] == [9, 9, 7, 1, 1, 250, 250, 100]
    assert all(len(some) == 1 or sum(some) <= SLICE_BYTES for some in slices)
    found.close()


async def waiting(shop: Shop) -> list[str]:
    """The tasks that wait in the pool."""
    found: set[str] = set()
    for bench in shop.spread.benches:
        keys: Any = bench.raw.hkeys(bench.keys("tasks"))
        found |= {key.decode() for key in keys}
    return sorted(found)


def rows(*names: str) -> bytes:
    return lines(*({"id": name} for name in names))


async def refused(api: httpx.AsyncClient, sent: bytes, words: str) -> None:
    answer = await api.put(LIST, content=sent, headers=as_(TOKEN))
    assert answer.status_code == 503, answer.text
    assert words in answer.json()["detail"]
    assert int(answer.headers["retry-after"]) > 0


async def test_a_list_stops_below_what_may_wait(shop: Shop) -> None:
    """Nothing goes that waited before; less than what waits is always taken."""
    async with api_of(shop.namespace, redis={"max_waiting": 100}) as api:
        old = [f"old{n}" for n in range(20)]
        await api.put(LIST, content=rows(*old), headers=as_(TOKEN))
        for _ in range(2):
            await refused(api, rows(*(f"n{n:04}" for n in range(2000))), "redis.max_waiting is 100")
        waits = await waiting(shop)
        assert set(old) <= set(waits)
        assert len(waits) <= 90 * len(shop.spread.benches)
        less = await api.put(LIST, content=rows(*old[:5]), headers=as_(TOKEN))
        assert (less.status_code, less.json()["kept"]) == (200, 5)
        assert await waiting(shop) == sorted(old[:5])


async def test_a_list_stops_below_the_memory_that_redis_may_use(shop: Shop) -> None:
    """With more room, the same list is made whole."""
    bench = shop.spread.benches[0]
    await shop.api.put(LIST, content=rows("old"), headers=as_(TOKEN))
    room = int((bench.used_memory() + 16 * 1024 * 1024) / 0.9)
    sent = lines(*({"id": f"n{n:02}", "body": {"x": "x" * 1024 * 1024}} for n in range(40)))
    async with api_of(shop.namespace, redis={"max_memory": room}) as api:
        await refused(api, sent, f"redis.max_memory is {room}")
    assert "old" in await waiting(shop)
    assert bench.used_memory() < room
    counts = (await shop.api.put(LIST, content=sent, headers=as_(TOKEN))).json()
    assert (counts["added"] + counts["kept"], counts["removed"]) == (40, 1)


class Held:
    """A body that stops behind its first line until it is let go."""

    def __init__(self, name: str) -> None:
        self.parts = lines({"id": f"{name}0"}), lines({"id": f"{name}1"})
        self.has_begun, self.goes_on = asyncio.Event(), asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.parts[0]
        self.has_begun.set()
        await self.goes_on.wait()
        yield self.parts[1]


def put(api: httpx.AsyncClient, sent: Any, token: str, pool: str) -> asyncio.Task[httpx.Response]:
    headers = as_(token)
    if isinstance(sent, Held):
        headers["content-length"] = str(len(b"".join(sent.parts)))
    return asyncio.create_task(api.put(f"/{pool}/tasks", content=sent, headers=headers))


async def test_a_token_has_one_list_under_way(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """And all of them together have a few."""
    held = Held("a")
    first = put(shop.api, held, TOKEN, "couriers")
    async with asyncio.timeout(deadline()):
        await held.has_begun.wait()
    answers = [await put(shop.api, b"", token, "others") for token in (TOKEN, OTHER)]
    monkeypatch.setattr(filling, "MOST", 1)
    answers.append(await put(shop.api, b"", OTHER, "others"))
    assert [answer.status_code for answer in answers] == [429, 200, 503]
    assert all(int(answers[n].headers["retry-after"]) > 0 for n in (0, 2))
    held.goes_on.set()
    assert (await first).json()["added"] == 2
    assert (await put(shop.api, b"", TOKEN, "others")).status_code == 200


async def test_a_slow_list_is_cut_off(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its token may send another one at once."""
    monkeypatch.setattr(filling, "GRACE", 0.2)
    await shop.api.put(LIST, content=rows("old"), headers=as_(TOKEN))
    answer = await put(shop.api, Held("a"), TOKEN, "couriers")
    assert answer.status_code == 408, answer.text
    assert "bytes a second" in answer.json()["detail"]
    assert await waiting(shop) == ["old"]
    again = await shop.api.put(LIST, content=rows("b"), headers=as_(TOKEN))
    assert (again.status_code, again.json()["removed"]) == (200, 1)


async def test_the_longest_id_has_room_for_what_tells_it_apart(shop: Shop) -> None:
    """A stranger has published it before; the task can be settled, and named by operators."""
    longest, scope = "x" * 1024, scope_of(None, "666")
    theirs = Envelope("t", None, "666", None, {}, b'{"tenant_id": 666}', scope)
    await shop.spread.enqueue(Arrival(longest, theirs))
    sent = lines({"id": longest, "body": {"tenant_id": 1}})
    filled = await shop.api.put(LIST, content=sent, headers=as_(TOKEN))
    assert filled.json()["added"] == 1, filled.text
    anna = Worker(shop.api)
    [task] = await anna.claim()
    assert len(task["id"]) > len(longest)
    assert await anna.done(task) == ["accepted"]


async def test_a_list_without_room_for_its_file(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    await refused(shop.api, lines({"id": "a", "body": {"x": "x" * 2 * IN_MEMORY}}), "No such file")
    assert await waiting(shop) == []
