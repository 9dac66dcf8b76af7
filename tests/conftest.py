"""What all tests share: servers, each started when first asked for; order, marks and times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.servers.rabbitmq import HASH_EXCHANGE
from tests.databases import MariaDb, Postgres
from tests.deadlines import deadline
from tests.servers.rabbitmq_cluster import RabbitmqCluster
from tests.servers.valkey import ValkeyServer
from tests.store.bench import Bench

_Result = TypeVar("_Result")
_Server = TypeVar("_Server", RedisServer, ValkeyServer, RabbitmqServer, Postgres, MariaDb)

# Where the suite's time goes: about the seconds that a file takes beside two others on two cores.
# Shared out among processes, these begin first, the longest in front: one that is left over for
# the end would run alone.
LONGEST = {
    "simulation/test_simulation.py": 240,
    "endtoend/test_rabbitmq_cluster.py": 120,
    "cli/test_partitions.py": 190,
    "endtoend/test_partitions.py": 110,
    "endtoend/test_clusters.py": 60,
    "scans/test_daemons.py": 120,
    "page/test_process.py": 57,
    "page/test_health.py": 100,
    "operate/test_repartition.py": 30,
    "endtoend/test_schedules.py": 120,
    "page/test_browser.py": 47,
    "security/test_rights.py": 46,
    "security/test_slow_machine.py": 60,
    "endtoend/test_slow_daemons.py": 40,
    "endtoend/test_rolling_restart.py": 60,
    "endtoend/test_crash.py": 42,
    "endtoend/test_reload.py": 41,
    "endtoend/test_held_memory.py": 38,
    "endtoend/test_outages.py": 35,
    "model/test_model.py": 35,
    "crash/test_crash_points.py": 32,
    "endtoend/test_cli.py": 26,
    "endtoend/test_life.py": 23,
    "servers/test_launcher.py": 23,
    "endtoend/test_bad_input.py": 21,
    "soak/test_short_soak.py": 20,
    "scans/test_outbox.py": 20,
    "dev/test_dev.py": 18,
    "cli/test_ambiguous_ids.py": 40,
    "cli/test_verbs.py": 16,
    "docs/test_examples.py": 13,
    "core/test_json_size.py": 13,
    "store/test_held_bytes.py": 11,
    "endtoend/test_poison.py": 9,
    "security/test_contexts.py": 10,
    "endtoend/test_blocking.py": 9,
    "security/test_frames.py": 8,
}
# What takes servers by the dozen, and minutes: `make clusters` runs it, `make test` doesn't.
CLUSTERS = frozenset(
    {
        "cli/test_partitions.py",
        "endtoend/test_clusters.py",
        "endtoend/test_partitions.py",
        "endtoend/test_rabbitmq_cluster.py",
    }
)
# What takes long by itself, and is about things that seldom change: `make long`, likewise.
LONG = frozenset(
    {
        "crash/test_crash_points.py",
        "dev/test_dev.py",
        "endtoend/test_batches.py",
        "endtoend/test_blocking.py",
        "endtoend/test_held_memory.py",
        "endtoend/test_outages.py",
        "endtoend/test_reload.py",
        "endtoend/test_rolling_restart.py",
        "endtoend/test_schedules.py",
        "operate/test_repartition.py",
        "page/test_health.py",
        "page/test_process.py",
        "scans/test_daemons.py",
        "scans/test_outbox.py",
        "security/test_contexts.py",
        "security/test_large_bodies.py",
        "security/test_lists.py",
        "security/test_pullers.py",
        "security/test_rights.py",
        "security/test_slow_machine.py",
        "security/test_taken_ids.py",
        "soak/test_short_soak.py",
        "store/test_tenants_at_scale.py",
    }
)
_TESTS = Path(__file__).parent

# How long an example takes says how busy the machine is; what tests share, examples share too.
_UNHEEDED = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
settings.register_profile("tests", deadline=None, suppress_health_check=_UNHEEDED)
settings.load_profile("tests")


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what `make test` leaves out; put the longest files in front, as processes share them."""
    if gone := [name for name in {*LONGEST, *CLUSTERS, *LONG} if not (_TESTS / name).exists()]:
        raise pytest.UsageError(f"tests/conftest.py names {gone}, which are not there")
    for item in items:
        name = item.path.relative_to(_TESTS).as_posix()
        for mark, files in (("clusters", CLUSTERS), ("long", LONG)):
            if name in files:
                item.add_marker(mark)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: -LONGEST.get(item.path.relative_to(_TESTS).as_posix(), 0))


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test's time limit grows with the machine's load, unless the command line gives one."""
    if item.config.getoption("timeout") is None:
        mark = item.get_closest_marker("timeout")
        seconds = mark.args[0] if mark else float(item.config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(deadline(seconds)), append=False)
    return (yield)


def _run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine to its end on a loop of its own.

    In a thread, since a test's loop may be running in this one (``request.getfixturevalue``).
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, work).result()


@contextmanager
def _running(server: _Server) -> Iterator[_Server]:
    _run(server.start())
    try:
        yield server
    finally:
        _run(server.stop())


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One Redis for all tests. Who stops, kills or pauses a server makes one of its own."""
    with _running(RedisServer(tmp_path_factory.mktemp("redis"))) as server:
        yield server


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """One Valkey for all tests."""
    with _running(ValkeyServer(tmp_path_factory.mktemp("valkey"))) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitmqServer]:
    """One RabbitMQ for all tests; some seconds to start, so share it."""
    folder = tmp_path_factory.mktemp("rabbitmq")
    with _running(RabbitmqServer(folder, plugins=[HASH_EXCHANGE])) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitmqCluster]:
    """Three RabbitMQ nodes, half a minute to start; a test that kills one starts it again."""
    cluster = RabbitmqCluster(tmp_path_factory.mktemp("rabbitmq-cluster"))
    _run(cluster.start())
    try:
        yield cluster
    finally:
        _run(cluster.stop())


@pytest.fixture(scope="session", params=["redis", "valkey"])
def store_server(request: pytest.FixtureRequest) -> RedisServer:
    """Redis, then Valkey: what the store promises must hold on both."""
    server = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(server, RedisServer)
    return server


@pytest.fixture
async def bench(redis_server: RedisServer) -> AsyncIterator[Bench]:
    """A namespace of its own on Redis, whose structure is sound when the test is over."""
    bench = Bench(redis_server.url)
    try:
        yield bench
        assert bench.audit() == []
    finally:
        await bench.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL for all tests, each of which has a table of its own."""
    server = Postgres()
    with _running(server):
        yield server
    server.remove()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """One MariaDB for all tests, likewise."""
    server = MariaDb()
    with _running(server):
        yield server
    server.remove()
