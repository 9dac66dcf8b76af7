"""`groupflow`'s verbs as processes, with a configuration of their own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys
from groupflow.store.partitions import agree
from tests.deadlines import deadline
from tests.operate.spread import Spread


@dataclass(frozen=True, slots=True)
class Said:
    """How a verb ended, and what it said."""

    exit: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return orjson.loads(self.out)


class Verbs:
    """`groupflow`, with a configuration of its own."""

    def __init__(self, folder: Path, url: str, namespace: str, partitions: int) -> None:
        self._file = folder / "groupflow.toml"
        self._file.write_text(
            f'[redis]\nurl = "{url}"\nnamespace = "{namespace}"\npartitions = {partitions}\n'
            "timeout = 2.0\n"
        )

    async def __call__(self, *words: str) -> Said:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "groupflow", *words, "--config", str(self._file)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(deadline()):
            out, err = await process.communicate()
        assert process.returncode is not None
        return Said(process.returncode, out.decode(), err.decode())


@asynccontextmanager
async def agreed(spread: Spread) -> AsyncIterator[None]:
    """The namespace has as many partitions as a daemon has noted."""
    keys = Keys(spread.name)
    client = StoreClient(spread.benches[0].url, keys)
    await agree(client, len(spread.benches))
    try:
        yield
    finally:
        spread.benches[0].raw.delete(keys("partitions"))
        await client.close()
