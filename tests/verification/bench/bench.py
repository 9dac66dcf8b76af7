"""What all rows share in one run: sizes, servers, turns, and what went wrong."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

import aio_pika

from groupflow.broker.publisher import Outgoing, publishing
from groupflow.servers.kinds import RabbitmqServer, RedisServer
from tests.verification.bench.daemons import Daemon, RunFailed, running, toml_of
from tests.verification.bench.load import Load
from tests.verification.bench.machine import processor_ticks
from tests.verification.bench.records import Records
from tests.verification.bench.rows import OURS, Round, Row

ROUNDS = 5
SHORT = 50  # ticks, half a second of one core: too few to tell a share

Figures = dict[str, dict[str, float]]
"""What a turn found: row key → who → figure."""
Side = Callable[[], Awaitable[Figures]]
"""One turn of one side."""


@dataclass(frozen=True, slots=True)
class Corner:
    """Servers' corners of one run: where they are, and its folder, whose name its queue has."""

    redis: RedisServer
    rabbitmq: str
    folder: Path

    @property
    def queue(self) -> str:
        """The queue that its daemon consumes."""
        return self.folder.name

    def daemon(self, load: Load, code: Path, **facts: int) -> AbstractAsyncContextManager[Daemon]:
        """A running daemon of some code; `facts` are those of `toml_of`."""
        configuration = toml_of(self.redis.url, self.rabbitmq, self.queue, **facts)
        return running(configuration, load, self.folder, code, redis=self.redis.pid)


class Bench:
    """One run of the suite.

    Attributes:
        codes: whose code is where: ours, and that of an older commit where one is asked for.
        quick: smaller loads.
        problems: what could not be measured or broke its promise, in words.
    """

    def __init__(
        self, folder: Path, codes: Mapping[str, Path], *, quick: bool = False, rounds: int = 0
    ) -> None:
        """Nothing is started."""
        self.codes = codes
        self.quick = quick
        self.problems: list[str] = []
        self._rounds = rounds or (1 if quick else ROUNDS)
        self._rabbitmq = RabbitmqServer(folder / "rabbitmq", scratch=folder)
        self._parent = folder

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """An empty folder for one run."""
        with tempfile.TemporaryDirectory(dir=self._parent) as name:
            yield Path(name)

    @asynccontextmanager
    async def corner(self) -> AsyncIterator[Corner]:
        """A fresh Redis, an empty folder and a queue for one run."""
        rabbitmq = await self.rabbitmq()
        with self.folder() as folder:
            async with RedisServer(folder / "redis") as redis:
                yield Corner(redis, rabbitmq, folder)
            await forget_queue(rabbitmq, folder.name)

    async def rabbitmq(self) -> str:
        """Where RabbitMQ is; started when first asked for, since that takes some seconds."""
        await self._rabbitmq.start()
        return self._rabbitmq.url

    async def close(self) -> None:
        """Stop what `rabbitmq` started."""
        await self._rabbitmq.stop()

    def judge(self, row: Row, records: Records, load: Load, who: str) -> None:
        """Check a run and note in its row what it broke; where it was ours, it is a problem."""
        if broken := records.check(load):
            row.verdicts[who] = broken
            if who == OURS:
                self.problems.append(f"{row.key}: groupflow broke its promise: {broken}")

    async def take_turns(self, rows: Sequence[Row], sides: Mapping[str, Side]) -> None:
        """Add rounds to some rows: in each, every side has one turn; who is first goes round.

        A side that can't be measured is a problem of the run, and has no figure in that round.
        """
        names = list(sides)
        for number in range(self._rounds):
            at, began, ticks = datetime.now(UTC), monotonic(), processor_ticks()
            figures: Figures = {row.key: {} for row in rows}
            for who in names if number % 2 == 0 else names[::-1]:
                try:
                    for key, found in (await sides[who]()).items():
                        figures[key] |= {name: float(f"{n:.4g}") for name, n in found.items()}
                except RunFailed as error:
                    self.problems.append(f"{rows[0].key}: {who}: {error}")
            stolen, every = (b - a for a, b in zip(ticks, processor_ticks(), strict=True))
            share = float(f"{stolen / every:.4g}") if every > SHORT else 0.0
            seconds = round(monotonic() - began, 2)
            said = f"{at:%Y-%m-%d %H:%M:%S}"
            for row in rows:
                row.rounds.append(Round(figures[row.key], said, seconds, share))


def message(load: Load, number: int) -> Outgoing:
    """A task of a load, as it is published."""
    return Outgoing(load.body_of(number), load.type, f"{number:032d}")


async def fill_queue(url: str, queue: str, load: Load) -> None:
    """Publish a load, with confirms."""
    async with publishing(url, queue) as publisher:
        await publisher.publish_all(message(load, number) for number in range(load.tasks))


async def forget_queue(url: str, queue: str) -> None:
    """Delete what a daemon declared, so that RabbitMQ doesn't carry the queues of all runs."""
    connection = await aio_pika.connect(url)
    async with connection, connection.channel() as channel:
        for name in (queue, f"{queue}.dead", f"{queue}.told"):
            await channel.queue_delete(name)
        await channel.exchange_delete(f"{queue}.told")
