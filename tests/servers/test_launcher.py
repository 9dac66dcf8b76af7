"""The launcher of private servers: they keep what they hold, and never outlive who started them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from groupflow.core.errors import GroupflowError
from groupflow.servers import MissingServer, RabbitmqServer, RedisServer, private_servers
from groupflow.servers.kinds import HASH_EXCHANGE
from groupflow.servers.process import ServerFailed, ServerProcess
from groupflow.servers.server import free_ports
from tests.deadlines import deadline, until
from tests.servers.replicated import ClusterNode
from tests.servers.valkey import ValkeyServer

STORES = pytest.mark.parametrize("make", [RedisServer, ValkeyServer], ids=["redis", "valkey"])

_LAUNCH_AND_HANG = """
import asyncio, json
from groupflow.servers import private_servers

async def main():
    async with private_servers() as servers:
        print(json.dumps({
            "folder": str(servers.redis.folder.parent),
            "ports": [servers.redis.port, servers.rabbitmq.port],
        }), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _processes_of(folder: Path) -> list[str]:
    """The command lines of all processes, epmd among them, that were started for a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={folder}".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


@STORES
async def test_it_keeps_what_was_answered(make: type[RedisServer], tmp_path: Path) -> None:
    """Its port too; through a restart, a kill, and where it died by itself."""
    wanted = {"appendonly": "yes", "appendfsync": "everysec", "save": ""}
    wanted |= {"maxmemory-policy": "noeviction", "bind": "127.0.0.1", "maxmemory": f"{64 * 2**20}"}
    async with make(tmp_path, extra=["--maxmemory", "64mb"]) as store:
        url = store.url
        with Redis.from_url(url, decode_responses=True) as client:
            raw: Any = client
            for name, value in wanted.items():
                assert raw.config_get(name) == {name: value}
            raw.set("key", "kept")
            pid = store.pid
            await store.restart()
            assert (store.pid != pid, raw.get("key")) == (True, "kept")
            raw.set("key", "killed")
            await store.kill()
            assert not _listening(store.port)
            await store.start()
            assert raw.get("key") == "killed"
            os.kill(store.pid, signal.SIGKILL)
            await until(lambda: not store.running)
            await store.start()
            assert (store.url, raw.get("key")) == (url, "killed")


async def test_a_taken_port_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart, whose port is known to clients, says so instead."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        choices = iter([[taken.getsockname()[1]], free_ports(1)])
        monkeypatch.setattr("groupflow.servers.server._hold_ports", lambda *_: next(choices))
        store = RedisServer(tmp_path)
        await store.start()
        assert store.port != taken.getsockname()[1]
    port = store.port
    await store.stop()
    is_taken = pytest.raises(ServerFailed, match="Address already in use")
    with socket.create_server(("127.0.0.1", port)), is_taken:
        await store.start()
    await store.start()
    assert store.port == port
    await store.stop()


async def test_no_other_gets_a_port_of_a_server_that_is_down(tmp_path: Path) -> None:
    async with ClusterNode(tmp_path) as node:
        await node.kill()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", node.bus_port))


async def test_a_failed_start_shows_the_last_words_and_leaves_nothing(tmp_path: Path) -> None:
    store = RedisServer(tmp_path, extra=["--no-such-option", "1"])
    with pytest.raises(ServerFailed, match="no-such-option"):
        await store.start()
    assert not store.running
    assert _processes_of(tmp_path) == []


async def test_a_cancelled_start_leaves_nothing(tmp_path: Path) -> None:
    store = RabbitmqServer(tmp_path)
    start = asyncio.create_task(store.start())
    await until(lambda: _processes_of(tmp_path))
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert _processes_of(tmp_path) == []


async def test_daemons_of_a_server_die_beside_a_name_that_is_no_utf8(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"\xc3")
    odd.write_text("#!/bin/sh\nread line\n")
    odd.chmod(0o755)
    # Started before ours: it comes first in /proc.
    other = await asyncio.create_subprocess_exec(odd, stdin=asyncio.subprocess.PIPE)
    stat = Path(f"/proc/{other.pid}/stat")
    await until(lambda: b"(\xc3)" in stat.read_bytes())
    command = ["sh", "-c", f"setsid sleep {2 * deadline()} &"]
    home = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    server = await ServerProcess.spawn(command, log=tmp_path / "log", environment=home)
    await server.wait()
    assert _processes_of(tmp_path) == []
    other.kill()
    await other.wait()


async def test_a_python_that_needs_a_library_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard is run by the same; without the variable an error says what is wrong."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\n[ "$LD_LIBRARY_PATH" = {tmp_path} ] && exec {sys.executable} "$@"\n'
        "echo libpython3.so: cannot open shared object file >&2\nexit 127\n"
    )
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    store = RedisServer(tmp_path / "redis")
    with pytest.raises(ServerFailed, match=r"redis-server can't be run: libpython3\.so: cannot"):
        await store.start()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    async with store:
        assert _listening(store.port)


async def test_missing_programs_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(RabbitmqServer, "programs", ("rabbitmq-server",))
    with pytest.raises(MissingServer, match=r"install redis-server rabbitmq-server$") as one:
        async with private_servers():
            pytest.fail("it started without programs")
    assert one.value.binaries == ("redis-server", "rabbitmq-server")
    assert isinstance(one.value, GroupflowError)
    with pytest.raises(MissingServer, match=r"^redis-server not found.*apt-get install redis-"):
        await RedisServer(tmp_path).start()


async def test_the_folder_goes_when_the_block_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    # Valkey in RabbitMQ's place: what is tested is the launch, and it is fifty times as fast.
    class InItsPlace(ValkeyServer):
        def __init__(self, folder: Path, *, plugins: list[str], scratch: Path) -> None:
            assert plugins == [HASH_EXCHANGE]
            super().__init__(folder, scratch=scratch)

    monkeypatch.setattr("groupflow.servers.RabbitmqServer", InItsPlace)
    launch = private_servers()
    servers = await launch.__aenter__()
    folder = servers.redis.folder.parent
    assert _processes_of(folder)
    assert not await launch.__aexit__(KeyError, KeyError(), None)
    assert not folder.exists()
    assert _processes_of(folder) == []


async def test_nothing_survives_a_killed_parent() -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _LAUNCH_AND_HANG, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    told = json.loads(await parent.stdout.readline())
    folder = Path(told["folder"])
    assert all(_listening(port) for port in told["ports"])
    assert any("epmd" in command for command in _processes_of(folder))
    parent.kill()
    await parent.wait()
    await until(lambda: not any(_listening(port) for port in told["ports"]))
    await until(lambda: _processes_of(folder) == [])
    await until(lambda: not folder.exists())
