"""What views do with what isn't as usual: in fields, in answers, and in the browser's clock."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.page.browsing import allow, at, press, shows
from tests.page.world import LOOKER, TOKEN, World

AN_HOUR_AHEAD = "Date.now = ((now) => () => now() + 3600e3)(Date.now)"


def test_a_token_that_only_looks(page: Page) -> None:
    """It is kept, and shows bodies. What no header can have is refused like any wrong one."""
    at(page, "task", id="run-0")
    use = page.get_by_role("dialog").get_by_role("button", name="Use it")
    press(page, "Enter the token")
    page.get_by_label("Token", exact=True).fill("a-token-with-a-\N{EURO SIGN}-in-it")
    use.click()
    expect(page.get_by_role("alert")).to_contain_text("not the token")
    page.reload()
    expect(page.locator("#live")).to_contain_text("Live")
    press(page, "Enter the token")
    page.get_by_label("Token", exact=True).fill(LOOKER)
    use.click()
    shows(page, "With this token you may not act.")
    expect(page.get_by_label("Body", exact=True)).to_contain_text("tenant_id")
    expect(page.get_by_role("button", name="Read-only")).to_be_visible()


def test_an_age_that_cannot_be_read_chooses_nothing(page: Page) -> None:
    at(page, "tasks", state="queued", older="1w")
    shows(page, "This is not an age")
    expect(page.get_by_role("button", name="Drop")).to_be_disabled()
    expect(page.get_by_role("button", name="Choose all that match")).to_have_count(0)


def test_chosen_letters_are_redriven_the_oldest_first(page: Page, world: World) -> None:
    allow(page)
    at(page, "dead", type="fail")
    page.get_by_label("Choose all shown").check()
    died = {each["id"]: each["died_at"] for each in world.get("dead", type="fail")["letters"]}
    sent = list[str]()

    def answer(route: Route) -> None:
        ids: Any = route.request.post_data_json
        sent.extend(ids["ids"])
        route.fulfill(json={"done": ids["ids"], "stayed": []})

    page.route("**/api/dead/redrive", answer)
    press(page, re.compile("^Redrive$"), sure="Redrive")
    shows(page, f"{len(died)} redriven")
    assert sent == sorted(died, key=died.__getitem__)


def test_a_body_that_is_gone(page: Page, world: World) -> None:
    """All else of the letter is shown; it can be dropped, and not corrected."""
    letter = {**world.get("letter", TOKEN, id="dead-0"), "headers": {}, "body": None}
    told = {**letter, "body_error": "the body is gone from offset 7"}
    page.route("**/api/letter?*", lambda route: route.fulfill(json=told))
    at(page, "letter", id="dead-0")
    shows(page, told["reason"], told["body_error"], "attempt 1: ValueError")
    expect(page.get_by_role("button", name="Drop")).to_be_visible()
    expect(page.get_by_role("button", name="Correct the body")).to_have_count(0)


@pytest.mark.parametrize(
    ("view", "params", "path", "shown"),
    [
        ("groups", {"state": "drained", "text": "report:4"}, "groups", "report:42"),
        ("group", {"key": "report:42"}, "group", "gave-0"),
        ("task", {"id": "run-0"}, "body", "Body and headers need the token"),
    ],
)
def test_what_failed_is_asked_again(
    profile: BrowserContext, view: str, params: dict[str, str], path: str, shown: str
) -> None:
    """Soon, even though the browser's clock is ahead until Redis's is known."""
    other, failed = profile.new_page(), list[str]()
    other.add_init_script(AN_HOUR_AHEAD)

    def answer(route: Route) -> None:
        if failed:
            route.continue_()
        else:
            failed.append(route.request.url)
            route.fulfill(status=503, json={"detail": "busy"})

    other.route(f"**/api/{path}?*", answer)
    other.goto(f"/#/{view}?{urlencode(params)}")
    shows(other, shown)
    assert len(failed) == 1
    other.close()


def test_what_was_done_before_an_error_is_told(profile: BrowserContext) -> None:
    """All that match a filter take several calls, and so do several tenants' tasks."""
    other, none = profile.new_page(), {"done": [], "stayed": [], "matching": 3, "next": None}
    answers: list[dict[str, Any]] = [
        {"json": none},
        {"json": {**none, "done": ["a", "b"], "next": "0.7"}},
        {"json": {"detail": "busy"}, "status": 503},
    ]
    other.route("**/api/dead/redrive", lambda route: route.fulfill(**answers.pop(0)))
    other.goto("/")
    allow(other)
    at(other, "dead", type="fail")
    press(other, re.compile("^Redrive all .*that match$"), sure="Redrive")
    shows(other, "2 redriven; then: busy")
    answers += [{"json": {"done": ["a"], "stayed": []}}, {"json": {}, "status": 503}]
    other.route("**/api/task/drop", lambda route: route.fulfill(**answers.pop(0)))
    at(other, "tasks", state="queued", id="ready-11")
    for id_ in ("ready-110", "ready-111"):  # of two tenants
        other.get_by_label(f"Choose {id_}").check()
    press(other, "Drop", sure="Drop")
    shows(other, re.compile("^1 dropped; then: "))
    other.close()
