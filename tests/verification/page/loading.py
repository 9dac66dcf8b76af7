"""`python -m tests.verification.page.loading`: how long views take while very many groups wait.

A tab that is open already, nothing of ours in its cache, each view as often as asked. What is
told is the largest contentful paint, counted by the browser itself from the navigation on.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from groupflow.servers import RedisServer
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Arrival, Enqueuer
from groupflow.store.envelope import Envelope
from groupflow.store.keys import Keys
from tests.endtoend.process import Process, groupflow
from tests.page.browsing import launch
from tests.running import run, running

NAMESPACE, BATCH = "loading", 500
SHOWS = {
    "overview": "main .tile",
    "groups": "main td",
    "tasks": "main td",
    "tenant?name=7": "main h2",
    **dict.fromkeys(("dead", "types", "schedules", "scans", "pools"), "main .empty"),
    "limits": "main .lead a",
    "tenant": "main .empty, main td",
    **dict.fromkeys(("partitions", "configuration"), "main td, main dd"),
}
SETTLED = 500  # ms after which no larger paint follows
_PAINT = """() => new Promise(tell => {
    const observer = new PerformanceObserver(list => tell(list.getEntries().at(-1).startTime));
    observer.observe({type: "largest-contentful-paint", buffered: true});
})"""


async def fill(url: str, groups: int) -> None:
    """Let a task wait in each of so many groups."""
    client = StoreClient(url, Keys(NAMESPACE), "oldest", timeout=60.0)
    try:
        for first in range(0, groups, BATCH):
            numbers = range(first, min(first + BATCH, groups))
            await Enqueuer(client).enqueue([arrival(number) for number in numbers])
    finally:
        await client.close()


def arrival(number: int) -> Arrival:
    body = b'{"pad": "%s"}' % (b"x" * 180)
    return Arrival(f"{number:032d}", Envelope("bench", f"g{number}", "1", "rule", {}, body))


@contextmanager
def daemon(redis: RedisServer, folder: Path) -> Iterator[str]:
    """A daemon that is busy for long with its first two tasks; its page's address."""
    config = folder / "groupflow.toml"
    config.write_text(
        f'[redis]\nurl = "{redis.url}"\nnamespace = "{NAMESPACE}"\n'
        '[workers]\nplain = 1\ngrouped = 2\n[log]\nformat = "json"\n'
        '[http]\nlisten = "127.0.0.1:0"\n[handlers.bench]\nexec = ["sleep", "600"]\n'
    )
    command = groupflow("run", "--only", "workers", "--config", config)
    process = Process("d1", command, {}, folder / "log")
    try:
        yield str(process.wait_for("http.listening")["url"])
    finally:
        process.close()


def load(page: Page, url: str, view: str) -> float:
    """Load one view with an empty cache; milliseconds until all of it is painted."""
    page.goto(f"{url}livez")
    page.context.new_cdp_session(page).send("Network.clearBrowserCache")
    page.goto(f"{url}#/{view}", wait_until="commit")
    page.wait_for_selector(SHOWS[view])
    page.wait_for_timeout(SETTLED)
    return float(page.evaluate(_PAINT))


def main() -> None:
    """Fill, start, load, print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.verification.page.loading", description=__doc__
    )
    parser.add_argument("--groups", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=20, help="loads of each view")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        sync_playwright() as playwright,
        running(RedisServer(Path(name))) as redis,
    ):
        run(fill(redis.url, asked.groups))
        with daemon(redis, Path(name)) as url:
            browser = launch(playwright)
            page = browser.new_page()
            print(f"{asked.groups:,} groups wait\n")
            print("| view | median ms | worst ms |\n|---|---|---|")
            for view in SHOWS:
                times = [load(page, url, view) for _ in range(asked.times)]
                print(f"| {view} | {statistics.median(times):.0f} | {max(times):.0f} |")
            browser.close()


if __name__ == "__main__":
    main()
