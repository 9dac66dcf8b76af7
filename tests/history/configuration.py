"""What the daemons of a soak run with, and as far as its rules go, those of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.endtoend.configuration import lines_of

NAMESPACE = "soak"
QUEUE = "soak.jobs"
TOLD = "soak.told"  # the exchange that is told of ends
TENANT = "7"
LEASE = 2.0
MAX_BLOCK = 4.0
BLOCKED_WITHIN = 1.5 * LEASE  # seconds that a block lasts which costs nothing
BLOCKED_PAST = MAX_BLOCK + LEASE + 0.5  # and one after which others have the tasks
DRAIN = 3.0
MAX_ATTEMPTS = 3
MAX_BODY = 65_536
SEVERAL = 3  # tasks of a group at once, where its lane has a limit
QUIET = 0.5  # seconds, of lanes that debounce
BATCH = 5  # tasks of a group for one call of a batch handler
RUN = 8  # tasks of a group under one claim, where its lane has runs

_RULES: dict[str, dict[str, Any]] = {
    "entities": {},
    "several": {"concurrency": SEVERAL, "rate": "200/s burst 20", "shares": True},
    "runs": {"run": RUN, "shares": True},
    "batches": {"batch": BATCH, "batch_wait": 0.2, "shares": True},
    "bursts": {"debounce": QUIET, "shares": True},
}


def write_config(
    path: Path, *, rabbitmq: str, redis: Mapping[str, Any], tells: bool = True
) -> Path:
    """Write the daemons' configuration.

    Args:
        path: where.
        rabbitmq: the URL of it, or of the proxies before it.
        redis: the section `[redis]`, without the namespace.
        tells: whether RabbitMQ is told of ends.
    """
    sections = {
        "rabbitmq": {"url": rabbitmq, "queue": QUEUE, "prefetch": 100, "max_body": MAX_BODY},
        "redis": {**redis, "namespace": NAMESPACE},
        "workers": {
            "plain": 4,
            "grouped": 8,
            "lease": LEASE,
            "max_block": MAX_BLOCK,
            "drain": DRAIN,
            "max_crashes": 10,
        },
        "retry": {"max_attempts": MAX_ATTEMPTS, "interval": -0.05},
        "log": {"level": "info", "format": "json"},
        "http": {"listen": "127.0.0.1:0"},
        **({"events": {"exchange": TOLD}} if tells else {}),
    }
    lines = [line for name, values in sections.items() for line in (f"[{name}]", *lines_of(values))]
    for name, rule in _RULES.items():
        app = "soak" if name == "entities" else f"soak-{name}"
        facts = {"name": name, "app": app, "key": "{entity}:{tenant_id}", **rule}
        lines += ["[[groups]]", *lines_of(facts)]
    path.write_text("\n".join(lines) + "\n")
    return path


def concurrency_of(group: str) -> int:
    """How many tasks of a group may run at once; such a lane's groups have names of their own."""
    return SEVERAL if group.startswith("several-") else 1


def run_of(group: str) -> int:
    """How many tasks of a group one claim may give, as its name says."""
    if group.startswith("batches-"):
        return BATCH
    return RUN if group.startswith("runs-") else 1
