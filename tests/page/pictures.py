"""`python -m tests.page.pictures`: the pictures of docs/images, of the page as it is now.

A daemon with some of everything, an hour of made-up samples and a day of made-up figures by type;
all else in the pictures is what the page says of it.
"""

from __future__ import annotations

import math
import re
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Literal

import orjson
from playwright.sync_api import Page, expect, sync_playwright

from groupflow.core.measures import DURATIONS
from groupflow.operate.statistics import INTERVAL, KEPT, THINNED
from groupflow.operate.types import RINGS
from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.servers.kinds import HASH_EXCHANGE
from tests.endtoend.rig import Job
from tests.page.browsing import EVERYWHERE, allow, at, launch
from tests.page.served import Tables
from tests.page.world import World
from tests.running import running

REPOSITORY = Path(__file__).parents[2]
IMAGES = REPOSITORY / "docs" / "images"
TYPES = {"import.contacts": 90, "import.orders": 40, "mail.send": 300}  # tasks, about
PICTURES: dict[str, tuple[str, dict[str, str]]] = {
    **EVERYWHERE,
    "type": ("type", {"name": "import.orders"}),
    "scan": ("scans", {"name": "orders"}),
    "schedules": ("schedules", {"name": "every-second"}),
    "worker": ("pools", {"pool": "couriers", "worker": "anna@van-1"}),
}
THEMES: Final[tuple[tuple[Literal["light", "dark"], str], ...]] = (("light", ""), ("dark", "-dark"))
RULES: dict[str, dict[str, Any]] = {
    "mail": {"key": "mail:{tenant_id}", "rate": "10/s burst 50"},
    "billing": {"key": "account:{account}", "concurrency": 4},
    "rows": {"key": "rows:{tenant_id}", "batch": 100, "batch_wait": 2},
    "edits": {"key": "contact:{contact_id}", "debounce": 5},
}
SCHEDULES: list[dict[str, Any]] = [
    {"name": "nightly-import", "cron": "30 2 * * *", "timezone": "Europe/Berlin"},
    {"name": "every-second", "every": 1},
    {"name": "monthly-report", "cron": "0 6 1 * *"},
]
TABLES: Tables = [
    *(("[[groups]]", {"name": n, "app": n, "shares": True, **rule}) for n, rule in RULES.items()),
    *(("[[schedules]]", {"type": "work", **each}) for each in SCHEDULES),
    ("[tenants]", {"concurrency": 40}),
    ("[tenants.9]", {"concurrency": 4, "rate": "20/min", "weight": 3}),
    ("[pools.couriers]", {"types": ["deliver"], "lease": 900}),
    ("[pools.printers]", {"types": ["print"]}),
]
_HIDE = """([from, to]) => {
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const node = walk.currentNode;
        if (node.data.includes(from)) node.data = node.data.replaceAll(from, to);
    }
}"""


