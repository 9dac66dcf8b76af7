"""Running a peer in a process of its own, and reading what it recorded."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
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


class PeerFailed(Exception):
    """A peer that can't be installed, started or measured; the message says why."""


async def run_peer(
    command: Sequence[str],
    load: Load,
    folder: Path,
    *,
    workers: int,
    seconds: float,
    facts: Mapping[str, Any],
) -> Records:
    """Run a peer over a load.

    Args:
        command: the program; it gets its one argument from here.
        load: what it has to do.
        folder: of this run, empty.
        workers: how many it may use.
        seconds: after which it stops, done or not.
        facts: what else it must know, such as its server's URL.

    Raises:
        PeerFailed: it ended with an error, or did not end.
    """
    records = folder / RECORDS
    spec = {
        "load": asdict(load),
        "workers": workers,
        "seconds": seconds,
        "records": str(records),
        "until": load.tasks,
        **facts,
    }
    process = await asyncio.create_subprocess_exec(
        *command,
        json.dumps(spec),
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(seconds + GRACE):
            said, _ = await process.communicate()
    except TimeoutError:
        raise PeerFailed(f"{command[-1]} did not end within {seconds + GRACE:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode or not records.exists():
        words = said.decode(errors="replace").strip()[-1000:] or "(nothing)"
        raise PeerFailed(f"{command[-1]} ended with {process.returncode} and said: {words}")
    return _read(records, load.tasks)


@asynccontextmanager
async def private_postgres(kind: type[Postgres] = Postgres) -> AsyncIterator[Postgres]:
    """A PostgreSQL that is gone afterwards.

    Commits wait for no fsync, so that a power cut may lose as much as with the `everysec` of the
    Redis that it is compared with.

    Raises:
        PeerFailed: it is not installed, or refuses root where its user is missing.
    """
    try:
        kind.binary()
        server = kind()
    except (KeyError, MissingServer) as error:
        raise PeerFailed(f"PostgreSQL: {error}") from None
    try:
        async with server:
            yield server
    finally:
        server.remove()


def begun(folder: Path) -> bool:
    """Whether the peer that runs in this folder is ready for work."""
    return (folder / f"{RECORDS}.begun").exists()


def _read(records: Path, tasks: int) -> Records:
    found = Records.read([records])
    cpu = Path(f"{records}.cpu")
    return replace(found, cpu=float(cpu.read_text()) / tasks * 1e6) if cpu.exists() else found


async def run_python(
    name: str, load: Load, folder: Path, *, workers: int, seconds: float, facts: Mapping[str, Any]
) -> Records:
    """A peer that is a module here, over a load."""
    command = [sys.executable, "-m", f"tests.verification.bench.peers.{name}"]
    return await run_peer(command, load, folder, workers=workers, seconds=seconds, facts=facts)


async def run_groupmq(
    url: str,
    load: Load,
    folder: Path,
    *,
    workers: int,
    seconds: float = 60.0,
    facts: Mapping[str, Any] | None = None,
) -> Records:
    """GroupMQ over a load, on an empty Redis."""
    script = str(Path(__file__).with_name("groupmq.mjs"))
    more = {"url": url, "node": str(NODE), **(facts or {})}
    return await run_peer(
        ["node", script], load, folder, workers=workers, seconds=seconds, facts=more
    )
