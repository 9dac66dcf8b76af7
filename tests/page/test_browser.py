"""What people do on the page, in a real browser, each task from its start to its end.

After each of them the console is empty: no error, and nothing that the policy had to stop.
"""

from __future__ import annotations

import re

import orjson
from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.endtoend.rig import Job
from tests.page.browsing import (
    allow,
    at,
    enter_token,
    fill,
    follow,
    press,
    shows,
)
from tests.page.world import HOSTILE_ID, NO_TYPE, TOKEN, World

REFUSED = "this is not the token"


def test_looking_for_work(page: Page, world: World) -> None:
    """From the overview, which is live, to the tasks of a group, and to a task and its body."""
    expect(page.get_by_role("link", name="Ready groups")).to_contain_text("119")
    expect(page.get_by_role("link", name="Running")).to_contain_text("2 grouped")
    expect(page.get_by_role("table", name="Daemons")).to_contain_text("d1")
    expect(page.get_by_role("table", name="Waiting longest")).to_contain_text("contact/1:42")
    expect(page.get_by_role("img", name=re.compile("^Latency"))).to_be_visible()
    follow(page, "24 h")
    expect(page.get_by_role("img", name=re.compile("^Latency"))).to_contain_text("18 h")
    follow(page, "d1")
    shows(page, "2 of 2", "intake, workers, page")
    expect(page.get_by_role("table", name="Claimed tasks")).to_contain_text("run-0")
    follow(page, "← Overview")
    tile = page.get_by_role("link", name="Paused groups")
    expect(tile).to_contain_text("1")
    world.store(lambda groups: groups.pause("ready-010:7", "the tests"))
    expect(tile).to_contain_text("2")
    world.store(lambda groups: groups.resume("ready-010:7"))
    follow(page, "Groups")
    table, rows = page.get_by_role("table"), page.get_by_role("table").get_by_role("row")
    expect(page.get_by_role("table", name="All groups")).to_contain_text("the tests")
    page.get_by_label("State").get_by_role("link", name=re.compile("^Ready")).click()
    expect(rows).to_have_count(51)
    follow(page, "Next page")
    expect(table).to_contain_text("ready-060")
    fill(page, {"Name contains": "ready-01", "Tenant": "8"}, "Filter")
    expect(rows).to_have_count(6)
    for first in ("ready-011:8", "ready-019:8"):
        page.get_by_role("button", name="Group", exact=True).click()
        expect(rows.nth(1)).to_contain_text(first)
    follow(page, re.compile("^Running"))
    shows(page, "No group found")
    follow(page, "Clear")
    expect(page.get_by_role("link", name="Clear")).to_have_count(0)  # that view is gone
    fill(page, {"Open a group by its exact key": "contact/1:42"}, "Open")
    expect(page.get_by_role("heading", level=1)).to_have_text("contact/1:42")
    shows(page, "attempt 1 of task run-0 runs on d1", "1 to 50 of 69")
    follow(page, "Next page")
    shows(page, "51 to 69 of 69")
    expect(table).to_contain_text("run-69")
    _look_for_a_task(page)


