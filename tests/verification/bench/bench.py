"""What all families share in one run: sizes, folders, the one RabbitMQ, what went wrong."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupflow.servers.rabbitmq import HASH_EXCHANGE, RabbitmqServer
from groupflow.servers.redis import RedisServer
from tests.servers.replicated import RedisCluster
from tests.verification.bench.daemons import Daemon, Setting, running
from tests.verification.bench.filling import forget_queue
from tests.verification.bench.load import Load
from tests.verification.bench.records import Records
from tests.verification.bench.rows import OURS, Row

ROUNDS, PAIRS = 5, 7


@dataclass(frozen=True, slots=True)
class Corner:
    """Servers' corners of one run: where they are, and its folder, whose name its queue has."""

    redis: str
    rabbitmq: str
    folder: Path

    def daemon(self, load: Load, **facts: Any) -> AbstractAsyncContextManager[Daemon]:
        """A running daemon; `facts` are of its `Setting`."""
        setting = Setting(self.redis, self.rabbitmq, self.folder.name, **facts)
        return running(setting, load, self.folder)


class Bench:
    """One run of the suite.

    Attributes:
        quick: smaller numbers.
        rounds: how many each row has.
        pairs: how many there are where code is set beside older code.
        base: that older code: a commit.
        problems: what could not be measured or broke its promise, in words.
    """

    def __init__(
        self,
        folder: Path,
        *,
        quick: bool = False,
        rounds: int | None = None,
        base: str = "HEAD",
        chosen: Sequence[str] = (),
    ) -> None:
        """Nothing is started.

        Args:
            folder: an empty one.
            quick: smaller numbers.
            rounds: how many each row has, in place of 5, quick 1, and of 7 for pairs of code.
            base: a commit to set the code of now beside.
            chosen: families, or beginnings of rows' keys; nothing: all rows.
        """
        self.quick = quick
        self.rounds = rounds or (1 if quick else ROUNDS)
        self.pairs = rounds or PAIRS
        self.base = base
        self.problems: list[str] = []
        self._chosen = tuple(chosen)
        self._rabbitmq = RabbitmqServer(
            folder / "rabbitmq", scratch=folder, plugins=[HASH_EXCHANGE]
        )
        self._parent = folder

    def pick(self, full: int, quick: int) -> int:
        """A size: for the whole suite or the quick one."""
        return quick if self.quick else full

    def wants(self, key: str) -> bool:
        """Whether a row is to be measured."""
        begun = [f"{key}.".startswith(f"{each}.") for each in self._chosen]
        return any(begun) or not self._chosen

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """An empty folder for one run."""
        with tempfile.TemporaryDirectory(dir=self._parent) as name:
            yield Path(name)

    @asynccontextmanager
    async def redis(self) -> AsyncIterator[tuple[RedisServer, Path]]:
        """A fresh Redis and an empty folder for one run."""
        with self.folder() as folder:
            async with RedisServer(folder / "redis") as server:
                yield server, folder

    @asynccontextmanager
    async def corner(self) -> AsyncIterator[Corner]:
        """A fresh Redis, an empty folder and a queue for one run of daemons."""
        rabbitmq = await self.rabbitmq()
        async with self.redis() as (server, folder):
            yield Corner(server.url, rabbitmq, folder)
            await forget_queue(rabbitmq, folder.name)

    @asynccontextmanager
    async def cluster(self, primaries: int) -> AsyncIterator[tuple[RedisCluster, Path]]:
        """The same of a cluster, of so many processes."""
        with self.folder() as folder:
            async with RedisCluster(folder / "redis", primaries, replicas=0) as cluster:
                yield cluster, folder

    async def rabbitmq(self) -> str:
        """Where RabbitMQ is; started when first asked for, since that takes some seconds."""
        await self._rabbitmq.start()
        return self._rabbitmq.url

    async def close(self) -> None:
        """Stop what `rabbitmq` started."""
        await self._rabbitmq.stop()

    def judge(
        self, row: Row, who: str, records: Records, load: Load, *, is_whole: bool = True
    ) -> None:
        """Check a run and note in its row what it broke; where it was ours, it is a problem."""
        verdict = records.check(load, is_whole=is_whole)
        if not verdict.is_clean:
            row.verdicts[who] = str(verdict)
        if who == OURS:
            self.check(row.key, records, load, is_whole=is_whole)

    def check(self, key: str, records: Records, load: Load, *, is_whole: bool = True) -> None:
        """Check a run of ours; what it broke is a problem."""
        verdict = records.check(load, is_whole=is_whole)
        if not verdict.is_clean:
            self.problems.append(f"{key}: groupflow broke its promise: {verdict}")
