"""The first ten minutes: servers of one's own, mistakes, a save, tasks, and nothing left behind."""

from __future__ import annotations

import re
from pathlib import Path

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
        assert set(urls) == {"GROUPFLOW_RABBITMQ__URL", "GROUPFLOW_REDIS__URL"}
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
        said = said_until(dev, "✓ greet", "(attempt 1, again", "           KeyError: 'name'")
        assert "hello Ada" in said
        assert re.search(r"✓ greet  \S+  \d", said)
        assert "handlers.py" in said
        rest = interrupted(dev)
    assert dev.returncode == 0, rest
    open_ports = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    for url in urls.values():
        (port,) = re.findall(r":(\d+)/", url)
        ends = f":{int(port):04X}"
        assert not any(at.endswith(ends) and how == "0A" for _, at, _, how, *_ in open_ports)