def _look_for_a_task(page: Page) -> None:
    """By its state, id, tenant and age; to its attempts, and with the token to its body."""
    follow(page, "Tasks")
    table, rows = page.get_by_role("table"), page.get_by_role("table").get_by_role("row")
    expect(table).to_contain_text("ready-0")
    page.get_by_label("State").get_by_role("link", name="Running").click()
    expect(rows).to_have_count(3)
    queued = page.get_by_label("State").get_by_role("link", name="Queued")
    queued.click()
    expect(queued).to_have_attribute("aria-current", "true")
    fill(page, {"Id contains": "ready-", "Tenant": "8", "Older than": "0 s"}, "Search")
    expect(rows).to_have_count(61)
    fill(page, {"Older than": "9 days"}, "Search")
    shows(page, "No task found")
    fill(page, {"Older than": "long"}, "Search")
    shows(page, "This is not an age")
    fill(page, {"Open a task by its id": "run-0"}, "Open")
    expect(page.locator("main")).to_contain_text("d1, grouped-")
    expect(page.get_by_role("list", name="Attempts in time")).to_contain_text("runs")
    press(page, "Enter the token")
    enter_token(page, "Ada")
    body = page.get_by_label("Body", exact=True)
    expect(body).to_contain_text(re.compile('^{\\n  "tenant_id": 42'))
    press(page, "Original")
    expect(body).to_contain_text('{"tenant_id":42')
    at(page, "task", id="nobody")
    shows(page, "There is no such task")
    at(page, "group", key="report:42")
    lately = page.get_by_role("table", name="Recently ended tasks")
    expect(lately).to_contain_text(re.compile("gave-0done.* ago.* m?sd1"))
    strip = page.get_by_role("img", name="The last hour: 1 done", exact=True)
    expect(strip.locator("i")).to_have_count(1)
    at(page, "groups", text="report:4")
    expect(page.get_by_role("table", name="All groups")).to_contain_text("drained")
    follow(page, "report:42")
    follow(page, "gave-0")
    facts = "gave-0done.*Workerd1Enqueued.*:.*Started.*Took.* m?sEnded.* ago.*Result.*"
    facts += f'"number": {2**60 + 1}'
    expect(page.locator("main")).to_have_text(re.compile(facts, re.DOTALL))


def _sign_in(page: Page, profile: BrowserContext, world: World) -> None:
    """Nothing is done without the token, by a wrong one, or once it is forgotten."""
    at(page, "letter", id="dead-1")
    press(page, "Drop", sure="Close")
    expect(page.get_by_role("button", name="Read-only")).to_be_visible()
    assert "dead-1" in world.rig.dead()
    press(page, "Read-only")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Token").fill(REFUSED)
    dialog.get_by_role("button", name="Use it").click()
    expect(dialog.get_by_role("alert")).to_contain_text("not the token")
    dialog.get_by_label("Token").fill(TOKEN)
    dialog.get_by_label("Token").press("Enter")  # as people expect of a field for a password
    press(page, "May act", sure="Forget the token")
    expect(page.get_by_role("button", name="Read-only")).to_be_visible()
    # Where the daemon was too busy to say who may act, it is asked again.
    other, asked = profile.new_page(), list[str]()

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.fulfill(status=503, json={"detail": "busy"})
        else:
            route.continue_()

    other.route("**/api/access", answer)
    other.goto("/")
    allow(other)
    assert len(asked) > 1
    other.close()


def test_no_daemon_lives(profile: BrowserContext, world: World) -> None:
    """The only one was killed: the overview, its own view and its task's say so."""
    other, overview = profile.new_page(), world.get("overview")
    told, tops = world.get("daemon", name="d1"), {**world.get("tops"), "slowest": []}
    overview |= {"daemons": [{**overview["daemons"][0], "late": True}], "ready": 0}
    told["partitions"][0]["lease_left"] = 0.0
    events = f"event: overview\ndata: {orjson.dumps(overview).decode()}\n\n"
    other.route("**/api/events", lambda route: route.fulfill(body=events))
    other.route("**/api/overview", lambda route: route.fulfill(json=overview))
    other.route("**/api/tops", lambda route: route.fulfill(json=tops))
    other.route("**/api/daemon?*", lambda route: route.fulfill(json=told))
    other.goto("/")
    shows(other, re.compile("^No daemon is running, and [0-9]+ tasks wait"))
    expect(other.get_by_role("link", name="Ready groups")).to_contain_text("no daemon is running")
    expect(other.get_by_role("table", name="Daemons")).to_contain_text("d1 late")
    expect(other.get_by_text("Every task starts at once")).to_have_count(0)
    follow(other, "d1")
    expect(other.locator("main .title .badge")).to_have_text("late")
    task = {**world.get("task", id="run-0"), "silence": "nothing was heard of d1"}
    other.route("**/api/task?*", lambda route: route.fulfill(json=task))
    at(other, "task", id="run-0")
    shows(other, task["silence"])
    other.close()


