"""Several Redis nodes that aren't what the URL says, and what may break next: a clear line each."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from groupflow.core.checkup import Check
from groupflow.core.errors import ConfigError, StoreUnavailable
from groupflow.doctor.examination import check_at_start
from groupflow.doctor.redis import examine_redis
from groupflow.servers import RedisServer
from groupflow.settings.model import Settings
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys
from tests.servers.replicated import RedisCluster, WatchedRedis, command, until


async def examined(url: str, **more: Any) -> dict[str, list[Check]]:
    found: dict[str, list[Check]] = {}
    redis = {"url": url, "namespace": "nodes", "partitions": 4, "timeout": 2.0, **more}
    for check in await examine_redis(Settings.model_validate({"redis": redis})):
        found.setdefault(check.name, []).append(check)
    return found


def address(url: str) -> str:
    return urlsplit(url).netloc


async def says(server: RedisServer, words: str, what: str) -> bool:
    return what in await command(server, words)


async def test_nodes_of_a_cluster(tmp_path: Path, redis_server: RedisServer) -> None:
    """All is well; a stranger in the list; a user without a right; slots that no node has."""
    async with RedisCluster(tmp_path / "one", 1, 0) as one, RedisCluster(tmp_path, 1, 0) as other:
        (node,) = one.nodes
        well = await examined(one.url)
        assert [each.verdict for each in well["redis.rights"]] == ["ok"]
        assert "redis.nodes" not in well
        for stranger in (address(redis_server.url), address(other.url)):
            (found,) = (await examined(f"{one.url},{stranger}"))["redis.nodes"]
            assert found.verdict == "fail"
            assert f"{stranger} says {stranger}" in found.found
            assert f"{address(one.url)} says {address(one.url)}" in found.found
            assert "Name the nodes of one cluster" in found.remedy

        rights = "on nopass ~* &* +@all -ssubscribe -spublish"
        assert await command(node, f"ACL SETUSER deaf {rights}") == "OK"
        deaf = one.url.replace("://", "://deaf:any@")
        (denied,) = (await examined(deaf))["redis.rights"]
        assert denied.verdict == "fail"
        assert "SPUBLISH" in denied.found
        assert "SSUBSCRIBE to {nodes:0}:wake" in denied.found

        assert await command(node, "CLUSTER DELSLOTSRANGE 0 99") == "OK"
        await until(lambda: says(node, "CLUSTER INFO", "slots_ok:16284"), "it never noticed")
        (holes,) = (await examined(one.url))["redis.cluster"]
        assert (holes.verdict, "16284 of 16384 slots" in holes.found) == ("fail", True)


async def test_a_server_that_is_no_node_of_a_cluster(redis_server: RedisServer) -> None:
    """A daemon ends with 78, and says what to write."""
    url = f"redis+cluster://{address(redis_server.url)}"
    assert (await examined(url))["redis.cluster"][0].verdict == "fail"
    client = StoreClient(url, Keys("nodes"))
    settings = Settings.model_validate({"redis": {"url": url}})
    with pytest.raises(ConfigError, match=r"no node of a cluster\. Give redis\.url as redis://"):
        await check_at_start(client, settings)
    await client.close()


async def test_a_replica_in_place_of_its_primary(tmp_path: Path, redis_server: RedisServer) -> None:
    """It can't run scripts, nor tell of its own replicas: only what it is tells what to do."""
    primary = ("--replicaof", "127.0.0.1", str(redis_server.port))
    async with RedisServer(tmp_path, extra=primary) as replica:
        found = await examined(replica.url, replicas=1)
    assert found["redis.role"][0].verdict == "fail"
    assert not {"redis.answers", "redis.rights"} & set(found)


async def test_a_snapshot_that_fails_beside_the_append_only_file(tmp_path: Path) -> None:
    """Nothing is said against `save none`: it isn't needed."""
    taken = ("--dbfilename", "appendonlydir")  # a folder
    async with RedisServer(tmp_path, extra=taken) as server:
        await command(server, "BGSAVE")
        await until(lambda: says(server, "INFO persistence", "bgsave_status:err"), "it was saved")
        found = await examined(server.url)
    assert "saving a snapshot failed" in found["redis.persistence"][0].found
    assert found["redis.fsync"][0].found == "appendfsync everysec"
    assert "redis.snapshots" not in found


async def test_sentinels(tmp_path: Path) -> None:
    """Enough of them; too few; and a name that none of them knows."""
    async with WatchedRedis(tmp_path, replicas=1) as watched:
        (well,) = (await examined(watched.url))["redis.sentinels"]
        assert (well.verdict, well.found[:7]) == ("ok", "3 of 3 ")
        for sentinel in watched.sentinels[1:]:
            await sentinel.kill()
        asked = f"SENTINEL CKQUORUM {watched.primary}"
        await until(lambda: says(watched.sentinels[0], asked, "NOQUORUM"), "it never noticed")
        (few,) = (await examined(watched.url))["redis.sentinels"]
        assert (few.verdict, "NOQUORUM" in few.found) == ("fail", True)
        assert "too few of them can't replace a primary" in few.remedy
        strange = watched.url.replace(f"/{watched.primary}", "/nobody")
        with pytest.raises(StoreUnavailable, match="Sentinel knows no primary named 'nobody'"):
            await examined(strange)
