"""A namespace over many partitions: where a task lies, and that all agree on their number."""

from __future__ import annotations

from collections import Counter

import pytest

from groupflow.core.errors import ConfigError
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys
from groupflow.store.partitions import agree, keys_of, partition_of
from tests.store.bench import Bench

# Written down: what is stored lies where these said.
PLACES = {
    ("contact:42", ""): (0, 544),
    ("contact:43", ""): (4, 540),
    (None, "contact:42"): (0, 544),
    ("ü:7", ""): (2, 250),
    ("", "id"): (4, 652),
}


def test_where_a_task_lies_never_changes() -> None:
    for (group, id_), (of_16, of_1000) in PLACES.items():
        assert partition_of(group, id_, 16) == of_16
        assert partition_of(group, id_, 1000) == of_1000
        assert partition_of(group, id_, 1) == 0


def test_groups_spread_evenly() -> None:
    found = Counter(partition_of(f"contact:{n}", "", 16) for n in range(16_000))
    assert set(found) == set(range(16))
    assert 900 < min(found.values()) <= max(found.values()) < 1100


def test_a_name_that_is_no_text_lies_somewhere() -> None:
    assert 0 <= partition_of("\udcff", "", 16) < 16


def test_one_partition_has_the_keys_of_before() -> None:
    assert [keys("plain") for keys in keys_of("ns", 1)] == ["{ns}:plain"]
    assert [keys.wake for keys in keys_of("ns", 2)] == ["{ns:0}:wake", "{ns:1}:wake"]


async def test_the_first_daemon_says_how_many_there_are(bench: Bench) -> None:
    keys = Keys(f"{bench.keys.namespace}-agreed")
    client = StoreClient(bench.url, keys)
    try:
        await agree(client, 4)
        await agree(client, 4)
        with pytest.raises(ConfigError, match=r"redis\.partitions = 16: .* has 4: set it to 4"):
            await agree(client, 16)
        bench.raw.hset(keys("partitions"), "moving_to", 16)
        with pytest.raises(ConfigError, match="on its way from 4 to 16"):
            await agree(client, 4)
    finally:
        bench.raw.delete(keys("partitions"))
        await client.close()


async def test_a_namespace_of_an_earlier_version_has_one(bench: Bench) -> None:
    keys = Keys(f"{bench.keys.namespace}-earlier")
    client = StoreClient(bench.url, keys)
    try:
        bench.raw.set(keys("fence"), 7)
        with pytest.raises(ConfigError, match="has 1: set it to 1"):
            await agree(client, 4)
        await agree(client, 1)
    finally:
        bench.raw.delete(keys("partitions"), keys("fence"))
        await client.close()
