"""The API over an id that two tenants' tasks have: 409 until one of them is chosen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from playwright.async_api import async_playwright, expect

from groupflow.core.scope import scope_of
from groupflow.operate.namespace import Namespace
from groupflow.ops.page.server import serve_page
from groupflow.servers import RedisServer
from groupflow.servers.ports import free_ports
from groupflow.settings.model import Settings
from tests.operate.namesakes import ID, OWNERS, die, states, wait
from tests.operate.spread import Spread
from tests.page.chromium import OPTIONS, PROGRAM
from tests.page.context import context_of
from tests.page.test_partitions import TOKEN, client_of
from tests.store.bench import arrival

BOTH, FIRST, SECOND = [True, True], [True, False], [False, True]


@pytest.fixture
async def spread(redis_server: RedisServer) -> AsyncIterator[Spread]:
    spread = Spread(redis_server.url, 2)
    clients = spread.namespace.clients
    spread.namespace = Namespace(clients, Settings().router)
    try:
        yield spread
        assert spread.judge() == []
    finally:
        await spread.close()


def refused(answer: httpx.Response, spread: Spread, state: str) -> None:
    """It is refused, and both are named."""
    assert answer.status_code == 409, answer.text
    detail: str = answer.json()["detail"]
    for n, (app, tenant) in enumerate(OWNERS):
        group = spread.group_in(n)
        told = f"partition {n}: {state}, type t, group {group}, application {app}, tenant {tenant}"
        assert told in detail
    assert "by its tenant" in detail


async def test_looks(spread: Spread) -> None:
    await wait(spread)
    async with client_of(spread.namespace) as api:
        for path in ("/task", "/body", "/letter"):
            refused(await api.get(path, params={"id": ID}), spread, "queued")
        task = await api.get("/task", params={"id": ID, "tenant": "666"})
        assert task.json()["scope"] == scope_of("crm", "666")
        body = await api.get("/body", params={"id": ID, "partition": "0"})
        assert '"tenant_id":"1"' in body.json()["body"]
        assert (await api.get("/letter", params={"id": ID, "tenant": "1"})).status_code == 404
        assert (await api.get("/task", params={"id": ID, "tenant": ""})).status_code == 404
        assert (await api.get("/task", params={"id": ID, "partition": "x"})).status_code == 400


async def test_acts_on_tasks_that_wait(spread: Spread) -> None:
    await wait(spread, delay=600.0)
    async with client_of(spread.namespace) as api:
        for path in ("/task/drop", "/task/run-now", "/dead/drop"):
            refused(await api.post(path, json={"ids": [ID]}), spread, "delayed")
        assert states(spread, "tasks") == BOTH
        due = await api.post("/task/run-now", json={"delayed": spread.group_in(1)})
        assert due.json() == {"done": [ID], "stayed": []}
        dropped = await api.post("/task/drop", json={"ids": [ID], "tenant": "1"})
        assert dropped.json() == {"done": [ID], "stayed": []}
        assert states(spread, "tasks") == SECOND


async def test_acts_on_dead_letters(spread: Spread) -> None:
    await die(spread)
    async with client_of(spread.namespace) as api:
        for path in ("/dead/redrive", "/dead/drop"):
            refused(await api.post(path, json={"ids": [ID]}), spread, "dead")
        letter = await api.get("/letter", params={"id": ID, "tenant": "666"})
        assert letter.json()["tenant"] == "666"
        redriven = await api.post("/dead/redrive", json={"ids": [ID], "tenant": "1"})
        assert redriven.json()["done"] == [ID]
        assert states(spread, "dead") == SECOND
        dropped = await api.post("/dead/drop", json={"ids": [ID], "partition": 1})
        assert dropped.json()["done"] == [ID]
        assert states(spread, "tasks") == FIRST


async def test_others_are_acted_on_beside_it(spread: Spread) -> None:
    """It stays, with the same words; nothing of it is done."""
    await die(spread)
    await spread.enqueue(arrival("other", dead="no type"))
    async with client_of(spread.namespace) as api:
        answer: Any = (await api.post("/dead/drop", json={"ids": [ID, "other"]})).json()
        assert answer["done"] == ["other"]
        [stayed] = answer["stayed"]
        assert (stayed["id"], "2 tasks have the id" in stayed["reason"]) == (ID, True)
        assert states(spread, "dead") == BOTH


async def test_the_page_acts_on_the_one_that_is_shown(spread: Spread) -> None:
    """In the list, and behind its link: no other tenant's letter of that id."""
    await die(spread)
    (port,) = free_ports(1)
    context = context_of(
        spread.namespace, {"http": {"listen": f"127.0.0.1:{port}", "token": TOKEN}}
    )
    async with serve_page(context), async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=PROGRAM, args=[*OPTIONS])
        try:
            page = await browser.new_page()
            page.set_default_timeout(30_000)
            await page.add_init_script(f"sessionStorage.setItem('groupflow.token', '{TOKEN}')")
            await page.goto(f"http://127.0.0.1:{port}/#/dead?tenant=666")
            await page.locator("a[data-key^=open]").click()
            await expect(page.get_by_text(spread.group_in(1))).to_be_visible(timeout=30_000)
            await page.get_by_role("button", name="Redrive").click()
            await page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
            await expect(page.get_by_text("1 redriven")).to_be_visible(timeout=30_000)
            assert states(spread, "dead") == FIRST
            await page.goto(f"http://127.0.0.1:{port}/#/dead")
            await page.get_by_label(f"Choose {ID}").check()
            await page.get_by_role("button", name="Drop").click()
            await page.get_by_role("dialog").get_by_role("button", name="Drop").click()
            await expect(page.get_by_text("1 dropped")).to_be_visible(timeout=30_000)
            assert states(spread, "tasks") == SECOND
        finally:
            await browser.close()