class Shown(World):
    """A daemon with work whose names can be shown."""

    app = "tests.page.shown:app"
    tables = TABLES
    group, id, note = "order 12", "import-900", "by hand"

    def _fill(self) -> None:
        """What waits and runs everywhere; couriers with more to deliver, and a limited tenant."""
        super()._fill()
        parcels = ((f"parcel-{n:06}", f"street {n % 9}" if n % 3 else None) for n in range(40))
        self.rig.publish(Job(id_, street, type="deliver") for id_, street in parcels)
        for name, limit in (("anna@van-1", 4), ("bert@van-2", 6), ("cleo@bike", 1)):
            path = f"pools/couriers/workers/{name}/claims"
            self.act(path, {"limit": limit, "wait": 30}).raise_for_status()
        wanted = {"tenant": "8", "rate": "2/min", "seconds": 600, "by": "Ada"}
        self.act("limit", wanted).raise_for_status()
        self.rig.publish(Job(f"late-{n}", f"contact {n}", tenant=8) for n in range(30))

    def make_up(self) -> None:
        """An hour and a day of samples, and a day of figures by type."""
        now = time.time()
        self._sample(now, 1)
        self._sample(now, THINNED)
        for ring in RINGS.values():
            for n in range(ring.kept - 1, 0, -1):
                number, share = int(now / ring.length) - n, ring.length / 300
                types = {}
                for place, (name, size) in enumerate(TYPES.items()):
                    done = round(size * share * (1.5 + math.sin(number * share / 20 + place)))
                    took = _spread(0.02 * 4**place, done)
                    types[name] = {f"d{at:02}": each for at, each in enumerate(took) if each}
                    types[name] |= {"f17": done // 30, "x17": done // 90}
                busy = (500 + 300 * math.sin(number * share / 20)) * share
                told = {"number": number, "busy": busy, "capacity": 1200 * share, "types": types}
                field = f"{ring.name}{number % ring.kept}"
                self.raw.hset(self.rig.keys("tallies"), field, orjson.dumps(told))

    def _sample(self, now: float, step: int) -> None:
        """One sample of so many intervals, for as long as they are kept."""
        taken, interval = 0, INTERVAL * step
        for n in range(KEPT - 2, 0, -1):
            number = int(now / interval) - n
            taken += step * round(4000 + 2500 * math.sin(n / 30) + 400 * math.sin(n * 1.7))
            waits = round(900 + 700 * math.sin(n / 25))
            totals = [taken, taken - waits, taken // 5000, 0, 100, waits, 8, 16, waits // 8, 3, 13]
            times = [_spread(scale * (1 + 0.6 * math.sin(n / 20))) for scale in (0.3, 0.2, 0.05)]
            row = [f"{round(number * interval * 1e6):016d}", *totals, *times]
            field = f"{'d' if step > 1 else ''}{number % KEPT}"
            shown = {"day": row} if step > 1 else row
            self.raw.hset(self.rig.keys("samples"), field, orjson.dumps(shown))


def _spread(middle: float, tasks: int = 4000) -> list[int]:
    """How many of some tasks took how long, around some seconds."""
    return [
        round(tasks / 5 * math.exp(-((math.log(bound / middle) / 0.65) ** 2) / 2))
        for bound in (*DURATIONS, math.inf)
    ]


def draw(page: Page, name: str) -> None:
    """One picture, once nothing is missing in it."""
    expect(page.locator("main .card").last).not_to_be_empty()
    expect(page.locator("#live")).to_contain_text("Live")
    page.wait_for_timeout(2500)  # so that charts and lists have been asked for
    for place in (REPOSITORY, tempfile.gettempdir()):  # no picture tells where this ran
        page.evaluate(_HIDE, [str(place), "/srv/shop"])
    page.screenshot(path=IMAGES / f"{name}.png")
    print(f"docs/images/{name}.png")


def take_all(page: Page) -> None:
    """All of them, each view in both themes; the page is on the overview, and allowed to act."""
    for theme, suffix in THEMES:
        page.emulate_media(color_scheme=theme)
        for name, (view, params) in PICTURES.items():
            at(page, view, **params)
            draw(page, f"{name}{suffix}")
    page.emulate_media(color_scheme="light")
    at(page, "dead")
    page.get_by_role("button", name=re.compile(r"^Redrive all [0-9]+ that")).click()
    draw(page, "redrive-all")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    draw(page, "keys")
    page.keyboard.press("Escape")
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 400, "height": 860})
    for name in ("overview", "groups"):
        at(page, name)
        draw(page, f"{name}-narrow")


def main() -> None:
    """Start all of it, draw, stop."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        (folder / "world").mkdir()
        with (
            running(RabbitmqServer(folder / "rabbitmq", plugins=[HASH_EXCHANGE])) as rabbitmq,
            running(RedisServer(folder / "redis")) as redis,
            closing(Shown(folder / "world", rabbitmq, redis)) as world,
        ):
            world.make_up()
            browser = launch(playwright)
            page = browser.new_page(base_url=world.url, viewport={"width": 1280, "height": 860})
            page.goto("/")
            allow(page, "Ada")
            take_all(page)
            browser.close()


if __name__ == "__main__":
    main()
