"""`groupflow`'s verbs with a configuration of their own, called in a thread of this process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys
from groupflow.store.partitions import agree
from tests.endtoend.verbs import said
from tests.operate.spread import Spread

_ONE = threading.Lock()  # stdout is the process's


@dataclass(frozen=True, slots=True)
class Said:
    """How a verb ended, and what it said."""

    exit: object
    out: str
    err: str

    @property
    def json(self) -> Any:
        return orjson.loads(self.out)


class Verbs:
    """`groupflow`, with a configuration of its own."""

    def __init__(self, folder: Path, url: str, namespace: str, partitions: int = 1) -> None:
        self.file = folder / "groupflow.toml"
        self.file.write_text(
            f'[redis]\nurl = "{url}"\nnamespace = "{namespace}"\npartitions = {partitions}\n'
            "timeout = 2.0\n"
        )

    async def __call__(self, *words: str) -> Said:
        return await asyncio.to_thread(self._say, *words, "--config", str(self.file))

    def _say(self, *words: str) -> Said:
        with _ONE:
            return Said(*said(words, {"PATH": os.environ["PATH"]}))


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
