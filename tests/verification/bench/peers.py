"""What ours is measured beside: each peer in a process of its own, which records as ours does.

Such a process gets one JSON object as its argument: the load, the workers, its server, where to
write its records, and for how many seconds it may work. It works, and writes.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from tests.verification.bench.daemons import RunFailed
from tests.verification.bench.load import Load
from tests.verification.bench.machine import NODE, REPOSITORY
from tests.verification.bench.records import Records

SECONDS = 60.0  # for which a peer may work
GRACE = 60.0  # seconds above that, for filling its queue and ending
RECORDS = "peer.records"
GROUPMQ, BARE = "GroupMQ", "bare aio-pika"
_COMMANDS = {
    GROUPMQ: ("node", str(Path(__file__).with_name("groupmq.mjs"))),
    BARE: (sys.executable, "-m", "tests.verification.bench.bare"),
}


async def run_peer(
    name: str, load: Load, folder: Path, url: str, *, workers: int = 1, queue: str = ""
) -> Records:
    """Run a peer over a load.

    Args:
        name: GroupMQ, on an empty Redis, or bare aio-pika.
        load: what it has to do.
        folder: of this run, empty.
        url: its server's.
        workers: how many it may use.
        queue: where its tasks come from, if it doesn't fill a queue of its own.

    Raises:
        RunFailed: it can't be started, ended with an error, or did not end.
    """
    records = folder / RECORDS
    spec = {"load": asdict(load), "url": url, "workers": workers, "queue": queue}
    spec |= {"seconds": SECONDS, "records": str(records), "node": str(NODE)}
    how: Any = {"cwd": REPOSITORY, "text": True, "errors": "replace", "check": False}
    how |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    command = [*_COMMANDS[name], json.dumps(spec)]
    start = partial(subprocess.run, command, timeout=SECONDS + GRACE, **how)
    try:
        ended = await asyncio.to_thread(start)
    except OSError as error:
        raise RunFailed(f"{name}: {error}") from None
    except subprocess.TimeoutExpired:
        raise RunFailed(f"{name} did not end within {SECONDS + GRACE:g} s") from None
    if ended.returncode or not records.exists():
        words = ended.stdout.strip()[-1000:] or "(nothing)"
        raise RunFailed(f"{name} ended with {ended.returncode} and said: {words}")
    return Records.read(records)


def begun(folder: Path) -> bool:
    """Whether the peer that runs in this folder is ready for work."""
    return (folder / RECORDS).with_suffix(".begun").exists()
