"""Daemons of one configuration whose tasks say in their bodies what their attempts do.

What the handlers saw is a file of lines, one an attempt's start or end, in the order in which they
were written. Verbs run in this process, by the same `main` as the command's.
"""

from __future__ import annotations

import io
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import orjson
import pytest

from groupflow.broker.publisher import Outgoing, publishing
from groupflow.cli import main
from groupflow.operate.tasks import Found, find_task
from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys
from tests.deadlines import deadline
from tests.endtoend.process import Process, until
from tests.endtoend.rig import run

_runs = itertools.count(1)

# What an attempt does is in its task's body: for each stage a list, of which it takes the entry of
# its number, and the last one from there on.
HANDLERS = """
import asyncio, json, os, signal, time
from pathlib import Path
from groupflow import Advance, App, Dead, Done, Retry, Task

app = App()
JOURNAL = {journal!r}


def note(what: str, task: Task) -> None:
    facts = [task.id, task.attempt, task.crashes, task.stage, task.context, os.getpid()]
    line = json.dumps([what, *facts])
    file = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, (line + "\\n").encode())
    os.close(file)


@app.handler("scripted")
async def scripted(task: Task):
    note("start", task)
    script = task.json().get("do", {{}}).get(task.stage or "", ["ok"])
    what, _, more = script[min(task.attempt, len(script)) - 1].partition(" ")
    if what == "wait":
        while not Path(more).exists():
            await asyncio.sleep(0.01)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    note("end", task)
    if what == "fail":
        raise ValueError(more or "no such row")
    if what == "retry":
        return Retry(after=float(more), reason="busy")
    if what == "dead":
        return Dead(more)
    if what == "advance":
        return Advance(more, {{"came from": task.stage, "rows": [1, 2]}})
    return Done()


@app.handler("overruns", timeout=0.2, max_attempts=1)
async def overruns(task: Task):
    note("start", task)
    await asyncio.sleep(600)
"""

CONFIG = """
[rabbitmq]
url = "{rabbitmq}"
queue = "{name}"
[redis]
url = "{redis}"
namespace = "{name}"
timeout = {store_timeout}
[workers]
plain = 2
grouped = 4
lease = {lease}
drain = 5.0
[http]
listen = "127.0.0.1:0"
[retry]
max_attempts = 3
interval = -0.2
[log]
level = "debug"
format = "json"
[[groups]]
app = "hold"
key = "hold:{{entity}}"
[[groups]]
app = "aside"
key = "aside:{{entity}}"
on_retry = "step-aside"
interval = -2
[[groups]]
app = "park"
key = "park:{{entity}}"
on_dead = "park"
max_attempts = 2
[handlers."shell"]
exec = ["/bin/sh", "{folder}/shell.sh"]
"""

SHELL = """
body=$(cat)
echo "$GROUPFLOW_ID|$GROUPFLOW_GROUP|$GROUPFLOW_ATTEMPT|$GROUPFLOW_STAGE|$GROUPFLOW_CONTEXT|$body" \
  >> {folder}/shell.out
case "$GROUPFLOW_STAGE$GROUPFLOW_ATTEMPT" in
  1) echo "table locked" >&2; exit 75 ;;
  2) echo '{{"stage": "two", "context": {{"rows": 3}}}}' ;;
  two1) echo "disk full" >&2; exit 3 ;;
  *) exit 0 ;;
esac
"""


