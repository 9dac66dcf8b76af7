"""What all families share in one run: sizes, servers, turns, and what went wrong."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from groupflow.servers.rabbitmq import HASH_EXCHANGE, RabbitmqServer
from groupflow.servers.redis import RedisServer
from tests.verification.bench.daemons import Daemon, Setting, running
from tests.verification.bench.filling import forget_queue
from tests.verification.bench.load import Load
from tests.verification.bench.machine import processor_ticks
from tests.verification.bench.peers.running import PeerFailed
from tests.verification.bench.records import Records
from tests.verification.bench.rows import OURS, Round, Row

ROUNDS, PAIRS = 5, 7
SHORT = 50  # ticks, half a second of one core: too few to tell a share


@dataclass(frozen=True, slots=True)
class Corner:
    """Servers' corners of one run: where they are, and its folder, whose name its queue has."""

    server: RedisServer
    rabbitmq: str
    folder: Path

    @property
    def redis(self) -> str:
        """Where Redis is."""
        return self.server.url

    @property
    def queue(self) -> str:
        """The queue that its daemons consume."""
        return self.folder.name

    def daemon(
        self, load: Load, name: str = "d1", code: Path | None = None, **facts: Any
    ) -> AbstractAsyncContextManager[Daemon]:
        """A running daemon; `facts` are of its `Setting`."""
        setting = Setting(self.redis, self.rabbitmq, self.queue, **facts)
        return running(setting, load, self.folder, name, code=code, redis=self.server.pid)


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn found.

    Attributes:
        figures: row key → figure.
        beside: row key → who → figure that follows from this turn, such as an ideal.
    """

    figures: Mapping[str, float]
    beside: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


Side = Callable[[], Awaitable[Turn]]
"""One turn of one side."""


class Stopwatch:
    """What a round has to say of its time."""

    def __init__(self) -> None:
        self._at = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        self._began, self._ticks = monotonic(), processor_ticks()

    def round(self, figures: dict[str, float]) -> Round:
        """A round that began when this did, and ends now."""
        stolen, every = (b - a for a, b in zip(self._ticks, processor_ticks(), strict=True))
        share = stolen / every if every > SHORT else 0.0
        return Round(figures, self._at, monotonic() - self._began, share)


class Bench:
    """One run of the suite.

    Attributes:
        quick: smaller numbers.
        rounds: how many each row has: 5, quick 1, or as asked.
        pairs: how many there are where code is set beside older code: 7, or as asked.
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
        """Nothing is started. `chosen` are families, or beginnings of rows' keys."""
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
        return any(f"{key}.".startswith(f"{each}.") for each in self._chosen)

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
            yield Corner(server, rabbitmq, folder)
            await forget_queue(rabbitmq, folder.name)

    async def rabbitmq(self) -> str:
        """Where RabbitMQ is; started when first asked for, since that takes some seconds."""
        await self._rabbitmq.start()
        return self._rabbitmq.url

    async def close(self) -> None:
        """Stop what `rabbitmq` started."""
        await self._rabbitmq.stop()

    def judge(
        self, row: Row, records: Records, load: Load, *, who: str = OURS, is_whole: bool = True
    ) -> None:
        """Check a run and note in its row what it broke; where it was ours, it is a problem."""
        if broken := records.check(load, is_whole=is_whole):
            row.verdicts[who] = broken
            if who == OURS:
                self.problems.append(f"{row.key}: groupflow broke its promise: {broken}")

    async def take_turns(
        self, rows: Sequence[Row], sides: Mapping[str, Side], *, rounds: int | None = None
    ) -> None:
        """Add rounds to some rows: in each, every side has one turn; who is first goes round.

        A peer that can't be measured is a problem of the run, and has no figure in that round.
        """
        names = list(sides)
        for number in range(rounds or self.rounds):
            watch, turns = Stopwatch(), dict[str, Turn]()
            for who in names if number % 2 == 0 else names[::-1]:
                try:
                    turns[who] = await sides[who]()
                except PeerFailed as error:
                    self.problems.append(f"{rows[0].key}: {who}: {error}")
            for row in rows:
                row.rounds.append(watch.round(_figures(row.key, turns)))


def _figures(key: str, turns: Mapping[str, Turn]) -> dict[str, float]:
    found: dict[str, float] = {}
    for who, turn in turns.items():
        if key in turn.figures:
            found[who] = turn.figures[key]
        for other, figure in turn.beside.get(key, {}).items():
            # Several turns may each bound what can be reached: the lowest bound holds.
            found[other] = min(figure, found.get(other, figure))
    return found