def test_putting_dead_letters_back(page: Page, profile: BrowserContext, world: World) -> None:
    """Once signed in: one, some of a list that stands still meanwhile, and all of one reason."""
    _sign_in(page, profile, world)
    follow(page, "Dead letters")
    fill(page, {"Type": "fail", "Reason contains": "on purpose"}, "Filter")
    shows(page, "None matches")  # its words want the token
    fill(page, {"Reason contains": "ValueError"}, "Filter")
    expect(page.get_by_role("link", name="dead-0")).to_be_visible()
    follow(page, "dead-0")
    shows(page, "attempt 1: ValueError", "Body and headers need the token")
    shows(page, "(shown with the token)")
    expect(page.locator("pre")).to_have_count(0)
    press(page, "Enter the token")
    enter_token(page, "Ada")
    expect(page.locator("pre").last).to_contain_text("<script>")
    expect(page.get_by_label("Traceback of attempt 1")).to_contain_text("ValueError")
    shows(page, "on purpose")
    press(page, "Redrive", sure="Redrive")
    shows(page, "1 redriven")
    world.wait(lambda: "dead-0" in world.rig.dead())
    at(page, "letter", id="dead-1")
    press(page, "Drop", sure="Cancel")
    assert "dead-1" in world.rig.dead()
    press(page, "Drop", sure="Drop")
    shows(page, "1 dropped")
    assert "dead-1" not in world.rig.dead()
    _choose_while_others_die(page, world)
    follow(page, "Dead letters")
    table = page.get_by_role("table", name="Reasons")
    table.get_by_role("link", name=re.compile("^ValueError")).click()
    button = re.compile("^Redrive all of fail: ValueError: it fails on purpose")
    table.get_by_role("button", name=button).click()
    shows(page, re.compile(r"^Redrive all \d+ that match"))
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    shows(page, re.compile(r"^\d+ redriven$"))
    world.wait(lambda: "dead-2" in world.rig.dead())


def _choose_while_others_die(page: Page, world: World) -> None:
    at(page, "dead", type="fail")
    for id_ in ("dead-4", "dead-5"):
        page.get_by_label(f"Choose {id_}").check()
    boxes = page.get_by_role("checkbox")
    before = boxes.evaluate_all("all => all.map((each) => each.dataset.key)")
    world.rig.publish([Job("dead-new", None, type="fail")])
    world.wait(lambda: "dead-new" in world.rig.dead())
    for _ in range(2):  # the second was asked for after the first was dealt with
        with page.expect_response(lambda answer: "/api/dead?" in answer.url) as answered:
            pass
    assert "dead-new" in answered.value.text()
    assert boxes.evaluate_all("all => all.map((each) => each.dataset.key)") == before
    shows(page, "2 chosen; the list is frozen")
    press(page, re.compile("^Drop$"), sure="Drop")
    shows(page, "2 dropped")
    assert not {"dead-4", "dead-5"} & set(world.rig.dead())
    expect(page.get_by_label("Choose dead-new")).to_be_visible()


def test_correcting_a_body(page: Page, world: World) -> None:
    """What is no JSON can't be sent, what goes elsewhere is refused, and the old body is seen."""
    job = Job("wrong", None, 78, type="fail", facts={"rows": "7x"})
    world.rig.publish([job])
    world.wait(lambda: "wrong" in world.rig.dead())
    allow(page, "Ada")
    at(page, "letter", id="wrong")
    press(page, "Correct the body")
    text, send = page.get_by_label("Corrected body"), "Redrive with this body"
    expect(page.get_by_role("button", name=send)).to_be_disabled()
    old = text.input_value()
    text.fill(old.replace('"7x"', "7x"))
    shows(page, "This is not JSON")
    expect(page.get_by_role("button", name=send)).to_be_disabled()
    text.fill(old.replace("78", "79"))
    press(page, send, sure="Redrive")
    shows(page, "its tenant would be '79', and was '78'")
    text.fill(old.replace('"7x"', "7"))
    difference = page.get_by_label("Difference")
    expect(difference.locator("del")).to_have_text(re.compile('^-   "rows": "7x"'))
    expect(difference.locator("ins")).to_have_text(re.compile('^\\+   "rows": 7'))
    press(page, send, sure="Redrive")
    shows(page, "1 redriven with a corrected body")
    assert world.daemon.events("operator.redriven")[-1]["corrected"] is True
    world.wait(lambda: "wrong" in world.rig.dead())
    at(page, "task", id="wrong")
    shows(page, "body corrected by Ada")
    expect(page.get_by_label("Body before")).to_contain_text('"rows": "7x"')
    # And all that match a filter are dropped.
    follow(page, "Dead letters")
    fields = {"Tenant": "78", "Reason contains": "ON PURPOSE"}
    fill(page, {**fields, "Died within (30s, 10m, 2h, 1d)": "1h"}, "Filter")
    press(page, "Drop all 1 that match")
    page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    shows(page, "1 dropped")
    assert "wrong" not in world.rig.dead()


