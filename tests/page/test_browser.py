"""The page in a real browser: every view, every action, both themes, narrow, by keyboard alone.

After each test the console must be empty: no error, and nothing that the policy had to stop.
"""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from tests.endtoend.rig import Job
from tests.page.browsing import CONTRAST, allow, at, enter_token, watch
from tests.page.world import HOSTILE_ID, TOKEN, World

VIEWS = (
    *("overview", "groups", "tasks", "dead", "types", "tenant", "schedules", "scans", "pools"),
    *("limits", "partitions", "configuration"),
)


class TestViews:
    def test_overview(self, page: Page, world: World) -> None:
        expect(page.get_by_role("link", name="Ready groups")).to_contain_text("119")
        expect(page.get_by_role("link", name="Running")).to_contain_text("2 grouped")
        expect(page.get_by_role("table", name="Daemons")).to_contain_text("d1")
        expect(page.get_by_role("table", name="Waiting longest")).to_contain_text("contact/1:42")
        expect(page.get_by_role("img", name=re.compile("^Latency"))).to_be_visible()
        expect(page.locator("#live")).to_contain_text("Live")

    def test_it_is_live(self, page: Page, world: World) -> None:
        """What happens is shown without a reload."""
        tile = page.get_by_role("link", name="Paused groups")
        expect(tile).to_contain_text("1")
        world.store(lambda groups: groups.pause("ready-010:7", "the tests"))
        expect(tile).to_contain_text("2")
        world.store(lambda groups: groups.resume("ready-010:7"))
        expect(tile).to_contain_text("1")

    def test_groups(self, page: Page) -> None:
        page.get_by_role("link", name="Groups", exact=True).click()
        expect(page.get_by_role("table", name="All groups")).to_contain_text("contact/1:42")
        expect(page.get_by_role("table")).to_contain_text("the tests")  # who paused one
        page.get_by_label("State").get_by_role("link", name=re.compile("^Ready")).click()
        rows = page.get_by_role("table").get_by_role("row")
        expect(rows).to_have_count(51)
        page.get_by_role("link", name="Next page").click()
        expect(page.get_by_role("table")).to_contain_text("ready-060")
        page.get_by_label("Name has in it").fill("ready-01")
        page.get_by_label("Tenant").fill("8")
        page.get_by_role("button", name="Filter").click()
        expect(rows).to_have_count(6)
        page.get_by_role("button", name="Group", exact=True).click()
        expect(rows.nth(1)).to_contain_text("ready-011:8")
        page.get_by_role("button", name="Group", exact=True).click()
        expect(rows.nth(1)).to_contain_text("ready-019:8")
        page.get_by_role("link", name=re.compile("^Running")).click()
        expect(page.get_by_text("None of those looked at")).to_be_visible()
        page.get_by_role("link", name="Clear").click()
        expect(page.get_by_role("table")).to_contain_text("contact/1:42")
        page.get_by_label("Open a group by its exact key").fill("contact/1:42")
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("contact/1:42")

    def test_a_groups_story(self, page: Page) -> None:
        at(page, "group", key="contact/1:42")
        expect(page.get_by_text("attempt 1 of task run-0 runs on d1")).to_be_visible()
        expect(page.get_by_text("1 to 50 of 69")).to_be_visible()
        page.get_by_role("link", name="Further back").click()
        expect(page.get_by_text("51 to 69 of 69")).to_be_visible()
        expect(page.get_by_role("table")).to_contain_text("run-69")

    def test_a_group_that_is_not_there(self, page: Page) -> None:
        at(page, "group", key="nobody's")
        expect(page.get_by_text("nothing waits in it").first).to_be_visible()

    def test_tasks(self, page: Page) -> None:
        page.get_by_role("link", name="Tasks", exact=True).click()
        expect(page.get_by_role("table")).to_contain_text("ready-0")
        page.get_by_label("State").get_by_role("link", name="Running").click()
        expect(page.get_by_role("table").get_by_role("row")).to_have_count(3)
        page.get_by_label("State").get_by_role("link", name="Queued").click()
        page.get_by_label("Id has in it").fill("ready-")
        page.get_by_label("Tenant").fill("8")
        page.get_by_label("Older than").fill("0 s")
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_role("table").get_by_role("row")).to_have_count(61)
        page.get_by_label("Older than").fill("9 days")
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_text("None of those looked at matches")).to_be_visible()
        page.get_by_label("Older than").fill("long")
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_text("That is no age")).to_be_visible()
        page.get_by_label("Open a task by its id").fill("run-0")
        page.get_by_role("button", name="Open").click()
        expect(page.locator("main")).to_contain_text("d1, grouped-")
        expect(page.get_by_role("list", name="Attempts in time")).to_contain_text("runs")
        page.get_by_role("button", name="Enter the token").click()
        enter_token(page, "Ada")
        body = page.get_by_label("Body", exact=True)
        expect(body).to_contain_text(re.compile('^{\\n  "tenant_id": 42'))
        page.get_by_role("button", name="As it came").click()
        expect(body).to_contain_text('{"tenant_id":42')
        at(page, "task", id="nobody")
        expect(page.get_by_text("There is no such task")).to_be_visible()
        at(page, "task", id="plain-0")
        expect(page.locator("main .badge")).to_have_text("done")

    def test_dead_letters(self, page: Page) -> None:
        page.get_by_role("link", name="Dead letters", exact=True).first.click()
        page.get_by_label("Type", exact=True).fill("fail")
        page.get_by_label("Reason has in it").fill("on purpose")
        page.get_by_role("button", name="Filter").click()
        expect(page.get_by_text("None matches")).to_be_visible()  # its words want the token
        page.get_by_label("Reason has in it").fill("ValueError")
        page.get_by_role("button", name="Filter").click()
        expect(page.get_by_role("link", name="dead-0")).to_be_visible()
        expect(page.get_by_role("link", name="<b>no type</b>")).to_have_count(0)
        page.get_by_role("link", name="dead-0").click()
        expect(page.get_by_text("attempt 1: ValueError")).to_be_visible()
        expect(page.get_by_text("Body and headers want the token")).to_be_visible()
        expect(page.get_by_text("(shown with the token)")).to_be_visible()
        expect(page.locator("pre")).to_have_count(0)
        page.get_by_role("button", name="Enter the token").click()
        enter_token(page, "Ada")
        expect(page.locator("pre").last).to_contain_text("<script>")
        expect(page.get_by_label("Traceback of attempt 1")).to_contain_text("ValueError")
        expect(page.get_by_text("on purpose").first).to_be_visible()

    def test_schedules(self, page: Page) -> None:
        page.get_by_role("link", name="Schedules", exact=True).click()
        table = page.get_by_role("table", name="Schedules")
        expect(table).to_contain_text("0 0 1 1 * UTC")
        page.get_by_role("link", name="yearly").click()
        expect(page.get_by_text("Runs of yearly")).to_be_visible()
        table.get_by_role("button", name="Pause").click()
        enter_token(page, "Ada")
        expect(table).to_contain_text("paused")
        table.get_by_role("button", name="Resume").click()
        expect(table.get_by_role("button", name="Pause")).to_be_visible()

    def test_configuration(self, page: Page) -> None:
        page.get_by_role("link", name="Configuration", exact=True).click()
        expect(page.get_by_role("table", name="Rules")).to_contain_text("{entity}:{tenant_id}")
        expect(page.locator("main")).to_contain_text("guest:***@")
        assert TOKEN not in page.content()
        page.get_by_label("Body").fill(
            '{"app_name": "crm", "entity": "<b>", "tenant_id": 42, "type": "work"}'
        )
        page.get_by_role("button", name="Route it").click()
        expect(page.get_by_role("link", name="<b>:42")).to_be_visible()
        page.get_by_label("Body").fill("[]")
        page.get_by_role("button", name="Route it").click()
        expect(page.get_by_text("A dead letter: the body is not a JSON object")).to_be_visible()


