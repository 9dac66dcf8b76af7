"""`groupflow task cancel`: what it says of each task, and what it asks before many."""

from __future__ import annotations

import getpass

from groupflow.cli.exits import Exit
from tests.cli.verbs import Verbs, agreed
from tests.operate.spread import Spread
from tests.store.bench import arrival

TO_STOP = "(1 of them runs now: it gets asked to stop: a0)"


async def test_each_id_gets_its_verdict(spread: Spread, groupflow: Verbs) -> None:
    home = spread.benches[spread.place_of("a")]
    await spread.enqueue(arrival("a0", "a"), arrival("a1", "a"), arrival("dead", dead="no row"))
    daemon = await home.daemon()
    await daemon.claim_one("grouped")
    async with agreed(spread):
        one = await groupflow("task", "cancel", "a1", "--reason", "wrong file", "--json")
        assert (one.exit, one.json) == (0, {"id": "a1", "verdict": "cancelled"})
        many = await groupflow("task", "cancel", "a0", "a1", "dead", "nobody", "--json")
        verdicts = {each["id"]: each["verdict"] for each in many.json}
        assert many.exit == Exit.FAILED
        assert verdicts == {
            "a0": "requested", "a1": "cancelled", "dead": "dead", "nobody": "unknown"
        }  # fmt: skip
        assert (await groupflow("task", "cancel", "a0")).out == (
            "a0: it runs, and is asked to stop\n"
        )
        told = (await groupflow("task", "a0")).out
        assert f", by {getpass.getuser()}: its handler has not ended yet" in told
        assert "is asked to stop since" in told
        assert "asked to stop since" in (await groupflow("why", "a")).out
        shown = (await groupflow("task", "a1", "--json")).json
        assert (shown["cancelled_by"], shown["reason"]) == (getpass.getuser(), "wrong file")


async def test_a_group_is_counted_confirmed_and_cancelled(spread: Spread, groupflow: Verbs) -> None:
    home = spread.benches[spread.place_of("a")]
    await spread.enqueue(*(arrival(f"a{n}", "a") for n in range(3)), arrival("b0", "b"))
    await (await home.daemon()).claim_one("grouped")
    group = ("task", "cancel", "--group", "a")
    async with agreed(spread):
        counted = await groupflow(*group, "--dry-run")
        assert counted.out == f"3 tasks {TO_STOP} of group a would be cancelled\n"
        assert (await groupflow(*group, "--dry-run", "--json")).json == {
            "waiting": 2, "running": ["a0"]
        }  # fmt: skip
        asked = await groupflow(*group)
        assert asked.exit == Exit.USAGE
        assert f"cancel 3 tasks {TO_STOP} of group a? This is no terminal" in asked.err
        done = await groupflow(*group, "--yes")
        assert (done.exit, done.out) == (0, "cancelled 2, asked 1 that run to stop\n")
        told = await groupflow("task", "cancel", "--type", "t*", "--yes", "--json")
        assert told.json == {"cancelled": 1, "requested": []}
