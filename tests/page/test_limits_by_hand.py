"""Limits by hand on the page and by the API: set, shown, changed and ended, by whom."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.endtoend.rig import Job
from tests.page.browsing import allow, at
from tests.page.world import World


def _limited(world: World) -> list[tuple[str, str, int | None, str | None, str]]:
    rows = world.get("limits")["limits"]
    return [(r["kind"], r["name"], r["concurrency"], r["rate"], r["by"]) for r in rows]


def test_a_tenant_is_limited_in_a_dialog(page: Page, world: World) -> None:
    """What can't be is said where it was given; what holds is shown everywhere, and ends there."""
    allow(page, "Ada")
    page.get_by_role("link", name="Tenants", exact=True).click()
    expect(page.get_by_text("No tenant is counted apart")).to_be_visible()
    page.get_by_label("Tenant", exact=True).fill("8")
    page.get_by_role("button", name="Limit", exact=True).click()
    dialog = page.get_by_role("dialog", name="Limit tenant 8")
    for label, wrong, said in (
        ("At once", "many", "whole number"),
        ("At once", "", "Give a concurrency, a rate"),
        ("Starts", "fast", "Write a rate"),
        ("For", "long", "write 30s"),
    ):
        dialog.get_by_label(re.compile(f"^{label}")).fill(wrong)
        dialog.get_by_role("button", name="Limit").click()
        expect(dialog.get_by_role("alert")).to_contain_text(said)
    dialog.get_by_label(re.compile("^At once")).fill("2")
    dialog.get_by_label(re.compile("^Starts")).fill("7/h burst 3")
    dialog.get_by_label(re.compile("^For")).fill("10m")
    dialog.get_by_role("button", name="Limit").click()
    expect(page.get_by_text("tenant 8 is limited")).to_be_visible()
    assert _limited(world) == [("tenant", "8", 2, "7/h burst 3", "Ada")]
    table = page.get_by_role("table", name="Limits by hand")
    expect(table).to_contain_text("2 at once, 7/h burst 3")
    expect(table).to_contain_text("in 10 min")
    event = world.daemon.events("operator.limited")[-1]
    assert (event["by"], event["tenant"], event["seconds"]) == ("Ada", "8", 600)
    world.wait(lambda: [e["tenant"] for e in world.daemon.events("limit.began")] == ["8"])
    at(page, "overview")
    expect(page.get_by_text("1 limit is set by hand: tenant 8, 2 at once")).to_be_visible()
    at(page, "limits")
    expect(table).to_contain_text("Ada")
    table.get_by_role("button", name="Change the limits of tenant 8").click()
    expect(dialog.get_by_label(re.compile("^At once"))).to_have_value("2")
    dialog.get_by_label(re.compile("^At once")).fill("")
    dialog.get_by_label(re.compile("^Starts")).fill("none")
    dialog.get_by_role("button", name="Limit").click()
    expect(table).to_contain_text("any rate")
    assert _limited(world) == [("tenant", "8", None, "", "Ada")]
    at(page, "tenant", name="8")
    expect(page.get_by_role("heading", level=1)).to_have_text("Tenant 8")
    page.get_by_role("button", name="End the limits of tenant 8").click()
    expect(page.get_by_text("Tenant 8 goes on as configured")).to_be_visible()
    assert _limited(world) == []
    world.wait(lambda: [e["by"] for e in world.daemon.events("limit.ended")] == ["Ada"])


def test_a_group_is_limited_where_it_is_shown(page: Page, world: World) -> None:
    allow(page, "Ada")
    at(page, "group", key="ready-020:7")
    page.get_by_role("button", name="Limit", exact=True).click()
    dialog = page.get_by_role("dialog", name="Limit ready-020:7")
    dialog.get_by_label(re.compile("^At once")).fill("4")
    dialog.get_by_role("button", name="Limit").click()
    expect(page.get_by_text("its limits are by hand until")).to_be_visible()
    expect(page.get_by_text("By hand until", exact=True)).to_be_visible()
    page.get_by_role("button", name="End limits").click()
    expect(page.get_by_text("its limits are by hand until")).to_have_count(0)
    assert world.raw.exists(world.rig.keys("by_hand")) == 0


def test_tenants_that_are_counted_apart(page: Page, world: World) -> None:
    """What comes for one waits for its turn, and the list has it."""
    assert world.act("limit", {"tenant": "9", "concurrency": 3}).status_code == 200
    world.rig.publish(Job(f"ninth-{n}", f"ninth-{n}", tenant=9) for n in range(4))
    world.wait(lambda: any(row["groups"] == 4 for row in world.get("tenants")["tenants"]))
    at(page, "tenant")
    table = page.get_by_role("table", name="Tenants")
    expect(table).to_contain_text("0 of 3")
    table.get_by_role("link", name="9", exact=True).click()
    expect(table).to_contain_text("until")
    assert world.act("limit/end", {"tenant": "9"}).json() == {"changed": True}
    at(page, "tenant")
    expect(page.get_by_role("table", name="Limits by hand")).to_have_count(0)
    for n in range(4):
        assert world.act("task/drop", {"ids": [f"ninth-{n}"]}).json()["stayed"] == []


def test_what_is_configured_is_shown(page: Page, world: World) -> None:
    """Each rule, and what any tenant may have."""
    at(page, "limits")
    expect(page.get_by_role("table", name="Limits of groups")).to_contain_text("as they come")
    row = page.get_by_role("table", name="Limits of tenants").get_by_role("row").nth(1)
    expect(row).to_contain_text("each")
    expect(row).to_contain_text("any")