class Cluster:
    """A configuration, its servers and handlers; daemons as a test wants them."""

    def __init__(
        self, folder: Path, redis: RedisServer, rabbitmq: RabbitmqServer, lease: float = 3600.0
    ) -> None:
        self.folder = folder
        self.name = f"life{next(_runs)}"
        self._rabbitmq = rabbitmq.url
        self._redis = redis.url
        self._journal = folder / "journal"
        self._config = str(folder / "groupflow.toml")
        names = {"rabbitmq": rabbitmq.url, "redis": redis.url, "name": self.name, "folder": folder}
        names |= {"lease": lease, "store_timeout": deadline()}
        (folder / "groupflow.toml").write_text(CONFIG.format(**names))
        (folder / "h.py").write_text(HANDLERS.format(journal=str(self._journal)))
        (folder / "shell.sh").write_text(SHELL.format(folder=folder))

    def spawn(self, name: str) -> Process:
        """Start a daemon and wait for nothing."""
        command = [sys.executable, "-m", "groupflow", "run", "--name", name]
        command += ["--config", self._config, "--app", "h:app"]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("GROUPFLOW_")}
        env = {**kept, "PYTHONPATH": str(self.folder)}
        return Process(name, command, env, self.folder / f"{name}.log")

    def publish(self, *messages: Outgoing) -> None:
        async def publish_all() -> None:
            async with publishing(self._rabbitmq, self.name) as publisher:
                await publisher.publish_all(messages)

        run(publish_all())

    def cli(self, *arguments: str, code: int = 0) -> str:
        """What a verb prints on stdout; it must end with that exit code."""
        stdout, stderr = io.StringIO(), io.StringIO()
        with redirect_stdout(stdout), redirect_stderr(stderr), pytest.raises(SystemExit) as end:
            main([*arguments, "--config", self._config])
        assert end.value.code == code, stderr.getvalue()
        return stdout.getvalue()

    def json(self, *arguments: str) -> Any:
        return orjson.loads(self.cli(*arguments, "--json"))

    def state(self, id_: str) -> str:
        return str(self.json("task", id_)["state"])

    def notes(self, what: str = "start", among: str = "") -> list[list[Any]]:
        """The journal's lines of a kind, of the tasks whose ids begin so: id, attempt, crashes …"""
        if not self._journal.exists():
            return []
        lines = [orjson.loads(line) for line in self._journal.read_bytes().splitlines()]
        return [line[1:] for line in lines if line[0] == what and line[1].startswith(among)]

    def ran(self, among: str) -> list[tuple[str, int]]:
        """Which attempts began, in order."""
        return [(line[0], line[1]) for line in self.notes("start", among)]

    def until(self, look: Callable[[], Any]) -> None:
        """Wait until something is so."""
        until(look, lambda: f"in vain; the last that ran: {self.notes()[-20:]}")

    def until_ended(self, id_: str) -> None:
        """Wait until an attempt of a task has come to its end."""
        self.until(lambda: self.notes("end", id_))

    def find(self, id_: str) -> Found | None:
        async def ask() -> Found | None:
            keys = Keys(self.name)
            client = StoreClient(self._redis, keys)
            try:
                return await find_task(client, id_)
            finally:
                await client.close()

        return run(ask())

    def until_state(self, id_: str, *states: str, seconds: float | None = None) -> dict[str, Any]:
        """Wait until a task is in a state; what `task --json` says of it then."""

        def is_so() -> bool:
            found = self.find(id_)
            return found is not None and found.state in states

        until(is_so, lambda: f"{id_} is not {states} but {self.find(id_)}", seconds)
        told: dict[str, Any] = self.json("task", id_)
        return told


@contextmanager
def running(cluster: Cluster, *names: str) -> Iterator[list[Process]]:
    """Daemons that work, and end well but for those that the test has killed."""
    daemons = [cluster.spawn(name) for name in names]
    try:
        for daemon in daemons:
            daemon.wait_for("intake.started")
        yield daemons
        alive = [daemon for daemon in daemons if daemon.is_running]
        for daemon in alive:
            daemon.send(signal.SIGTERM)
        assert [daemon.wait() for daemon in alive] == [0] * len(alive)
    finally:
        for daemon in daemons:
            daemon.close()


def message(id_: str, app: str | None = None, type_: str = "scripted", **body: Any) -> Outgoing:
    """A message whose group, if its app has one, is named for what its id begins with."""
    headers = body.pop("headers", {})
    facts = {"entity": id_.rstrip("0123456789"), "tenant_id": 42, **body}
    if app is not None:
        facts["app_name"] = app
    return Outgoing(orjson.dumps(facts), type_, message_id=id_, headers=headers)


def script(*steps: str, **stages: list[str]) -> dict[str, list[str]]:
    """What a task does: its attempts before any stage, and those of each stage."""
    return {"": list(steps), **stages}
