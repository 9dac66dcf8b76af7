"""A private PostgreSQL: its own folder, a unix socket, no port; gone afterwards."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.verification.bench.peers.running import PeerFailed

READY_WITHIN = 30.0
_AS = "postgres"  # whom to run as where we are root, which PostgreSQL refuses


@asynccontextmanager
async def private_postgres() -> AsyncIterator[str]:
    """Start it; yields what a client connects with.

    Commits wait for no fsync, so that a power cut may lose as much as with the `everysec` of the
    Redis that it is compared with.

    Raises:
        PeerFailed: it is not installed or does not start.
    """
    folder = Path(tempfile.mkdtemp(prefix="groupflow-pg-"))
    try:
        if os.geteuid() == 0:
            who = pwd.getpwnam(_AS)
            os.chown(folder, who.pw_uid, who.pw_gid)
        data = folder / "data"
        await _run("initdb", "-D", str(data), "-U", _AS, "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} "
        options += "-c synchronous_commit=off -c max_connections=200"
        log = folder / "log"
        await _run("pg_ctl", "-D", str(data), "-w", "-l", str(log), "-o", options, "start")
        try:
            yield f"host={folder} user={_AS} dbname=postgres"
        finally:
            await _run("pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop")
    except KeyError:
        raise PeerFailed(f"PostgreSQL refuses root, and there is no user {_AS!r}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_program(name: str) -> str:
    """The path of one of PostgreSQL's programs, the newest version's.

    Raises:
        PeerFailed: it is not installed.
    """
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parts[-2]))
    for folder in reversed(versions):
        if (folder / name).exists():
            return str(folder / name)
    found = shutil.which(name)
    if found is None:
        raise PeerFailed(f"PostgreSQL's {name} is not installed")
    return found


async def _run(name: str, *arguments: str) -> None:
    command = [find_program(name), *arguments]
    if os.geteuid() == 0:
        command = ["setpriv", f"--reuid={_AS}", f"--regid={_AS}", "--clear-groups", *command]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd="/",
        stdin=asyncio.subprocess.DEVNULL,
        # pg_ctl's server would hold a pipe open for ever.
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(READY_WITHIN):
        code = await process.wait()
    if code:
        raise PeerFailed(f"PostgreSQL's {name} ended with {code}")
