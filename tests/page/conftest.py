"""One world for all tests of the page: they look, and what they change they put back.

It is gone before other tests begin: they have the servers that all tests share to themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from groupflow.servers import RabbitmqServer, RedisServer
from tests.deadlines import deadline
from tests.page.browsing import launch, watch
from tests.page.world import World


@pytest.fixture(scope="package")
def world(
    tmp_path_factory: pytest.TempPathFactory,
    rabbitmq_server: RabbitmqServer,
    redis_server: RedisServer,
) -> Iterator[World]:
    """A daemon with something of everything in it."""
    with closing(World(tmp_path_factory.mktemp("page"), rabbitmq_server, redis_server)) as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's chromium, for one file: its loop runs in the thread of all other tests."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def profile(browser: Browser, world: World) -> Iterator[BrowserContext]:
    """One profile for a file's tests: the files come from its cache, as they do for people."""
    context = browser.new_context(base_url=world.url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(1000 * deadline())
    expect.set_options(timeout=1000 * deadline())
    yield context
    context.close()


@pytest.fixture
def page(profile: BrowserContext) -> Iterator[Page]:
    """A fresh tab on the overview; nothing was wrong at its end.

    It is live by then: the bar's last words move its buttons, and a press that they move under
    the pointer is none.
    """
    page = profile.new_page()
    said: list[str] = []
    watch(page, said)
    page.goto("/")
    expect(page.locator("#live")).to_contain_text("Live")
    yield page
    page.close()
    assert said == []