def test_holding_back_and_letting_go(page: Page, world: World) -> None:
    """A group where it is shown and in the list, everything, a waiting task, and a schedule."""
    allow(page, "Ada")
    for key, state in (("contact/1:42", "running"), ("ready-020:7", "ready")):
        at(page, "group", key=key)
        expect(page.get_by_role("heading", level=1)).to_have_text(key)
        press(page, "Pause")
        shows(page, "Ada paused the group")
        press(page, "Resume")
        expect(page.get_by_text("Ada paused the group")).to_have_count(0)
        expect(page.locator(".title .badge")).to_have_text(state)
    at(page, "group", key="nobody")
    shows(page, "Nothing is known of a group of this key")
    at(page, "nowhere")
    shows(page, "There is no view nowhere")
    assert world.daemon.events("operator.paused")[-1]["by"] == "Ada"
    for state, verb in (("ready", "Pause"), ("paused", "Resume")):
        at(page, "groups", state=state, text="ready-021")
        press(page, f"{verb} ready-021:8")
        shows(page, "No group found")
    world.store(lambda groups: groups.pause("", "somebody"))
    at(page, "overview")
    press(page, "Resume everything")
    world.wait(lambda: not world.raw.exists(world.rig.keys("paused_all")))
    world.rig.publish([Job("later", "later", facts={"delay_s": 9000})])
    world.wait(lambda: world.get("tasks", state="delayed")["tasks"] != [])
    at(page, "task", id="later")
    press(page, "Run now", sure="Run")
    shows(page, "later is due")
    press(page, "Drop", sure="Drop")
    shows(page, "later is dropped")
    _cancel(page, world)
    # A parked group's letter is one click away, and so is its redrive.
    note = orjson.dumps(["<behind>", 1_000_000, "died"])
    world.raw.hset(world.rig.keys("parked"), "parked:1", note)
    at(page, "group", key="parked:1")
    link = page.get_by_role("link", name="<behind>")
    expect(link).to_have_attribute("href", re.compile("^#/letter"))
    expect(page.get_by_role("button", name="Redrive")).to_be_visible()
    at(page, "groups", state="parked")
    expect(page.get_by_role("table")).to_contain_text("<behind>")
    world.raw.hdel(world.rig.keys("parked"), "parked:1")
    follow(page, "Schedules")
    table = page.get_by_role("table", name="Schedules")
    expect(table).to_contain_text("0 0 1 1 * UTC")
    follow(page, "yearly")
    shows(page, "Runs of yearly")
    table.get_by_role("button", name="Pause").click()
    expect(table).to_contain_text("paused")
    table.get_by_role("button", name="Resume").click()
    expect(table.get_by_role("button", name="Pause")).to_be_visible()


def _cancel(page: Page, world: World) -> None:
    """One task, and what is left of its group."""
    world.rig.publish(Job(f"error-{n}", "error") for n in range(3))  # all workers are busy
    world.wait(lambda: world.get("group", key="error:42")["why"]["queued"] == 3)
    at(page, "task", id="error-1")
    press(page, "Cancel", sure="Cancel task")
    shows(page, "error-1 is cancelled")
    expect(page.locator("main .badge")).to_have_text("cancelled")
    shows(page, "Cancelled by")
    at(page, "group", key="error:42")
    press(page, "Cancel tasks", sure="Cancel tasks")
    shows(page, "2 cancelled")
    expect(page.locator(".title .badge")).to_have_text("idle")


