"""The first ten minutes: servers of one's own, mistakes, a save, tasks, and nothing left behind."""

from __future__ import annotations

import re
from pathlib import Path

import httpx

from tests.demo.test_demo import interrupted, said_until, started
from tests.endtoend.process import environment, groupflow
from tests.programs import ran

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
        names = {
            "GROUPFLOW_RABBITMQ__URL",
            "GROUPFLOW_REDIS__URL",
            "GROUPFLOW_URL",
            "GROUPFLOW_TOKEN",
        }
        assert set(urls) == names
        assert re.search(r"The page: http://127\.0\.0\.1:\d+/", said)
        assert "No module named 'nowhere'" in said
        handlers.write_text(HANDLERS)
        assert "handlers.py saved" in said_until(dev, "Ready.")
        done = ran(
            *groupflow("publish", "--type", "greet"),
            folder=tmp_path,
            env=environment(**VARIABLES, **urls),
            stdin='{"name": "Ada"}\n{"nam": "Bob"}\n',
        )
        assert done.returncode == 0, done.stderr
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
