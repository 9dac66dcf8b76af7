"""`groupflow limit`: set, listed, ended, over several partitions."""

from __future__ import annotations

import pytest

from groupflow.core.errors import StoreUnavailable
from groupflow.core.limits import HandLimit
from groupflow.operate.limits import LimitsByHand
from tests.cli.verbs import Verbs, agreed
from tests.operate.spread import Spread
from tests.store.bench import arrival


async def test_it_holds_is_listed_and_ends(spread: Spread, groupflow: Verbs) -> None:
    await spread.enqueue(*(arrival(f"a{n}", "a") for n in range(2)))
    async with agreed(spread):
        told = await groupflow("limit", "tenant", "42", "--rate", "5/s", "--for", "10m", "--json")
        assert told.json == {"kind": "tenant", "name": "42", "limited": True, "changed": True}
        told = await groupflow("limit", "group", "a", "--concurrency", "2")
        assert (told.exit, "2 at once, for 1h" in told.out) == (0, True)
        listed = (await groupflow("limit", "list", "--json")).json
        rows = [(e["kind"], e["name"], e["concurrency"], e["rate"]) for e in listed]
        assert rows == [("tenant", "42", None, "5/s"), ("group", "a", 2, None)]
        assert [round(each["until"] - each["since"]) for each in listed] == [600, 3600]
        assert "limits are by hand until" in (await groupflow("why", "a")).out
        off = ("limit", "tenant", "42", "--off")
        assert (await groupflow(*off, "--json")).json["changed"] is True
        assert (await groupflow(*off)).out == "tenant 42 was not limited by hand\n"
        assert (await groupflow("limit")).out.startswith("group a: 2 at once, until 2")


async def test_without_a_partition(spread: Spread) -> None:
    """Nobody may believe that a tenant is limited everywhere; a group lies in one."""
    lost = LimitsByHand(spread.without(1))
    with pytest.raises(StoreUnavailable):
        await lost.begin(HandLimit("tenant", "42", rate="5/s"), "ada", 60.0)
    here = next(name for name in "abcdefgh" if spread.namespace.place_of(name) != 1)
    await lost.begin(HandLimit("group", here, 2), "ada", 60.0)
    assert {each.name for each in (await lost.every()).limits} == {"42", here}
