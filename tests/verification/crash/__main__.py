"""`make crash`: any number of trials, and what they found.

    TRIALS=…   how many (default 380: every point once, and every pair of points, in drawn order)
    SEED=…     draws everything but the interleaving (default: a random one, printed)
    JOBS=…     trials at once (default 2; each mostly waits)
    FIRST=…    the first trial's number: with TRIALS=1, one trial again
    RULES=…   `run`, `batches`, `limits` or `debounce` where all trials' groups are to have that
              (default: a quarter each without, and with each of the first three)
    FOLDER=…   where trials that failed leave their history (default: a temporary one)

The servers are private ones, started for this run, unless REDIS and RABBITMQ give their URLs.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

from groupflow.servers import private_servers


async def _with_servers() -> int:
    async with private_servers() as servers:
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "tests.verification.crash.forks",
                servers.redis.url,
                servers.rabbitmq.url,
            )
        )
        return await process.wait()


def main() -> int:
    """Run what the environment says. Returns the exit code: 1 where a promise was broken."""
    os.environ.setdefault("SEED", str(SystemRandom().randrange(10**9)))
    if "FOLDER" not in os.environ:
        os.environ["FOLDER"] = str(Path(tempfile.mkdtemp(prefix="groupflow-crash-")))
    urls = [os.environ.get("REDIS", ""), os.environ.get("RABBITMQ", "")]
    if all(urls):
        return subprocess.run(
            [sys.executable, "-m", "tests.verification.crash.forks", *urls], check=False
        ).returncode
    return asyncio.run(_with_servers())


if __name__ == "__main__":
    sys.exit(main())
