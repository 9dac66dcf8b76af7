"""The page over partitions: one whole, one of them away, and an id that two tenants have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, async_playwright, expect

from groupflow.operate.namespace import Namespace
from groupflow.ops.page.site import serve_page
from groupflow.page import _look
from groupflow.servers import RedisServer
from groupflow.servers.server import free_ports
from groupflow.settings.model import Settings
from groupflow.store.keys import Keys
from tests.deadlines import deadline
from tests.operate.namesakes import ID, OWNERS, die, states
from tests.operate.spread import Spread
from tests.page.browsing import OPTIONS, PROGRAM
from tests.page.context import TOKEN, client_of, configured, context_of
from tests.page.world import LOOKER
from tests.scans.machine import Machine, Table, scan_of
from tests.store.bench import arrival

BOTH, FIRST, SECOND = [True, True], [True, False], [False, True]


@pytest.fixture
async def spread(redis_server: RedisServer) -> AsyncIterator[Spread]:
    """Four partitions with a router, sound at the end."""
    async with Spread(redis_server.url, 4) as spread:
        spread.namespace = Namespace(spread.namespace.clients, Settings().router)
        yield spread
        assert spread.judge() == []


async def test_who_is_away_is_named_in_every_answer(spread: Spread) -> None:
    died = next(id_ for id_ in ("a", "b", "c", "d", "e") if spread.place_of(None, id_) != 2)
    waiting = [arrival(f"w{n}", spread.group_in(1)) for n in range(2)]
    await spread.enqueue(arrival(died, dead="no type"), *waiting)
    async with client_of(spread.without(2)) as api:
        for path in ("/overview", "/groups", "/dead", "/tops"):
            (away,) = (await api.get(path)).json()["away"]
            assert (away["partition"], "does not answer" in away["why"]) == (2, True), path
        ids, cursor = set[str](), "0"
        while cursor:
            tasks = (await api.get("/tasks", params={"limit": 1, "cursor": cursor})).json()
            ids, cursor = ids | {each["id"] for each in tasks["tasks"]}, tasks["next"]
        assert ids == {"w0", "w1"}
        gone = await api.get("/group", params={"key": spread.group_in(2)})
        assert gone.status_code == 503
        assert gone.json()["detail"].startswith("partition 2 is away: ")
        assert (await api.get("/group", params={"key": spread.group_in(1)})).status_code == 200
        assert (await api.get("/task", params={"id": "nobody"})).status_code == 503
        acted = (await api.post("/dead/drop", json={"ids": [died, "nobody"]})).json()
        (stayed,) = acted["stayed"]
        assert (acted["done"], stayed["reason"][:22]) == ([died], "partition 2 is away: R")
        assert (await api.post("/pause", json={"everything": True})).status_code == 503
        await api.post("/resume", json={"everything": True})


async def test_who_asks_is_told_of_a_refusal_and_the_page_goes_on(spread: Spread) -> None:
    """As it looks whether the namespace is moved, by a key that somebody has overwritten."""
    raw, noted = spread.benches[0].raw, Keys(spread.name)("partitions")
    raw.set(noted, "x")
    assert await _look(Settings(), spread.namespace) == 4
    raw.delete(noted)


async def test_tasks_of_one_id_are_refused_until_one_is_chosen(spread: Spread) -> None:
    """Looks and actions alike: by its tenant or its partition."""
    await die(spread)
    async with client_of(spread.namespace) as api:

        async def ask(path: str, **choice: Any) -> httpx.Response:
            if path in ("/task", "/body", "/letter"):
                return await api.get(path, params={"id": ID, **choice})
            return await api.post(path, json={"ids": [ID], **choice})

        verbs = ("/dead/redrive", "/dead/drop", "/task/cancel", "/task/drop", "/task/run-now")
        for path in ("/task", "/body", "/letter", *verbs):
            answer = await ask(path)
            assert answer.status_code == 409, answer.text
            for n, (app, tenant) in enumerate(OWNERS):
                told = f"type t, group {spread.group_in(n)}, application {app}, tenant {tenant}"
                assert f"partition {n}: dead, {told}" in answer.json()["detail"]
        assert states(spread, "dead") == BOTH
        for path, choice, status, words in (
            ("/letter", {"tenant": "666"}, 200, '"tenant":"666"'),
            ("/dead/redrive", {"tenant": "1"}, 200, f'"done":["{ID}"]'),
            ("/letter", {"tenant": "1"}, 404, ""),
            ("/dead/redrive", {"partition": 1}, 200, f'"done":["{ID}"]'),
            ("/body", {"partition": "0"}, 200, '\\"tenant_id\\":\\"1\\"'),
            ("/task", {"tenant": ""}, 404, ""),
            ("/task", {"partition": "x"}, 400, ""),
            ("/task/drop", {"tenant": "1"}, 200, f'"done":["{ID}"]'),
        ):
            answer = await ask(path, **choice)
            assert (answer.status_code, words in answer.text) == (status, True), answer.text
        assert states(spread, "dead") == [False, False]
        assert states(spread, "tasks") == SECOND


@asynccontextmanager
async def browsed(namespace: Namespace, **http: Any) -> AsyncIterator[Page]:
    """A page over these partitions, in a browser that has the token unless `http` is given."""
    (port,) = free_ports(1)
    settings = {**configured(f"127.0.0.1:{port}"), "redis": {"partitions": len(namespace)}}
    settings["http"] |= http
    context = context_of(namespace, settings)
    async with serve_page(context), async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=PROGRAM, args=[*OPTIONS])
        try:
            page = await browser.new_page(base_url=f"http://127.0.0.1:{port}")
            expect.set_options(timeout=1000 * deadline())
            page.set_default_timeout(1000 * deadline())
            if not http:
                await page.add_init_script(f"sessionStorage.setItem('groupflow.token', '{TOKEN}')")
            yield page
        finally:
            await browser.close()


async def act(page: Page, verb: str, toast: str) -> None:
    """Press a button, mean it, and see what came of it."""
    await page.get_by_role("button", name=verb, exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name=verb).click()
    await expect(page.get_by_text(toast)).to_be_visible()


async def test_an_operator_browses_partitions(spread: Spread) -> None:
    """Who is away is named in every view; a letter is acted on, and no other tenant's of its id."""
    await die(spread)
    async with browsed(spread.without(2)) as page:
        await page.goto("/")
        notice = page.locator("#page-away")
        await expect(notice).to_contain_text("Partition 2 is away: Redis at")
        await page.goto("/#/groups")
        await expect(page.locator("h1")).to_have_text("Groups")
        await expect(notice).to_be_visible()
    async with browsed(spread.namespace) as page:
        await page.goto("/#/dead?tenant=666")
        await page.locator("a[data-key^=open]").click()
        await expect(page.get_by_text(spread.group_in(1))).to_be_visible()
        await act(page, "Redrive", "1 redriven")
        assert states(spread, "dead") == FIRST
        await page.goto("/#/dead")
        await page.get_by_label(f"Choose {ID}").check()
        await act(page, "Drop", "1 dropped")
        assert states(spread, "tasks") == SECOND
        await spread.enqueue(*(arrival(f"w{n}") for n in range(120)))
        await page.goto("/#/tasks")
        await page.get_by_role("button", name="Choose all that match").click()
        await expect(page.get_by_text("121 chosen")).to_be_visible()


