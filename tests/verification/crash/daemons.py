"""One life of a daemon: a real `groupflow run` that dies at a named point."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from groupflow.crashpoints import VARIABLE
from tests.endtoend.configuration import lines_of
from tests.endtoend.process import REPOSITORY, environment, groupflow
from tests.verification.crash.plans import JOURNAL, STOP_AT, Life, Plan

APP = "tests.verification.crash.handlers:app"
LEASE = 1.0


def write_config(plan: Plan, redis: str, rabbitmq: str, file: Path) -> Path:
    """A trial's settings; its folder's name is its namespace and its queue."""
    name = file.parent.name
    options = ("run", "debounce", "batch", "batch_wait", "concurrency", "rate")
    workers = {"plain": 2, "grouped": 3, "lease": LEASE, "drain": 0.05, "max_crashes": 99}
    rule = {"app": "grouped", "key": "{group}", "name": "grouped"}
    sections: dict[str, dict[str, Any]] = {
        "[rabbitmq]": {"url": rabbitmq, "queue": name, "prefetch": plan.prefetch},
        "[redis]": {"url": redis, "namespace": name},
        "[workers]": {**workers, "order": plan.order},
        "[fields]": {"delay": "delay"},
        "[retry]": {"interval": -0.05},
        "[history]": {"dead_memory": 0} if plan.archives else {},
        # A page a life would still be starting, at its low priority, when a hundred have died.
        "[http]": {"listen": ""},
        "[log]": {"format": "json"},
        "[[groups]]": {**rule, **{option: getattr(plan, option) for option in options}},
    }
    lines = [line for head, values in sections.items() for line in (head, *lines_of(values))]
    file.write_text("\n".join(lines))
    return file


def start(life: Life, config: Path) -> subprocess.Popen[bytes]:
    """Start a daemon, which ends with this process."""
    journal = str(config.with_name("journal.jsonl"))
    told = {VARIABLE: str(life.crash or ""), JOURNAL: journal, STOP_AT: str(life.stop_at)}
    command = groupflow("run", "--config", config, "--app", APP, "--name", life.name)
    with config.with_name("daemons.log").open("ab") as log:
        return subprocess.Popen(
            command, cwd=REPOSITORY, env=environment(**told), stdout=log, stderr=log
        )
