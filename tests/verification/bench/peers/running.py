"""Running a peer in a process of its own, and reading what it recorded."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from groupflow.servers import MissingServer
from tests.databases import Postgres
from tests.verification.bench.daemons import REPOSITORY
from tests.verification.bench.load import Load
from tests.verification.bench.records import Records

NODE = REPOSITORY / ".bench" / "node"
GRACE = 60.0  # seconds above the time that it may work, for filling its queue and ending
RECORDS = "peer.records"
GROUPMQ = "GroupMQ"
_COMMANDS = {
    GROUPMQ: ("node", str(Path(__file__).with_name("groupmq.mjs"))),
    "": (sys.executable, "-m", "tests.verification.bench.peers.python"),
}


class PeerFailed(Exception):
    """A peer that can't be installed, started or measured; the message says why."""


async def run_peer(
    name: str,
    load: Load,
    folder: Path,
    url: str,
    *,
    workers: int,
    seconds: float = 60.0,
    **facts: Any,
) -> Records:
    """Run a peer over a load.

    Args:
        name: GroupMQ, on an empty Redis, or a function of `peers.python`.
        load: what it has to do.
        folder: of this run, empty.
        url: its server's.
        workers: how many it may use.
        seconds: after which it stops, done or not.
        facts: what else it must know.

    Raises:
        PeerFailed: it ended with an error, or did not end.
    """
    records = folder / RECORDS
    spec = {
        "peer": name,
        "load": asdict(load),
        "url": url,
        "workers": workers,
        "seconds": seconds,
        "records": str(records),
        "until": load.tasks,
        "node": str(NODE),
        **facts,
    }
    process = await asyncio.create_subprocess_exec(
        *_COMMANDS.get(name, _COMMANDS[""]),
        json.dumps(spec),
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(seconds + GRACE):
            said, _ = await process.communicate()
    except TimeoutError:
        raise PeerFailed(f"{name} did not end within {seconds + GRACE:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode or not records.exists():
        words = said.decode(errors="replace").strip()[-1000:] or "(nothing)"
        raise PeerFailed(f"{name} ended with {process.returncode} and said: {words}")
    return Records.read([records])


def begun(folder: Path) -> bool:
    """Whether the peer that runs in this folder is ready for work."""
    return (folder / f"{RECORDS}.begun").exists()


@asynccontextmanager
async def private_postgres() -> AsyncIterator[Postgres]:
    """A PostgreSQL that is gone afterwards.

    Commits wait for no fsync, so that a power cut may lose as much as with the `everysec` of the
    Redis that it is compared with.

    Raises:
        PeerFailed: it is not installed, or refuses root where its user is missing.
    """
    try:
        Postgres.binary()
        server = Postgres()
    except (KeyError, MissingServer) as error:
        raise PeerFailed(f"PostgreSQL: {error}") from None
    try:
        async with server:
            yield server
    finally:
        server.remove()