def test_who_may_act_is_asked_again(profile: BrowserContext) -> None:
    """Where the daemon was too busy to say so, the page doesn't make up that nobody may."""
    page, asked = profile.new_page(), list[str]()

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.fulfill(status=503, json={"detail": "busy"})
        else:
            route.continue_()

    page.route("**/api/access", answer)
    page.goto("/")
    allow(page)
    assert len(asked) > 1
    page.close()


class TestActions:
    def test_without_the_token_nothing_is_done(self, page: Page, world: World) -> None:
        at(page, "letter", id="dead-1")
        page.get_by_role("button", name="Drop").click()
        page.get_by_role("dialog").get_by_role("button", name="Close").click()
        expect(page.get_by_role("button", name="Read-only")).to_be_visible()
        assert "dead-1" in world.rig.dead()

    def test_a_wrong_token(self, page: Page) -> None:
        page.get_by_role("button", name="Read-only").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Token").fill("this is not the token")
        dialog.get_by_role("button", name="Use it").click()
        expect(dialog.get_by_role("alert")).to_contain_text("not the token")

    def test_enter_signs_in(self, page: Page) -> None:
        """As the button does, and as people expect of a field for a password."""
        page.get_by_role("button", name="Read-only").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Token").fill("this is not the token")
        dialog.get_by_label("Token").press("Enter")
        expect(dialog.get_by_role("alert")).to_contain_text("not the token")
        dialog.get_by_label("Token").fill(TOKEN)
        dialog.get_by_label("Token").press("Enter")
        expect(page.get_by_role("button", name="May act")).to_be_visible()
        page.get_by_role("button", name="May act").click()
        dialog.get_by_role("button", name="Forget the token").click()
        expect(page.get_by_role("button", name="Read-only")).to_be_visible()

    def test_pause_and_resume(self, page: Page, world: World) -> None:
        allow(page, "Ada")
        at(page, "group", key="ready-020:7")
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_text("Ada paused the group")).to_be_visible()
        page.get_by_role("button", name="Resume").click()
        expect(page.locator(".title .badge")).to_have_text("ready")
        assert world.daemon.events("operator.paused")[-1]["by"] == "Ada"

    def test_pause_and_resume_in_the_list(self, page: Page) -> None:
        allow(page)
        at(page, "groups", state="ready", text="ready-021")
        page.get_by_role("button", name="Pause ready-021:8").click()
        expect(page.get_by_text("None of those looked at")).to_be_visible()
        at(page, "groups", state="paused", text="ready-021")
        page.get_by_role("button", name="Resume ready-021:8").click()
        expect(page.get_by_text("None of those looked at")).to_be_visible()

    def test_everything_paused(self, page: Page, world: World) -> None:
        world.store(lambda groups: groups.pause("", "somebody"))
        allow(page)
        page.get_by_role("button", name="Resume everything").click()
        expect(page.get_by_role("button", name="Resume everything")).to_be_hidden()
        assert world.raw.exists(world.rig.keys("paused_all")) == 0

    def test_one_letter(self, page: Page, world: World) -> None:
        allow(page)
        at(page, "letter", id="dead-1")
        page.get_by_role("button", name="Redrive").click()
        page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
        expect(page.get_by_text("1 redriven")).to_be_visible()
        world.wait(lambda: "dead-1" in world.rig.dead())
        at(page, "letter", id="dead-1")
        page.get_by_role("button", name="Drop").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        assert "dead-1" in world.rig.dead()
        page.get_by_role("button", name="Drop").click()
        page.get_by_role("dialog").get_by_role("button", name="Drop").click()
        expect(page.get_by_text("1 dropped")).to_be_visible()
        assert "dead-1" not in world.rig.dead()

    def test_a_waiting_task(self, page: Page, world: World) -> None:
        world.rig.publish([Job("later", "later", facts={"delay_s": 9000})])
        world.wait(lambda: world.get("tasks", state="delayed")["tasks"] != [])
        allow(page)
        at(page, "task", id="later")
        page.get_by_role("button", name="Run now").click()
        page.get_by_role("dialog").get_by_role("button", name="Run").click()
        expect(page.get_by_text("later is due")).to_be_visible()
        expect(page.get_by_role("button", name="Run now")).to_be_hidden()
        page.get_by_role("button", name="Drop").click()
        page.get_by_role("dialog").get_by_role("button", name="Drop").click()
        expect(page.get_by_text("later is dropped")).to_be_visible()
        expect(page.get_by_role("button", name="Drop")).to_be_hidden()

    def test_a_selection(self, page: Page, world: World) -> None:
        allow(page)
        at(page, "dead", type="fail")
        for id_ in ("dead-4", "dead-5"):
            page.get_by_label(f"Choose {id_}").check()
        expect(page.get_by_text("2 chosen")).to_be_visible()
        page.get_by_role("button", name="Redrive", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
        expect(page.get_by_text("2 redriven")).to_be_visible()
        world.wait(lambda: {"dead-4", "dead-5"} <= set(world.rig.dead()))
        # Not on a list that is older than their second death: what comes next has them not.
        at(page, "dead", type="nobody's")
        expect(page.get_by_text("None matches")).to_be_visible()
        at(page, "dead", type="fail")
        page.get_by_label("Choose dead-4").check()
        page.get_by_label("Choose dead-5").check()
        page.get_by_role("button", name="Drop").click()
        page.get_by_role("dialog").get_by_role("button", name="Drop").click()
        expect(page.get_by_text("2 dropped")).to_be_visible()
        assert not {"dead-4", "dead-5"} & set(world.rig.dead())

    def test_all_that_match(self, page: Page, world: World) -> None:
        """By what they died of; what is counted is what is put back."""
        allow(page)
        page.get_by_role("link", name="Dead letters", exact=True).first.click()
        table = page.get_by_role("table", name="Reasons")
        table.get_by_role("link", name=re.compile("^ValueError")).click()
        page.get_by_role("button", name=re.compile("^Redrive all .* that match")).click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_text(re.compile(r"^Redrive all \d+ that match"))).to_be_visible()
        dialog.get_by_role("button", name="Redrive").click()
        expect(page.get_by_text(re.compile(r"^\d+ redriven$"))).to_be_visible()
        world.wait(lambda: "dead-2" in world.rig.dead())

    def test_a_parked_groups_letter(self, page: Page, world: World) -> None:
        """Is one click away, and so is its redrive."""
        note = orjson.dumps(["<behind>", 1_000_000, "died"])
        world.raw.hset(world.rig.keys("parked"), "parked:1", note)
        at(page, "group", key="parked:1")
        link = page.get_by_role("link", name="<behind>")
        expect(link).to_have_attribute("href", re.compile("^#/letter"))
        expect(page.get_by_role("button", name="Redrive")).to_be_visible()
        at(page, "groups", state="parked")
        expect(page.get_by_role("table")).to_contain_text("<behind>")
        world.raw.hdel(world.rig.keys("parked"), "parked:1")

    def test_the_list_stands_still_while_somebody_chooses(self, page: Page, world: World) -> None:
        at(page, "dead", type="fail")
        page.get_by_label("Choose dead-2").check()
        boxes = page.get_by_role("checkbox")
        before = boxes.evaluate_all("all => all.map((each) => each.dataset.key)")
        world.rig.publish([Job("dead-new", None, type="fail")])
        world.wait(lambda: "dead-new" in world.rig.dead())
        for _ in range(2):  # the second was asked for after the first was dealt with
            with page.expect_response(lambda answer: "/api/dead?" in answer.url) as answered:
                pass
        assert "dead-new" in answered.value.text()
        assert boxes.evaluate_all("all => all.map((each) => each.dataset.key)") == before
        expect(page.get_by_text("1 chosen; the list stands still")).to_be_visible()
        page.get_by_label("Choose dead-2").uncheck()
        expect(page.get_by_label("Choose dead-new")).to_be_visible()


