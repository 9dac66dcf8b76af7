"""What an operator does with a Redis Cluster while groupflow runs on it."""

from __future__ import annotations

import re
from typing import Any

from redis.asyncio import Redis

from tests.servers.replicated import ClusterNode, RedisCluster, command, until

AT_ONCE = 100  # keys a step


async def begin_move(cluster: RedisCluster, key: str, target: ClusterNode) -> tuple[Any, str]:
    """Say that the slot of a key is to move to another primary: where it is, and its number."""
    source = await cluster.leader_of(key)
    slot = await command(source, f"CLUSTER KEYSLOT {key}")
    ids = {node: await command(node, "CLUSTER MYID") for node in (source, target)}
    await command(target, f"CLUSTER SETSLOT {slot} IMPORTING {ids[source]}")
    await command(source, f"CLUSTER SETSLOT {slot} MIGRATING {ids[target]}")
    return source, slot


async def move_keys(source: ClusterNode, slot: str, target: ClusterNode, most: int) -> int:
    """Move so many of the keys that are left; says how many there were."""
    async with Redis(port=source.port) as raw:
        names: list[bytes] = await raw.execute_command("CLUSTER GETKEYSINSLOT", slot, most)  # type: ignore[no-untyped-call]
        if names:
            where = ("127.0.0.1", target.port, "", 0, 5000)
            await raw.execute_command("MIGRATE", *where, "REPLACE", "KEYS", *names)  # type: ignore[no-untyped-call]
        return len(names)


async def end_move(source: ClusterNode, slot: str, target: ClusterNode) -> None:
    """All keys are there: the target has the slot from here on."""
    new = await command(target, "CLUSTER MYID")
    for node in (target, source):
        await command(node, f"CLUSTER SETSLOT {slot} NODE {new}")


async def move(cluster: RedisCluster, key: str, target: ClusterNode) -> None:
    """Move the slot of a key to another primary, key by key, as `redis-cli --cluster` does.

    It ends once the target's replicas have all of it, which `redis-cli` doesn't wait for: the
    source has nothing any more, so a target that died before would take the partition with it.
    """
    source, slot = await begin_move(cluster, key, target)
    while await move_keys(source, slot, target, AT_ONCE):
        pass
    await end_move(source, slot, target)
    wanted, _ = await _offsets(target)

    async def has_arrived() -> bool:
        return all(offset >= wanted for offset in (await _offsets(target))[1])

    await until(has_arrived, "the replica did not follow")


async def _offsets(primary: ClusterNode) -> tuple[int, list[int]]:
    """How far a primary has come, and how far each of its replicas has followed."""
    said = await command(primary, "INFO replication")
    own = int(re.findall(r"master_repl_offset:(\d+)", said)[0])
    return own, [int(offset) for offset in re.findall(r"slave\d+:.*?offset=(\d+)", said)]
