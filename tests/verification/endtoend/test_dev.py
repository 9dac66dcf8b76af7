"""The first ten minutes: servers of one's own, mistakes, a save, tasks, and nothing left behind."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

from tests.deadlines import deadline
from tests.endtoend.process import environment, groupflow

HANDLERS = """
from groupflow import App, Task

app = App()


@app.handler("greet")
async def greet(task: Task) -> None:
    print("hello", task.json()["name"], flush=True)
"""
ENVIRONMENT = environment(GROUPFLOW_RABBITMQ__PARTITIONS="2")  # needs a plugin of RabbitMQ


class Dev:
    """`groupflow dev` in a folder, read line by line."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            groupflow("dev", "--app", "handlers:app"),
            cwd=folder,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def until(self, *words: str) -> str:
        """What it says until all of these words have been in it."""
        assert self.process.stdout is not None
        said = ""
        while not all(each in said for each in words):
            line = self.process.stdout.readline()
            assert line, said
            said += line
        return said


def test_a_session(tmp_path: Path) -> None:
    handlers = tmp_path / "handlers.py"
    handlers.write_text(f"{HANDLERS}import nowhere\n")
    dev = Dev(tmp_path)
    try:
        said = dev.until("It ended")
        urls = dict(re.findall(r"export (\w+)=(\S+)", said))
        assert set(urls) == {"GROUPFLOW_RABBITMQ__URL", "GROUPFLOW_REDIS__URL"}
        assert re.search(r"The page: http://127\.0\.0\.1:\d+/", said)
        assert "No module named 'nowhere'" in said
        handlers.write_text(HANDLERS)
        assert "handlers.py saved" in dev.until("Ready.")
        done = subprocess.run(
            groupflow("publish", "--type", "greet"),
            cwd=tmp_path,
            env={**ENVIRONMENT, **urls},
            input='{"name": "Ada"}\n{"nam": "Bob"}\n',
            capture_output=True,
            text=True,
            timeout=deadline(),
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said = dev.until("✓ greet", "(attempt 1, again", "           KeyError: 'name'")
        assert "hello Ada" in said
        assert re.search(r"✓ greet  \S+  \d", said)
        assert "handlers.py" in said
    finally:
        dev.process.send_signal(signal.SIGINT)
        rest, _ = dev.process.communicate(timeout=deadline())
    assert dev.process.returncode == 0, rest
    for url in urls.values():
        (port,) = re.findall(r":(\d+)/", url)
        assert not any(f":{int(port):04X} " in line for line in _listening())


def _listening() -> list[str]:
    return [
        line for line in Path("/proc/net/tcp").read_text().splitlines() if line.split()[3] == "0A"
    ]
