"""What the daemons of a soak run with."""

from __future__ import annotations

from pathlib import Path

NAMESPACE = "soak"
QUEUE = "soak.jobs"
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

_TEXT = """\
[rabbitmq]
url = "{rabbitmq}"
queue = "{queue}"
prefetch = 100
max_body = {max_body}
[redis]
{redis}
namespace = "{namespace}"
[workers]
plain = {plain}
grouped = {grouped}
lease = {lease}
max_block = {max_block}
drain = {drain}
max_crashes = 10
[retry]
max_attempts = {max_attempts}
interval = -0.05
[log]
level = "info"
format = "json"
[http]
listen = "127.0.0.1:0"
[[groups]]
name = "entities"
app = "soak"
key = "{{entity}}:{{tenant_id}}"
[[groups]]
name = "several"
app = "soak-several"
key = "{{entity}}:{{tenant_id}}"
concurrency = {several}
rate = "200/s burst 20"
shares = true
[[groups]]
name = "runs"
app = "soak-runs"
key = "{{entity}}:{{tenant_id}}"
run = {run}
shares = true
[[groups]]
name = "batches"
app = "soak-batches"
key = "{{entity}}:{{tenant_id}}"
batch = {batch}
batch_wait = 0.2
shares = true
[[groups]]
name = "bursts"
app = "soak-bursts"
key = "{{entity}}:{{tenant_id}}"
debounce = {quiet}
shares = true
"""


def write_config(
    path: Path,
    *,
    rabbitmq: str,
    redis: str,
    lease: float = LEASE,
    plain: int = 4,
    grouped: int = 8,
    queue: str = QUEUE,
) -> Path:
    """Write a daemon's configuration for servers (or proxies) on these ports.

    Args:
        path: where.
        rabbitmq: its URL.
        redis: lines of the section `[redis]`, but for the namespace.
        lease: seconds.
        plain: workers for plain tasks.
        grouped: workers for grouped ones.
        queue: of RabbitMQ.
    """
    path.write_text(
        _TEXT.format(
            rabbitmq=rabbitmq,
            redis=redis,
            queue=queue,
            namespace=NAMESPACE,
            plain=plain,
            grouped=grouped,
            lease=lease,
            several=SEVERAL,
            run=RUN,
            quiet=QUIET,
            batch=BATCH,
            max_block=max(MAX_BLOCK, lease),
            drain=DRAIN,
            max_attempts=MAX_ATTEMPTS,
            max_body=MAX_BODY,
        )
    )
    return path


def concurrency_of(group: str) -> int:
    """How many tasks of a group may run at once; such a lane's groups have names of their own."""
    return SEVERAL if group.startswith("several-") else 1


def run_of(group: str) -> int:
    """How many tasks of a group one claim may give; likewise."""
    if group.startswith("batches-"):
        return BATCH
    return RUN if group.startswith("runs-") else 1