async def test_who_may_only_look_signs_in(spread: Spread) -> None:
    """Where looking needs a token, and none lets its holder act: all that is shown is there."""
    tokens = {"looker": {"token": LOOKER, "rights": ["look"]}}
    async with browsed(spread.namespace, token="", read="token", tokens=tokens) as page:
        await page.goto("/")
        await page.get_by_role("button", name="Enter the token").click()
        await page.get_by_label("Token", exact=True).fill(LOOKER)
        await page.get_by_role("button", name="Use it").click()
        await expect(page.locator("#live")).to_contain_text("Live")
        await expect(page.get_by_role("link", name="Partitions")).to_be_visible()


async def test_idle_shards_are_not_queued(spread: Spread) -> None:
    """In no partition, as in the overview: they wait for no worker."""
    scan = scan_of(Table(set()), shards=6, idle=3600.0)
    async with spread.namespace.common() as common, client_of(spread.namespace) as api:
        machine = Machine(await spread.daemons(), common, scan)
        await machine.shards.keep()
        await machine.work_off()
        assert (await api.get("/overview")).json()["asleep"] == 6
        assert {row["queued"] for row in (await api.get("/partitions")).json()} == {0}
    for bench in spread.benches:
        bench.events.clear()  # the turns of shards are the business of their own tests


async def test_an_operator_browses_a_scan(spread: Spread) -> None:
    """Its shards, wherever they lie; it is paused, resumed and woken whole, and one shard alone."""
    table = Table({1, 2, 3})
    async with spread.namespace.common() as common, browsed(spread.namespace) as page:
        machine = Machine(await spread.daemons(), common, scan_of(table, shards=6, idle=3600.0))
        await machine.shards.keep()
        await machine.work_off()
        await page.goto("/#/scans")
        await page.get_by_role("link", name="orders").click()
        shards = page.get_by_role("table", name="Shards")
        for words, number in (("idle", 6), ("paused", 0)):
            await expect(shards.get_by_text(words, exact=True)).to_have_count(number)
        await page.get_by_role("button", name="Pause", exact=True).first.click()
        await expect(shards.get_by_text("paused", exact=True)).to_have_count(6)
        await page.get_by_role("button", name="Resume scan:orders:5").click()
        await expect(shards.get_by_text("paused", exact=True)).to_have_count(5)
        await page.get_by_role("button", name="Resume", exact=True).first.click()
        await expect(shards.get_by_text("paused", exact=True)).to_have_count(0)
        table.open = {4}
        await page.get_by_role("button", name="Wake").click()
        await expect(shards.get_by_text("waiting", exact=True)).to_have_count(6)
        await machine.work_off()
        assert sorted(table.done) == [1, 2, 3, 4]
        table.away = ValueError("of a database")
        await machine.round()
        async with client_of(spread.namespace) as api:
            for words in ("of a database", "(shown with the token)"):
                for path in ("/scans", "/scan?name=orders"):
                    assert words in (await api.get(path)).text
                api.headers.pop("Authorization", None)
        await page.goto("/#/scans?name=nobody")
        await expect(page.get_by_text("There is no such scan")).to_be_visible()
        await page.goto("/#/partitions")
        await expect(page.get_by_role("link", name="Partitions")).to_be_visible()
    for bench in spread.benches:
        bench.events.clear()  # the turns of shards are the business of their own tests


async def test_an_open_page_is_told_of_its_end(spread: Spread) -> None:
    """Its stream ends whole: one that is cut looks like a lost connection."""
    (port,) = free_ports(1)
    async with AsyncExitStack() as stack:
        patient = httpx.AsyncHTTPTransport(retries=9)  # of a port that nothing listens on yet
        client = httpx.AsyncClient(transport=patient, timeout=deadline())
        await stack.enter_async_context(client)
        async with serve_page(context_of(spread.namespace, configured(f"127.0.0.1:{port}"))):
            opening = client.stream("GET", f"http://127.0.0.1:{port}/api/events")
            events = (await stack.enter_async_context(opening)).aiter_lines()
            assert await anext(events) == "event: overview"
        assert [each async for each in events if each.startswith("event: trouble")] == []