class TestStrangers:
    def test_nothing_of_theirs_is_run(self, page: Page, world: World) -> None:
        """Ids, group keys, types, reasons and bodies are text wherever they are shown."""
        group = world.get("task", id=HOSTILE_ID)["group"]
        for view, params in (
            ("group", {"key": group}),
            ("task", {"id": HOSTILE_ID}),
            ("groups", {"state": "running"}),
            ("tasks", {"state": "running"}),
            ("dead", {}),
            ("letter", {"id": "<b>no type</b>"}),
            ("groups", {"text": "<img src=x onerror=alert(1)>"}),
        ):
            at(page, view, **params)
            expect(page.locator("main h1")).to_be_visible()
            expect(page.locator("main .card").last).not_to_be_empty()
        at(page, "group", key=group)
        expect(page.get_by_role("heading", level=1)).to_have_text(group)
        page.get_by_title(HOSTILE_ID, exact=True).first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE_ID)
        assert page.locator("main script, main img, main b:has-text('no type')").count() == 0
        assert "owned" not in page.title()

    def test_the_policy_holds(self, browser: Browser, world: World) -> None:
        """Whoever did get markup or code into the page could not run it."""
        page = browser.new_page(base_url=world.url)
        said: list[str] = []
        watch(page, said)
        page.goto("/")
        expect(page.locator("#live")).to_contain_text("Live")
        page.evaluate(
            """() => {
                const attempts = [
                    () => {
                        const script = document.createElement("script");
                        script.textContent = "document.title = 'owned'";
                        document.body.append(script);
                    },
                    () => {
                        const image = document.createElement("img");
                        image.setAttribute("onerror", "document.title = 'owned'");
                        image.src = "/nothing";
                        document.body.append(image);
                    },
                    () => { document.body.innerHTML += "<b onclick='1'>owned</b>"; },
                ];
                for (const attempt of attempts) {
                    try { attempt(); } catch (error) { console.error(String(error)); }
                }
            }"""
        )
        page.wait_for_timeout(200)
        assert page.title() != "owned"
        assert page.get_by_text("owned").count() == 0
        assert any("Content Security Policy" in text or "TrustedScript" in text for text in said)
        page.close()


