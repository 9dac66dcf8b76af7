"""What all tests share: servers, each started when first asked for; order and times."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from groupflow.servers import RedisServer
from groupflow.servers.kinds import HASH_EXCHANGE
from tests.databases import MariaDb, Postgres
from tests.deadlines import deadline
from tests.running import running
from tests.servers.managed import DividedRabbitmq
from tests.servers.rabbitmq_cluster import RabbitmqCluster
from tests.servers.valkey import ValkeyServer
from tests.store.bench import Bench

_SECONDS = "groupflow/seconds"  # that each file took in the last run, as pytest's cache keeps it
_SLOW = {"rabbitmq_server", "rabbitmq_cluster", "valkey_server", "postgres", "mariadb", "browser"}
"""Fixtures that take seconds to start."""

_TOGETHER = ("tests/page", "tests/security")
"""Folders whose files share servers that no other has: one process runs all of such a folder."""

# How long an example takes says how busy the machine is; what tests share, examples share too.
_UNHEEDED = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
settings.register_profile("tests", deadline=None, suppress_health_check=_UNHEEDED)
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--quick`, of `make quick`."""
    told = "leave out what needs RabbitMQ, Valkey, a database or a browser"
    parser.addoption("--quick", action="store_true", help=told)


def pytest_configure(config: pytest.Config) -> None:
    """Measure how long files take, where all of a run's reports come together."""
    cache = getattr(config, "cache", None)  # none under `-p no:cacheprovider`
    if cache is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Seconds(cache))


def _file_of(one: pytest.Item | pytest.TestReport) -> str:
    """Where a test is found, which need not be where its function is made."""
    return one.nodeid.partition("::")[0]


class _Seconds:
    """Keeps the seconds that each file took, for the order of the next run."""

    def __init__(self, cache: pytest.Cache) -> None:
        self._cache = cache
        self._found = Counter[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._found[_file_of(report)] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        self._cache.set(_SECONDS, {**self._cache.get(_SECONDS, {}), **self._found})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where processes share files, the longest begin first: one left for the end would run alone.

    A file that no run has measured is taken to need the time that its tests are given.
    """
    if config.getoption("quick"):
        slow = [item for item in items if _is_slow(item)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
    cache = getattr(config, "cache", None)
    if cache is not None and hasattr(config, "workerinput"):
        given = dict[str, float]()
        for item in items:
            file = _file_of(item)
            given[file] = max(given.get(file, 0.0), _time_limit(item))
        seconds = given | cache.get(_SECONDS, {})
        items.sort(key=lambda item: -seconds[_file_of(item)])


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """A process gets whole files, or all files of a folder that share what is slow to start."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder = file.rpartition("/")[0]
        return folder if folder in _TOGETHER else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling:
    """Processes share files as `_Scheduling` says."""
    return _Scheduling(config, log)


def _is_slow(item: pytest.Item) -> bool:
    """Whether it needs a server that `make quick` does without."""
    assert isinstance(item, pytest.Function)
    is_on_valkey = "callspec" in vars(item) and "valkey" in item.callspec.params.values()
    return is_on_valkey or not _SLOW.isdisjoint(item.fixturenames)


def _time_limit(item: pytest.Item) -> float:
    """Seconds that a test may take on an idle machine."""
    mark = item.get_closest_marker("timeout")
    return float(mark.args[0] if mark else item.config.getini("timeout"))


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test's time limit grows with the machine's load, unless the command line gives one."""
    if item.config.getoption("timeout") is None:
        item.add_marker(pytest.mark.timeout(deadline(_time_limit(item))), append=False)
    return (yield)


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """Logging as it was: a verb that a test calls sets it up for the whole process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def _shared(make: Callable[[Path], Any]) -> Any:
    """A fixture: one server for all tests. A test that stops or pauses one makes one of its own."""

    @pytest.fixture(scope="session")
    def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
        with running(make(tmp_path_factory.mktemp("server"))) as started:
            yield started

    return server


redis_server = _shared(RedisServer)
valkey_server = _shared(ValkeyServer)
rabbitmq_server = _shared(lambda folder: DividedRabbitmq(folder, plugins=[HASH_EXCHANGE]))
rabbitmq_cluster = _shared(RabbitmqCluster)  # a test that kills a node starts it again
postgres, mariadb = _shared(Postgres), _shared(MariaDb)  # each test has a table of its own


@pytest.fixture(scope="session", params=["redis", "valkey"])
def store_server(request: pytest.FixtureRequest) -> RedisServer:
    """Redis, then Valkey: what the store promises must hold on both."""
    server = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(server, RedisServer)
    return server


@pytest.fixture
async def bench(redis_server: RedisServer) -> AsyncIterator[Bench]:
    """A namespace of its own on Redis, whose structure is sound when the test is over."""
    async with Bench(redis_server.url) as bench:
        yield bench
        assert bench.audit() == []
