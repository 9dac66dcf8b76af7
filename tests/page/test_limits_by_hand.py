"""Limits by hand on the page: set, shown, changed and ended, by whom."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.endtoend.rig import Job
from tests.page.browsing import allow, at, follow, press, shows
from tests.page.world import World


def _fill(page: Page, title: str, **fields: str) -> None:
    """Fill in the dialog of that title, and send it."""
    dialog = page.get_by_role("dialog", name=title)
    for label, text in fields.items():
        dialog.get_by_label(re.compile(f"^{label.replace('_', ' ')}")).fill(text)
    dialog.get_by_role("button", name="Limit").click()


def _logged_by(world: World, event: str) -> list[str]:
    """Who did it, in the log's lines of tenant 8 about one kind of event."""
    return [each["by"] for each in world.daemon.events(event) if each.get("tenant") == "8"]


def test_limiting_a_tenant_and_a_group(page: Page, world: World) -> None:
    """What can't be is said where it was given; what holds is shown everywhere, and ends there."""
    allow(page, "Ada")
    follow(page, "Tenants")
    expect(page.get_by_role("table", name="Tenants")).to_contain_text(
        re.compile("7.*crm.*8.*crm", re.S)
    )
    page.get_by_label("Tenant", exact=True).fill("8")
    page.get_by_role("button", name="Limit", exact=True).click()
    title = "Limit tenant 8"
    for field, wrong, said in (
        ("Concurrency", "many", "whole number"),
        ("Concurrency", "", "Give a concurrency, a rate"),
        ("Rate", "fast", "Write a rate"),
        ("For", "long", "write 30s"),
    ):
        _fill(page, title, **{field: wrong})
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text(said)
    _fill(page, title, Concurrency="2", Rate="7/h burst 3", For="10m")
    shows(page, "tenant 8 is limited")
    table = page.get_by_role("table", name="Limits by hand")
    for text in ("2 at once, 7/h burst 3", "in 10 min", "Ada"):
        expect(table).to_contain_text(text)
    event = world.daemon.events("operator.limited")[-1]
    assert (event["by"], event["tenant"], event["seconds"]) == ("Ada", "8", 600)
    world.wait(lambda: _logged_by(world, "limit.began") == ["Ada"])
    at(page, "overview")
    shows(page, "1 limit is set by hand: tenant 8, 2 at once")
    at(page, "limits")
    press(page, "Change the limits of tenant 8")
    at_once = page.get_by_role("dialog").get_by_label(re.compile("^Concurrency"))
    expect(at_once).to_have_value("2")
    _fill(page, title, Concurrency="", Rate="none")
    expect(table).to_contain_text("any rate")
    at(page, "tenant", name="8")
    expect(page.get_by_role("heading", level=1)).to_have_text("Tenant 8")
    press(page, "End the limits of tenant 8")
    shows(page, "Tenant 8 goes on as configured")
    world.wait(lambda: _logged_by(world, "limit.ended") == ["Ada"])
    at(page, "group", key="ready-020:7")
    page.get_by_role("button", name="Limit", exact=True).click()
    _fill(page, "Limit ready-020:7", Concurrency="4")
    shows(page, "its limits are by hand until")
    press(page, "End limits")
    expect(page.get_by_text("its limits are by hand until")).to_have_count(0)
    assert world.raw.exists(world.rig.keys("by_hand")) == 0
    _see_the_tenants(page, world)
    at(page, "limits")  # what is configured
    expect(page.get_by_role("table", name="Limits of groups")).to_contain_text("no limit")
    row = page.get_by_role("table", name="Limits of tenants").get_by_role("row").nth(1)
    expect(row).to_contain_text(re.compile("each.*no limit"))
    page.get_by_label("Type, or import.*").fill("no.such.*")
    page.get_by_role("button", name="Limit", exact=True).click()
    _fill(page, "Limit type no.such.*", Concurrency="1")
    shows(page, "type no.such.* is limited")
    expect(page.get_by_role("table", name="Limits by hand")).to_contain_text("1 at once")
    press(page, "End the limits of type no.such.*")
    shows(page, "Type no.such.* goes on as configured")


def _see_the_tenants(page: Page, world: World) -> None:
    """What comes for a limited tenant waits for its turn, and the list of tenants has it."""
    assert world.act("limit", {"tenant": "9", "concurrency": 3}).status_code == 200
    world.rig.publish(Job(f"ninth-{n}", f"ninth-{n}", tenant=9) for n in range(4))
    world.wait(lambda: any(row["groups"] == 4 for row in world.get("tenants")["tenants"]))
    at(page, "tenant")
    table = page.get_by_role("table", name="Tenants")
    expect(table).to_contain_text("0 of 3")
    table.get_by_role("link", name="9", exact=True).click()
    expect(table).to_contain_text("until")
    assert world.act("limit/end", {"tenant": "9"}).json() == {"changed": True}
    for n in range(4):
        assert world.act("task/drop", {"ids": [f"ninth-{n}"]}).json()["stayed"] == []
