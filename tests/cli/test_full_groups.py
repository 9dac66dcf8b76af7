"""`max_queued` as the verbs tell it: `route`, `why`, `task`, `dead redrive`."""

from __future__ import annotations

from dataclasses import replace

import orjson

from groupflow.cli.exits import Exit
from tests.cli.verbs import Verbs, agreed
from tests.operate.spread import Spread
from tests.store.bench import arrival

RULE = """
[[groups]]
name = "rule"
key = "{k}"
max_queued = 2
"""


async def test_a_full_group_is_told(spread: Spread, groupflow: Verbs) -> None:
    """A redrive lets in what there is room for, the oldest first, and says how many stay."""
    with groupflow.file.open("a") as file:
        file.write(RULE)
    home = spread.benches[spread.place_of("a")]
    messages = [replace(arrival(f"a{n}", "a"), max_queued=2) for n in range(5)]
    assert (await home.take_in(*messages)).full == {2, 3, 4}
    async with agreed(spread):
        told = await groupflow("why", "a")
        assert "2 waiting" in told.out
        assert "its group is full: 2 wait, and max_queued lets 2" in told.out
        shown = (await groupflow("why", "a", "--json")).json
        assert (shown["queued"], shown["max_queued"], shown["is_full"]) == (2, 2, True)
        assert "its group is full" in (await groupflow("task", "a4")).out
        named = await groupflow("dead", "redrive", "a4", "--json")
        assert (named.exit, named.json) == (
            Exit.FAILED, {"redriven": [], "unknown": [], "full": ["a4"]}
        )  # fmt: skip
        assert "a4 stays: its group a is full" in named.err
        daemon = await home.daemon()
        await daemon.complete(await daemon.claim_one("grouped"))
        every = await groupflow("dead", "redrive", "--all")
        assert every.exit == Exit.FAILED
        assert every.out == (
            "redriven 1\n2 stay: their groups are full, as max_queued of their rules says\n"
        )
        assert home.lane("a") == ["a1", "a2"]


async def test_route_tells_the_bound(groupflow: Verbs) -> None:
    with groupflow.file.open("a") as file:
        file.write(RULE)
    body = groupflow.file.with_name("body.json")
    body.write_bytes(orjson.dumps({"type": "t", "k": "a"}))
    assert "at most 2 wait in its group" in (await groupflow("route", str(body))).out
    assert (await groupflow("route", str(body), "--json")).json[0]["max_queued"] == 2
