"""The verbs over several partitions: as of one, without one of them, with another number."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupflow.cli.exits import Exit
from groupflow.servers import RedisServer
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Enqueuer
from groupflow.store.keys import Keys
from groupflow.store.partitions import Partitions, agree, keys_of, partition_of
from tests.cli.verbs import Verbs, agreed
from tests.operate.spread import Spread
from tests.servers.replicated import RedisCluster
from tests.store.bench import arrival


@pytest.mark.parametrize("words", [
    "status", "why g1", "task t1", "tasks queued", "task drop t1", "task run-now --delayed g1",
    "dead list", "dead show t1", "dead redrive t1", "dead drop --all", "pause g1",
    "resume --all", "top --once", "reload",
])  # fmt: skip
async def test_a_number_that_differs_ends_every_verb(
    spread: Spread, redis_server: RedisServer, tmp_path: Path, words: str
) -> None:
    groupflow = Verbs(tmp_path, redis_server.url, spread.name, 3)
    async with agreed(spread):
        said = await groupflow(*words.split())
        spread.benches[0].raw.hset(Keys(spread.name)("partitions"), "format", "7")
        of_another_format = await groupflow(*words.split())
    assert (said.exit, said.out) == (Exit.CONFIG, "")
    assert "redis.partitions = 3" in said.err
    assert "has 4: set it to 4" in said.err
    assert (of_another_format.exit, of_another_format.out) == (Exit.CONFIG, "")
    assert f"redis.namespace = {spread.name}: Its keys are of format 7" in of_another_format.err


async def test_repartition(spread: Spread, redis_server: RedisServer, tmp_path: Path) -> None:
    await spread.put(*(arrival(f"t{n}", f"g{n}") for n in range(12)))
    unused = await Verbs(tmp_path, redis_server.url, "unused", 1)("repartition", "2")
    assert unused.exit == Exit.FINE
    assert unused.out == "no daemon has used namespace unused yet: set redis.partitions = 2\n"
    groupflow = Verbs(tmp_path, redis_server.url, spread.name, 4)
    async with agreed(spread):
        (daemon, *_) = await spread.daemons("busy")
        refused = await groupflow("repartition", "2")
        assert (refused.exit, refused.out) == (Exit.FAILED, "")
        assert "stop busy" in refused.err
        for bench in spread.benches:
            bench.expire("busy")
        assert daemon.name == "busy"
        moved = await groupflow("repartition", "2", "--json")
        assert moved.exit == Exit.FINE
        assert moved.json["after"] == 2
        assert "partition 3 of 4: " in moved.err
        assert (await groupflow("status")).exit == Exit.CONFIG
        two = Verbs(tmp_path, redis_server.url, spread.name, 2)
        assert (await two("status", "--json")).json["grouped"]["queued"] == 12
        assert (await two("repartition", "2")).out.endswith("has 2 partitions already\n")
        assert (await two("repartition", "0")).exit == Exit.USAGE
        assert (await two("repartition", "4")).exit == Exit.FINE  # as the fixture expects it


async def test_a_node_is_killed(tmp_path: Path) -> None:
    """What lies on it is away, by name; all else goes on, and a verb that missed some says 69."""
    name, count = "killed", 6
    groups = [f"g{n}" for n in range(60)]
    # Without replicas, what lay on a node that is gone is away.
    async with RedisCluster(tmp_path / "cluster", replicas=0) as cluster:
        groupflow = Verbs(tmp_path, cluster.url, name, count)
        common = StoreClient(cluster.url, Keys(name))
        partitions = Partitions(StoreClient(cluster.url, keys) for keys in keys_of(name, count))
        await agree(common, count)
        for group in groups:
            await Enqueuer(partitions.of(group)).enqueue([arrival(f"t-{group}", group)])
        await common.close()
        await partitions.close()
        for number in (4, count):  # from node to node
            assert (await groupflow("repartition", str(number))).exit == Exit.FINE
        homes = [await cluster.leader_of(keys("count")) for keys in keys_of(name, count)]
        lost = homes[2]
        gone = [number for number, home in enumerate(homes) if home is lost]
        there = [each for each in groups if homes[partition_of(each, "", count)] is not lost]
        await lost.kill()
        await _see_the_rest(groupflow, gone, there, missed=(set(groups) - set(there)).pop())
        for home in {*homes} - {lost}:
            await home.kill()
        alone = await groupflow("status")
        assert (alone.exit, alone.out) == (Exit.UNAVAILABLE, "")
        assert "can't be reached" in alone.err


async def _see_the_rest(
    groupflow: Verbs, gone: list[int], there: list[str], *, missed: str
) -> None:
    assert 0 < len(gone) < 6
    checks = (await groupflow("doctor", "--json")).json["checks"]
    found = [each["found"] for each in checks if each["name"] == "redis.partitions"]
    assert f"away: {', '.join(map(str, gone))}" in str(found)
    status = await groupflow("status", "--json")
    assert (status.exit, status.json["away"]) == (Exit.FINE, gone)
    assert status.json["grouped"]["queued"] == len(there)
    for number in gone:
        assert f"partition {number} is away: Redis at " in status.err
    rows = (await groupflow("tasks", "queued", "--json")).json
    assert {row["group"] for row in rows} == set(there)
    assert (await groupflow("why", there[0])).exit == Exit.FINE
    for words in (
        *(f"why {missed}", f"pause {missed}", f"task t-{missed}", f"task drop t-{missed}"),
        *("dead show nobody", "dead redrive --all", "pause --all"),
    ):
        said = await groupflow(*words.split())
        assert said.exit == Exit.UNAVAILABLE, (words, said)
        assert "is away: Redis at " in said.err
    held = await groupflow("why", there[0], "--json")
    assert held.json["state"] == "paused", "the rest is paused all the same"
    assert f"partition {gone[0]} is away" in (await groupflow("top", "--once")).out