class TestForm:
    def test_themes(self, page: Page) -> None:
        def ground() -> str:
            return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

        page.emulate_media(color_scheme="light")
        light = ground()
        page.emulate_media(color_scheme="dark")
        dark = ground()
        assert light != dark
        page.get_by_role("button", name="Light theme").click()
        assert ground() == light
        page.reload()
        expect(page.get_by_role("button", name="Dark theme")).to_be_visible()
        assert ground() == light
        page.evaluate("localStorage.clear()")

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_text_can_be_read(self, page: Page, scheme: str) -> None:
        """Each text colour stands out from its ground by 4.5 to 1 at least (WCAG AA)."""
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        for view in VIEWS:
            at(page, view)
            expect(page.locator("main h1")).to_be_attached()
            weak = page.evaluate(CONTRAST)
            assert weak == [], f"{view}, {scheme}"

    def test_400_pixels(self, page: Page) -> None:
        """Nothing is wider than a narrow screen, and every view can be reached on it."""
        page.set_viewport_size({"width": 400, "height": 800})
        everywhere: list[tuple[str, dict[str, str]]] = [(view, {}) for view in VIEWS]
        one = [("group", {"key": "contact/1:42"}), ("letter", {"id": "dead-0"})]
        for view, params in [*everywhere, *one]:
            at(page, view, **params)
            expect(page.locator("main .card").last).not_to_be_empty()
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 400, f"{view} is {wide} wide"

    def test_by_keyboard(self, page: Page) -> None:
        """From the top to a dead letter's redrive, and out of its dialog, without a pointer."""
        expect(page.locator("#live")).to_contain_text("Live")
        page.keyboard.press("Tab")
        expect(page.locator("#skip")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        at(page, "letter", id="dead-0")
        button = page.get_by_role("button", name="Redrive")
        button.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        at(page, "overview")
        plot = page.get_by_role("img", name=re.compile("^Tasks, "))
        plot.focus()
        page.keyboard.press("ArrowLeft")
        expect(plot).to_have_attribute("aria-label", re.compile("^Tasks, .*[0-9]"))

    def test_keys_lead_everywhere(self, page: Page) -> None:
        expect(page.locator("#live")).to_contain_text("Live")
        for key, name in {"d": "Dead letters", "t": "Tasks", "p": "Partitions"}.items():
            page.keyboard.press("g")
            page.keyboard.press(key)
            expect(page.get_by_role("heading", level=1)).to_have_text(name)
        page.keyboard.press("/")
        expect(page.get_by_label("Open a task by its id")).to_be_focused()
        page.keyboard.type("run-1/?go")  # into the field, whatever the letters mean elsewhere
        page.keyboard.press("g")
        expect(page.get_by_label("Open a task by its id")).to_have_value("run-1/?gog")
        page.keyboard.press("Tab")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_contain_text("g o")
        page.keyboard.press("Escape")
        page.keyboard.press("g")
        page.keyboard.press("o")
        expect(page.get_by_role("link", name="Ready groups")).to_be_visible()

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_nothing_stands_in_anybodys_way(self, page: Page, scheme: str) -> None:
        """By axe's rules, in every view."""
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        allow(page)
        one = [("group", {"key": "contact/1:42"}), ("letter", {"id": "dead-0"})]
        tasks = [("task", {"id": "run-0"}), ("task", {"id": "plain-0"}), ("tenant", {"name": "7"})]
        found = []
        for view, params in [*((view, {}) for view in VIEWS), *one, *tasks]:
            at(page, view, **params)
            expect(page.locator("main .card").last).not_to_be_empty()
            for violation in Axe().run(page).response["violations"]:
                where = [node["target"] for node in violation["nodes"]][:3]
                found.append((view, violation["id"], violation["help"], where))
        assert found == []

    def test_the_focus_stays_while_all_is_live(self, page: Page, world: World) -> None:
        at(page, "groups", state="ready")
        link = page.get_by_role("link", name="ready-030:7")
        link.focus()
        world.store(lambda groups: groups.pause("ready-031:8", "the tests"))
        expect(page.get_by_role("link", name="ready-031:8")).to_have_count(0)
        expect(link).to_be_focused()
        world.store(lambda groups: groups.resume("ready-031:8"))

    def test_pictures(self, page: Page, tmp_path: Path) -> None:
        """Every view can be drawn whole: what a person would look at."""
        for view in VIEWS:
            at(page, view)
            expect(page.locator("main .card").last).not_to_be_empty()
            assert len(page.screenshot(path=tmp_path / f"{view}.png", full_page=True)) > 10_000
