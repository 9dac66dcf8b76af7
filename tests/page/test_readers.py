"""The page for everybody: in each theme, on a narrow screen, by keys alone, by axe's rules."""

from __future__ import annotations

import re
from typing import Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect

from tests.page.browsing import CONTRAST, EVERYWHERE, allow, at, press, shows
from tests.page.world import World

EVERY_VIEW = (*EVERYWHERE.values(), ("task", {"id": "gave-0"}), ("group", {"key": "report:42"}))
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PLACES = "all => all.map((each) => each.getBoundingClientRect().left)"


def test_a_theme_of_ones_own(page: Page) -> None:
    """Another one than the system's stays chosen."""

    def ground() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        before = ground()
        press(page, "Light theme" if scheme == "dark" else "Dark theme")
        page.reload()
        expect(page.get_by_role("button", name=f"{scheme.title()} theme")).to_be_visible()
        assert ground() != before
        page.evaluate("localStorage.clear()")
        page.reload()


def test_every_view_can_be_read(page: Page) -> None:
    """By people in each theme and on a narrow screen, by axe's rules; the bar stays as it is."""
    allow(page)
    places = page.locator("#nav a").evaluate_all(PLACES)
    for view, params in EVERY_VIEW:
        at(page, view, **params)
        expect(page.locator("main .card").last).not_to_be_empty()
        assert [(v["id"], v["nodes"]) for v in Axe().run(page).response["violations"]] == [], view
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(CONTRAST) == [], f"{view}: less than 4.5 to 1 (WCAG AA)"
        assert page.locator("#nav a").evaluate_all(PLACES) == places, f"{view} moves the bar"
        page.set_viewport_size({"width": 400, "height": 800})
        if view != "partitions":  # there is one, and no word of it in the bar
            expect(page.locator("#nav [aria-current]")).to_be_in_viewport(ratio=1)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, view
        page.set_viewport_size({"width": 1280, "height": 900})


def test_without_a_pointer(page: Page, world: World) -> None:
    """From the top to a dead letter's redrive and out of its dialog, and by keys to every view."""
    heading, keyboard = page.get_by_role("heading", level=1), page.keyboard
    keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    at(page, "letter", id="dead-0")
    page.get_by_role("button", name="Redrive").focus()
    keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    at(page, "overview")
    plot = page.get_by_role("img", name=re.compile("^Tasks, "))
    plot.focus()
    keyboard.press("ArrowLeft")
    expect(plot).to_have_attribute("aria-label", re.compile("^Tasks, .*[0-9]"))
    expect(page.get_by_role("link", name="Partitions")).to_have_count(0)  # there is one
    for key, name in {"d": "Dead letters", "t": "Tasks", "p": "Partitions"}.items():
        keyboard.press("g")
        keyboard.press(key)
        expect(heading).to_have_text(name)
    keyboard.press("/")
    field = page.get_by_label("Open a task by its id")
    expect(field).to_be_focused()
    keyboard.type("run-1/?go")  # into the field, though these letters are keys elsewhere
    keyboard.press("g")
    expect(field).to_have_value("run-1/?gog")
    keyboard.press("Tab")
    keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("g o")
    keyboard.press("Escape")
    keyboard.press("g")
    keyboard.press("o")
    expect(page.get_by_role("link", name="Ready groups")).to_be_visible()
    # The focus stays where it is while all around it is live.
    at(page, "groups", state="ready")
    link = page.get_by_role("link", name="ready-030:7")
    link.focus()
    world.store(lambda groups: groups.pause("ready-031:8", "the tests"))
    expect(page.get_by_role("link", name="ready-031:8")).to_have_count(0)
    expect(link).to_be_focused()
    world.store(lambda groups: groups.resume("ready-031:8"))


def test_what_a_list_leaves_out(page: Page, world: World) -> None:
    """A daemon's claims, drained groups, and dead letters behind those that a filter has tried."""
    daemon, none = world.get("daemon", name="d1"), {"looked_at": 9, "letters": [], "away": []}
    daemon["partitions"][0]["claims"] = 150
    told = {"daemon": daemon, "dead": {**none, "next": 1000}}
    told["groups"] = {**none, "groups": [], "total": 7, "next": None}

    def answer(route: Route) -> None:
        route.fulfill(json=told[route.request.url.split("/api/")[1].partition("?")[0]])

    page.route(re.compile(r"/api/(daemon|dead|groups)\?"), answer)
    for view, params, words in (
        ("daemon", {"name": "d1"}, " of 150, the oldest claim of each partition"),
        ("groups", {"state": "drained"}, "there are more"),
        ("dead", {"type": "t"}, "Next page"),
    ):
        at(page, view, **params)
        shows(page, re.compile(words))
