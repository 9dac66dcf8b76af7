"""The first ten minutes: servers of one's own, mistakes, a save, tasks; the demo; nothing stays."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import httpx

from tests.deadlines import deadline
from tests.demo.test_demo import interrupted, said_until, started
from tests.endtoend.process import environment, groupflow, until
from tests.programs import must

HANDLERS = """
from groupflow import App, Task

app = App()


@app.handler("greet")
async def greet(task: Task) -> None:
    print("hello", task.json()["name"], flush=True)
"""
VARIABLES = {"GROUPFLOW_RABBITMQ__PARTITIONS": "2"}  # needs a plugin of RabbitMQ


def test_a_session(tmp_path: Path) -> None:
    handlers = tmp_path / "handlers.py"
    handlers.write_text(f"{HANDLERS}import nowhere\n")
    with started("dev", "--app", "handlers:app", folder=tmp_path, **VARIABLES) as dev:
        said = said_until(dev, "It ended")
        urls = dict(re.findall(r"export (\w+)=(\S+)", said))
        names = ("RABBITMQ__URL", "REDIS__URL", "URL", "TOKEN")
        assert set(urls) == {f"GROUPFLOW_{name}" for name in names}
        assert re.search(r"The page: http://127\.0\.0\.1:\d+/", said)
        assert "No module named 'nowhere'" in said
        Path(f"{tmp_path}/no-utf8-\udcff").touch()  # it has a name that the watch can't tell
        time.sleep(1.0)
        handlers.write_text(HANDLERS)
        assert "handlers.py saved" in said_until(dev, "Ready.")
        must(
            *groupflow("publish", "--type", "greet"),
            folder=tmp_path,
            env=environment(**VARIABLES, **urls),
            stdin='{"name": "Ada"}\n{"nam": "Bob"}\n',
        )
        token = {"authorization": f"Bearer {urls['GROUPFLOW_TOKEN']}"}
        # The page's process may still be on its way.
        with httpx.Client(transport=httpx.HTTPTransport(retries=8), headers=token) as page:
            paused = page.post(f"{urls['GROUPFLOW_URL']}/api/pause", json={"group": "a"})
        assert paused.json()["changed"] is True
        assert "nothing is known of group a" in paused.json()["doubt"]
        said = said_until(dev, "✓ greet", "(attempt 1, again", "           KeyError: 'name'")
        assert "hello Ada" in said
        assert re.search(r"✓ greet  \S+  \d", said)
        assert "handlers.py" in said
        rest = interrupted(dev)
    assert dev.returncode == 0, rest
    open_ports = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    for port in [port for url in urls.values() for port in re.findall(r":(\d+)", url)]:
        ends = f":{int(port):04X}"
        assert not any(at.endswith(ends) and how == "0A" for _, at, _, how, *_ in open_ports)


def test_a_killed_session_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text(HANDLERS)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    told: Any = {"folder": tmp_path, "TMPDIR": str(temporary)}
    with started("dev", "--app", "handlers:app", **told) as dev:
        said_until(dev, "Ready.")
        assert any(temporary.iterdir())
    until(lambda: not any(temporary.iterdir()))


# The whole demo as a user starts it, on private servers, to its end.


def test_demo_ends_equal() -> None:
    """Its page is there, and lives, until the user ends the demo."""
    with started("demo", "--keep") as demo:
        said = said_until(demo, "Ctrl-C ends it")
        page = re.search(r"page is at (http://\S+/) and http://", said)
        assert page is not None
        overview = httpx.get(f"{page[1]}api/overview", trust_env=False, timeout=deadline()).json()
        assert overview["done_total"] >= 3095
        token = re.search(r"With the token (\S+) it may act", said)
        assert token is not None
        client = httpx.Client(base_url=page[1], trust_env=False, timeout=deadline())
        key = {"authorization": f"Bearer {token[1]}"}
        assert client.post("api/pause", json={"group": "a"}, headers=key).json()["changed"]
        until(lambda: client.get("api/overview").json()["done_total"] > 3100)
        assert client.get("api/overview").json()["dead"] == 0
        said += interrupted(demo)
    assert demo.returncode == 0, said
    for words in (
        "3,095 import tasks for 9 tenants: 2,381 in 240 groups, 714 plain",
        *("Starting a private RabbitMQ and Redis", "3,095 of 3,095 imported", "times as fast"),
        *("0 tasks out of order", "demo-2 killed with -9, and started again"),
        "0 lost, 0 run again without a crash, 0 failed, 0 in a wrong group",
        *("planes 240, flights 2,141, weather 714 rows: 0 differ", "Equal to a serial import"),
    ):
        assert words in said
