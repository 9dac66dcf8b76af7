"""The page over several partitions: one whole, and what it says while one of them is away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from playwright.async_api import async_playwright, expect

from groupflow.operate.namespace import Namespace
from groupflow.operate.totals import read_totals
from groupflow.ops.page.server import serve_page
from groupflow.ops.page.site import Site
from groupflow.servers import RedisServer
from groupflow.servers.ports import free_ports
from tests.deadlines import deadline
from tests.operate.spread import Spread
from tests.page.chromium import OPTIONS, PROGRAM
from tests.page.context import context_of
from tests.store.bench import arrival, bury

TOKEN = "a-token-of-the-tests"


@pytest.fixture
async def spread(redis_server: RedisServer) -> AsyncIterator[Spread]:
    """Some groups with a task each, and some dead letters, in each of four partitions."""
    spread = Spread(redis_server.url, 4)
    try:
        await spread.enqueue(*(arrival(f"t{n}", f"g{n:02}") for n in range(40)))
        for daemon in await spread.daemons():
            for claim in await daemon.claim("grouped", "w1", "w2", "w3"):
                await daemon.settle(bury(claim))
        yield spread
        assert spread.judge() == []
    finally:
        await spread.close()


def _configured(listen: str = "127.0.0.1:9464") -> dict[str, Any]:
    return {"http": {"listen": listen, "token": TOKEN}}


@asynccontextmanager
async def client_of(namespace: Namespace) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(Site(context_of(namespace, _configured())).app)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost:9464/api", headers=headers
    ) as client:
        yield client


async def pages(client: httpx.AsyncClient, path: str, name: str, **query: Any) -> list[Any]:
    """All rows of a list, page by page; `name` is what gives the next page."""
    found: list[Any] = []
    following: Any = "0"
    while following is not None:
        answer = await client.get(path, params={**query, name: following})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page["letters" if path == "/dead" else "groups"]
        following = page["next"]
    return found


async def test_the_whole_is_shown_as_one(spread: Spread) -> None:
    async with client_of(spread.namespace) as client:
        overview = (await client.get("/overview")).json()
        assert (overview["queued_grouped"], overview["dead"], overview["away"]) == (28, 12, [])
        groups = await pages(client, "/groups", "cursor", state="ready", limit=5)
        assert len(groups) == 28
        assert [each["enqueued_at"] for each in groups] == sorted(
            each["enqueued_at"] for each in groups
        )
        dead = await pages(client, "/dead", "passed", limit=5)
        died = [each["died_at"] for each in dead]
        assert (len(dead), died) == (12, sorted(died, reverse=True))
        letter = (await client.get("/letter", params={"id": dead[0]["id"]})).json()
        assert letter["body"] == f'{{"id":"{dead[0]["id"]}"}}'
        ids = [each["id"] for each in dead]
        acted = (await client.post("/dead/redrive", json={"ids": ids[:6]})).json()
        assert (acted["done"], acted["stayed"]) == (ids[:6], [])
        acted = (await client.post("/dead/drop", json={"ids": ids[6:]})).json()
        assert acted["done"] == ids[6:]
        for wrong in ("1-2", "1-2-3-4-5", "x", "-1", "1--", "99999999999999999999999"):
            assert (await client.get("/groups", params={"cursor": wrong})).status_code == 400
            assert (await client.get("/dead", params={"passed": wrong})).status_code == 400


async def test_who_is_away_is_named_in_every_answer(spread: Spread) -> None:
    async with client_of(spread.without(2)) as client:
        overview = (await client.get("/overview")).json()
        assert [each["partition"] for each in overview["away"]] == [2]
        assert "does not answer" in overview["away"][0]["why"]
        for path in ("/groups", "/dead", "/tops"):
            page = (await client.get(path)).json()
            assert [each["partition"] for each in page["away"]] == [2], path
        there = [n for n in range(40) if spread.place_of(f"g{n:02}") != 2]
        assert len(await pages(client, "/groups", "cursor", limit=5)) == len(there) - 3 * 3
        gone = await client.get("/group", params={"key": spread.group_in(2)})
        assert gone.status_code == 503
        assert gone.json()["detail"].startswith("partition 2 is away: ")
        assert (await client.get("/group", params={"key": spread.group_in(1)})).status_code == 200
        assert (await client.get("/task", params={"id": "nobody"})).status_code == 503
        dead = (await client.get("/dead")).json()["letters"]
        acted = (await client.post("/dead/drop", json={"ids": [dead[0]["id"], "nobody"]})).json()
        assert acted["done"] == [dead[0]["id"]]
        (stayed,) = acted["stayed"]
        assert stayed["reason"].startswith("partition 2 is away: ")
        held = await client.post("/pause", json={"everything": True})
        assert held.status_code == 503
        assert (await read_totals(spread.namespace)).everything_paused, "the rest of it"
        await client.post("/resume", json={"everything": True})


async def test_a_browser_shows_who_is_away(spread: Spread) -> None:
    (port,) = free_ports(1)
    context = context_of(spread.without(2), _configured(f"127.0.0.1:{port}"))
    async with serve_page(context), async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=PROGRAM, args=[*OPTIONS])
        try:
            page = await browser.new_page()
            await page.goto(f"http://127.0.0.1:{port}/")
            expect.set_options(timeout=1000 * deadline())
            notice = page.locator("#page-away")
            await expect(notice).to_contain_text("Partition 2 is away: Redis at")
            await page.evaluate("() => { location.hash = '#/groups' }")
            await expect(page.locator("h1")).to_have_text("Groups")
            await expect(notice).to_be_visible()
        finally:
            await browser.close()
