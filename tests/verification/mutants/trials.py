"""A pytest run that, instead of running its tests, tries them on each mutant.

A file of tests is run on the sound product before its tests may kill: those that fail are left out,
and which marks each comes to is noted. That happens once in a run, and only when a mutant is still
alive after the files that come first: those that killed mutants of the same file, that are named
like it, that are of its package.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.servers.kinds import HASH_EXCHANGE
from tests.verification.mutants.children import try_out

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Mutant:
    """The product, wrong in one place.

    Attributes:
        path: the changed file, from the root of the project.
        line: the number of the changed line.
        change: what stands there, and what the mutant has instead.
        marks: only a test that comes to one of these can notice the mutant. The language's `watch`
            says which marks a test comes to.
        put_in: makes the process that calls it wrong.
    """

    path: str
    line: int
    change: str
    marks: frozenset[str]
    put_in: Callable[[], None]

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.change}"

    @property
    def package(self) -> str:
        """The package of groupflow that it is in."""
        return self.path.split("/")[1]


_OTHER_SERVERS = {"valkey_server", "rabbitmq_cluster", "postgres", "mariadb"}
# A script of a mutant may never end: others then hear so after two seconds (ms).
_REDIS = ("--appendonly", "no", "--lua-time-limit", "2000")
_QUICKEST = 10  # tests of a file, which are tried before the others of all files
_CHANCES = 2  # of a test that noticed a mutant, to find nothing wrong with the sound product


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a mutant.

    Attributes:
        mutant: which.
        verdict: ``killed``; ``hung``, as a test did not end: killed too; ``alive``; ``unseen``, as
            no test comes to it: alive too; ``invalid``, as it is no code.
        killer: the test that noticed it.
    """

    mutant: Mutant
    verdict: str
    killer: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether no test noticed it."""
        return self.verdict in ("alive", "unseen")


@dataclass(eq=False)
class Trials:
    """The plugin.

    Attributes:
        mutants: to be tried.
        watch: of their language: from now on, which of some marks this process comes to.
        tell: hears of each fate at once.
        fates: one a mutant, once the run is over.
        left_out: tests that may not kill, as they fail on the sound product.
    """

    mutants: Sequence[Mutant]
    watch: Callable[[frozenset[str]], set[str]]
    tell: Callable[[Fate], None]
    fates: list[Fate] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    _items: dict[str, pytest.Item] = field(default_factory=dict)
    _files: dict[Path, list[pytest.Item]] = field(default_factory=lambda: defaultdict(list))
    _recorded: dict[Path, dict[str, frozenset[str]]] = field(default_factory=dict)
    _seconds: dict[str, float] = field(default_factory=dict)
    _kills: Counter[tuple[str, str | Path]] = field(default_factory=Counter)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what needs servers that the run hasn't."""
        items[:] = [item for item in items if "valkey" not in item.nodeid]
        items[:] = [i for i in items if not _OTHER_SERVERS & set(getattr(i, "fixturenames", ()))]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try all mutants."""
        for item in session.items:
            self._items[item.nodeid] = item
            self._files[item.path].append(item)
        with _servers() as self._redis:
            for mutant in self.mutants:
                self.fates.append(self._try(mutant))
                self.tell(self.fates[-1])
        return True

    def _try(self, mutant: Mutant) -> Fate:
        """Run tests until one fails: the quickest of each file, then the rest of each."""
        verdict = "unseen"
        files = sorted(self._files, key=lambda path: self._relation(mutant, path))
        for part, path in product((slice(_QUICKEST), slice(_QUICKEST, None)), files):
            able = self._able(mutant, path)[part]
            if not able:
                continue
            verdict = "alive"
            _clear(self._redis)
            tests = [self._items[test] for test in able]
            trial = try_out(tests, prepare=mutant.put_in, seconds=self._seconds)
            if not trial.is_begun:
                return Fate(mutant, "invalid")
            if trial.killer:
                if not self._passes(trial.killer):
                    return self._try(mutant)
                for killer in (trial.killer, path):
                    self._kills[mutant.path, killer] += 1
                return Fate(mutant, "hung" if trial.running else "killed", trial.killer)
        return Fate(mutant, verdict)

    def _able(self, mutant: Mutant, path: Path) -> list[str]:
        """The tests of a file that come to a mutant, the likeliest and quickest in front."""
        if path not in self._recorded:
            self._record(path)
        able = [test for test, marks in self._recorded[path].items() if marks & mutant.marks]
        return sorted(able, key=lambda test: (-self._kills[mutant.path, test], self._seconds[test]))

    def _relation(self, mutant: Mutant, path: Path) -> tuple[int, bool, bool]:
        """The less, the likelier a file of tests is about a mutant."""
        is_of_other_name = Path(mutant.path).stem not in path.stem
        is_of_other_package = path.parent.name != mutant.package
        return -self._kills[mutant.path, path], is_of_other_name, is_of_other_package

    def _record(self, path: Path) -> None:
        """Run a file of tests on the sound product; those that pass may kill."""
        wanted = frozenset[str]().union(*(mutant.marks for mutant in self.mutants))
        _clear(self._redis)
        watch = partial(self.watch, wanted)
        trial = try_out(self._files[path], prepare=watch, seconds={}, to_end=True)
        self._recorded[path] = {each.test: each.marks for each in trial.ran if not each.failure}
        self._seconds |= {each.test: each.seconds for each in trial.ran}
        missing = {item.nodeid for item in self._files[path]} - self._recorded[path].keys()
        self.left_out += sorted(missing)

    def _passes(self, test: str) -> bool:
        """Whether a test finds nothing wrong with the sound product; else it is left out."""
        for _ in range(_CHANCES):
            _clear(self._redis)
            if not try_out([self._items[test]], seconds=self._seconds).killer:
                return True
        del self._recorded[self._items[test].path][test]
        self.left_out.append(test)
        return False


@contextmanager
def _servers() -> Iterator[RedisServer]:
    """The servers that tests share; tests/conftest.py has them from here."""
    with tempfile.TemporaryDirectory(prefix="groupflow-mutants-") as folder:
        redis = RedisServer(Path(folder, "redis"), extra=_REDIS)
        rabbitmq = RabbitmqServer(Path(folder, "rabbitmq"), plugins=[HASH_EXCHANGE])

        @contextmanager
        def running(server: object) -> Iterator[RedisServer | RabbitmqServer]:
            yield redis if isinstance(server, RedisServer) else rabbitmq

        if conftest := sys.modules.get("tests.conftest"):
            conftest.running = running  # type: ignore[attr-defined]
        for each in (redis, rabbitmq):
            asyncio.run(each.start())
        try:
            yield redis
        finally:
            for each in (redis, rabbitmq):
                asyncio.run(each.kill())


def _clear(server: RedisServer) -> None:
    """Remove all that a trial has left: keys, scripts, settings."""
    with Redis.from_url(server.url, socket_timeout=5.0) as client:
        try:
            client.flushall()
            client.script_flush()
            client.config_set("maxmemory", 0)
        except RedisError:  # busy with a script that has no end
            asyncio.run(server.kill())
            asyncio.run(server.start())
