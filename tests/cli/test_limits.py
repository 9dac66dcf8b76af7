"""Limits as the verbs tell them: `max_queued` of a rule, and `groupflow limit` by hand."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from groupflow.cli.exits import Exit
from groupflow.core.errors import StoreUnavailable
from groupflow.core.limits import HandLimit
from groupflow.operate.limits import LimitsByHand
from tests.cli.verbs import Verbs
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


async def test_a_pause_says_what_it_did(spread: Spread, groupflow: Verbs) -> None:
    await spread.enqueue(arrival("a0", "a"))
    verbs = ("pause a", "pause a", "resume a", "pause a --json", "why a")
    *said, told, why = [(await groupflow(*each.split())).out for each in verbs]
    assert said == ["a paused\n", "a was paused already\n", "a goes on\n"]
    assert orjson.loads(told) == {"group": "a", "paused": True, "changed": True}
    assert why.startswith("a is paused, 1 waiting")


async def test_route_tells_the_bound(groupflow: Verbs) -> None:
    with groupflow.file.open("a") as file:
        file.write(RULE)
    body = groupflow.file.with_name("body.json")
    body.write_bytes(orjson.dumps({"type": "t", "k": "a"}))
    assert "at most 2 wait in its group" in (await groupflow("route", str(body))).out
    assert (await groupflow("route", str(body), "--json")).json[0]["max_queued"] == 2
    body.write_bytes(orjson.dumps({"type": "t", "k": "a", "text": "x" * 16_777_216}))
    (found,) = (await groupflow("route", str(body), "--json")).json
    assert (found["queue"], "over rabbitmq.max_body = 16777216" in found["reason"]) == (
        "dead letter", True
    )  # fmt: skip


async def test_it_holds_is_listed_and_ends(spread: Spread, groupflow: Verbs) -> None:
    await spread.enqueue(*(arrival(f"a{n}", "a") for n in range(2)))
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
    """A tenant isn't limited while a partition is away; a group lies in one."""
    lost = LimitsByHand(spread.without(1))
    with pytest.raises(StoreUnavailable):
        await lost.begin(HandLimit("tenant", "42", rate="5/s"), "ada", 60.0)
    here = next(name for name in "abcdefgh" if spread.namespace.place_of(name) != 1)
    await lost.begin(HandLimit("group", here, 2), "ada", 60.0)
    assert {each.name for each in (await lost.every()).limits} == {"42", here}


NAMES: list[tuple[str, bool]] = [  # a verb, and whether anything is known of what it names
    ("why a", True),
    ("why b", True),
    ("why late", True),
    ("why gone", True),
    ("why skipped", True),
    ("why typo", False),
    ("why area:²", False),
    (f"why area:{'9' * 5000}", False),
    ("pause a", True),
    ("pause typo", False),
    ("pause typo --for 5m", False),
    ("limit group a --rate 1/s", True),
    ("limit group typo --rate 1/s", False),
    ("limit type t --rate 1/s", True),
    ("limit type announced.* --rate 1/s", True),
    ("limit type announced.here --rate 1/s", True),
    ("limit type announced.h --rate 1/s", False),
    ("limit type ruled --rate 1/s", True),
    ("limit type handled --rate 1/s", True),
    ("limit type typo.* --rate 1/s", False),
    ("limit tenant 42 --rate 1/s", True),
    ("limit tenant 8 --rate 1/s", True),
    ("limit tenant 9 --rate 1/s", True),
    ("limit tenant typo --rate 1/s", False),
]
CONFIGURED = """
[types.ruled]
concurrency = 1
[handlers.handled]
exec = ["true"]
[tenants.8]
concurrency = 1
[[groups]]
key = "{k}"
tenants = [9]
"""


async def test_a_name_that_never_was_is_doubted(spread: Spread, groupflow: Verbs) -> None:
    """The verbs do what they are asked: one may pause what is still to come."""
    with groupflow.file.open("a") as file:
        file.write(CONFIGURED)
    await spread.enqueue(arrival("a0", "a"), arrival("b0", "b"), arrival("gone0", "gone"))
    await spread.enqueue(arrival("d0", "skipped", dead="no row"))
    home = spread.benches[spread.place_of("late")]
    await home.enqueue(arrival("late0", "late", delay=3600.0))
    daemon = await spread.benches[spread.place_of("b")].daemon()
    await daemon.claim_one("grouped")
    daemon.sessions.types = lambda: ["announced.here"]
    await daemon.sessions.tell({}, {})
    await groupflow("task", "cancel", "gone0")
    for words, is_known in NAMES:
        said = await groupflow(*words.split(), "--json")
        assert (said.exit, said.json.get("known", True)) == (0, is_known), words
        kind = words.split()[1] if words.startswith("limit") else "group"
        assert (f"nothing is known of {kind} " in said.err) is not is_known, words
    assert (await groupflow("pause", "typo")).out == "typo was paused already\n"
