"""A namespace over many partitions: where a task lies, and that all agree on their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from groupflow.core.errors import ConfigError, OtherLayout, StoreUnavailable
from groupflow.operate.totals import read_totals
from groupflow.servers import RedisServer
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Enqueuer
from groupflow.store.keys import Keys
from groupflow.store.layout import FORMAT
from groupflow.store.partitions import agree, keys_of, partition_of
from groupflow.store.pulling import Puller, Pulling
from groupflow.store.sessions import Session, Sessions
from tests.store.actors import POOL
from tests.store.bench import Bench, arrival

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


def test_groups_spread_evenly_and_a_name_that_is_no_text_lies_somewhere() -> None:
    found = Counter(partition_of(f"contact:{n}", "", 16) for n in range(16_000))
    assert set(found) == set(range(16))
    assert 900 < min(found.values()) <= max(found.values()) < 1100
    assert 0 <= partition_of("\udcff", "", 16) < 16


async def test_the_first_daemon_says_how_many_there_are(shop: Bench) -> None:
    keys = Keys(f"{shop.keys.namespace}-agreed")
    client = StoreClient(shop.url, keys)
    try:
        await agree(client, 4)
        await agree(client, 4)
        with pytest.raises(ConfigError, match=r"redis\.partitions = 16: .* has 4: set it to 4"):
            await agree(client, 16)
        shop.raw.hset(keys("partitions"), "moving_to", 16)
        with pytest.raises(ConfigError, match="on its way from 4 to 16"):
            await agree(client, 4)
    finally:
        shop.raw.delete(keys("partitions"))
        await client.close()


@pytest.fixture
async def third(shop: Bench) -> AsyncIterator[tuple[Keys, StoreClient]]:
    """The third of four partitions; its namespace's notes lie where `shop` is."""
    keys = Keys(shop.keys.namespace, 2)
    client = StoreClient(shop.url, keys, partitions=4)
    try:
        yield keys, client
    finally:
        shop.raw.delete(*shop.raw.keys(keys("*")), shop.keys("partitions"))
        await client.close()


async def test_a_partition_notes_whose_it_is(shop: Bench, third: tuple[Keys, StoreClient]) -> None:
    """Asked of the namespace once; from then on the partition tells by itself."""
    (keys, client), asked = third, list[int]()

    async def ask(count: int = 4) -> None:
        asked.append(count)
        await agree(shop.client, count)

    async def away() -> None:
        raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable, match="away"):
        await Sessions(client, Session("d1"), 8.0, away).register({})
    assert shop.raw.exists(keys("daemons"), keys("partitions")) == 0
    session = Session("d1")
    await Sessions(client, session, 8.0, ask).register({})
    await Sessions(client, session, 8.0, away).register({})
    assert asked == [4]
    other = StoreClient(shop.url, keys, partitions=3)
    with pytest.raises(OtherLayout, match=r"redis\.partitions = 3: .* has 4: set it to 4"):
        await Sessions(other, Session("d2"), 8.0, away).register({})
    await other.close()


async def test_who_would_tell_is_away(shop: Bench) -> None:
    client = StoreClient("redis://127.0.0.1:1/0", shop.keys)
    with pytest.raises(StoreUnavailable, match=r"isn't noted in each of them yet.* is away"):
        await agree(client, 4)
    await client.close()


async def test_a_namespace_of_another_format(shop: Bench, third: tuple[Keys, StoreClient]) -> None:
    """Neither daemons, workers nor verbs touch it; they say which format it has."""
    keys, client = third
    for each in (shop.keys, keys):
        shop.raw.hset(each("partitions"), mapping={"number": 4, "format": FORMAT + 1})
    refused = rf"redis\.namespace = .*format {FORMAT + 1}, and this groupflow has format {FORMAT}: "
    for call in (
        agree(shop.client, 4),
        Sessions(client, Session("d1"), 8.0).register({}),
        Enqueuer(client).enqueue([arrival("t1", "g")]),
        Pulling(client, 8.0).begin_list(POOL),
        Pulling(client, 8.0).poll(Puller(POOL, "anna", 8.0, 0), 1),
    ):
        with pytest.raises(OtherLayout, match=refused):
            await call
    assert shop.raw.keys(keys("*")) == [keys("partitions").encode()]


async def test_redis_has_one_set_of_scripts_for_all_partitions(store_server: RedisServer) -> None:
    """However many there are: what Lua's collector walks through would grow with each."""
    kept = list[int]()
    for keys in keys_of("sharing", 5):
        async with Bench(store_server.url, keys=keys) as shop:
            await shop.enqueue(arrival("a", "g"))
            await (await shop.daemon()).work_off()
            await read_totals(shop.namespace)
            found: Any = shop.raw.info("memory")
            kept.append(found["number_of_cached_scripts"])
    assert len(set(kept)) == 1, kept