def test_acting_on_many_tasks(page: Page, world: World) -> None:
    """Those that are chosen, each by its own tenant; of a type, from its own page."""
    facts = {"delay_s": 9000}
    world.rig.publish(Job(f"bulk-{n}", f"bulk-{n}", tenant=7 + n, facts=facts) for n in range(4))
    world.wait(lambda: len(world.get("tasks", state="delayed", id="bulk-")["tasks"]) == 4)
    allow(page, "Ada")
    at(page, "tasks", state="delayed", id="bulk-")
    for id_ in ("bulk-0", "bulk-1"):
        page.get_by_label(f"Choose {id_}").check()
    shows(page, "2 chosen; the list is frozen")
    press(page, "Cancel tasks", sure="Cancel tasks")
    shows(page, "2 cancelled")
    expect(page.get_by_label("Choose bulk-0")).to_have_count(0)
    page.get_by_label("Choose all shown").check()
    press(page, "Drop", sure="Cancel")
    press(page, "Drop", sure="Drop")
    shows(page, "2 dropped", "No task found")
    at(page, "tasks", state="dropped", id="bulk-")
    shows(page, re.compile(r"^2 shown, the latest to end first, of [\d,]+ looked at$"))
    at(page, "tasks", state="queued")
    press(page, "Choose all that match")
    shows(page, re.compile(r"^[12]\d\d chosen"))
    follow(page, "Types")
    expect(page.get_by_role("img", name=re.compile(r"^fail: 0 done, .* dead"))).to_be_visible()
    follow(page, "work")
    shows(page, re.compile("^≈"), re.compile(r"^each minute, \d+ at most$"))
    expect(page.get_by_role("table", name="Tasks")).to_contain_text("run-0")


def test_trying_a_route(page: Page) -> None:
    follow(page, "Configuration")
    expect(page.get_by_role("table", name="Rules")).to_contain_text("{entity}:{tenant_id}")
    for name, text in {
        "Handlers": "exec true",
        "schedules": "0 0 1 1 *",
        "http.tokens": "look",
    }.items():
        expect(page.get_by_role("table", name=name, exact=True)).to_contain_text(text)
    expect(page.get_by_text(re.compile(r'^[\[{].*"'))).to_have_count(0)  # no JSON
    body = '{"app_name": "crm", "entity": "<b>", "tenant_id": 42, "type": "work"}'
    fill(page, {"Body": body}, "Route it")
    expect(page.get_by_role("link", name="<b>:42")).to_be_visible()
    fill(page, {"Body": "[]"}, "Route it")
    shows(page, "A dead letter: the body is not a JSON object")


def test_reading_what_strangers_sent(page: Page, world: World) -> None:
    """Ids, group keys, types, reasons and bodies are text in every view."""
    group = world.get("task", id=HOSTILE_ID)["group"]
    for view, params in (
        ("group", {"key": group}),
        ("task", {"id": HOSTILE_ID}),
        ("groups", {"state": "running"}),
        ("tasks", {"state": "running"}),
        ("dead", {}),
        ("letter", {"id": NO_TYPE}),
        ("groups", {"text": "<img src=x onerror=alert(1)>"}),
    ):
        at(page, view, **params)
        expect(page.locator("main h1")).to_be_visible()
        expect(page.locator("main .card").last).not_to_be_empty()
    at(page, "group", key=group)
    expect(page.get_by_role("heading", level=1)).to_have_text(group)
    page.get_by_title(HOSTILE_ID, exact=True).first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE_ID)
    expect(page.get_by_role("progressbar", name="29 of 100, 29 %")).to_be_visible()
    assert page.locator("main script, main img, main b:has-text('no type')").count() == 0
    assert "owned" not in page.title()
