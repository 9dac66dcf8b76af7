"""`groupflow task`: how one ended; `cancel`: what it says of each, and asks before many."""

from __future__ import annotations

import getpass
import re

import pytest

from groupflow.cli.exits import Exit
from groupflow.cli.options import moment
from groupflow.operate import ended
from groupflow.operate.namespace import Away
from groupflow.store.settlements import Complete
from tests.cli.verbs import Verbs
from tests.operate.spread import Spread
from tests.store.bench import arrival

NONE = "result   none: its handler gave none, or those of later tasks took its room"
TO_STOP = "(1 of them runs now: it gets asked to stop: a0)"


async def test_each_id_gets_its_verdict(spread: Spread, groupflow: Verbs) -> None:
    home = spread.benches[spread.place_of("a")]
    await spread.enqueue(arrival("a0", "a"), arrival("a1", "a"), arrival("dead", dead="no row"))
    daemon = await home.daemon()
    await daemon.claim_one("grouped")
    one = await groupflow("task", "cancel", "a1", "--reason", "wrong file", "--json")
    assert (one.exit, one.json) == (0, {"id": "a1", "verdict": "cancelled"})
    many = await groupflow("task", "cancel", "a0", "a1", "dead", "nobody", "--json")
    verdicts = {each["id"]: each["verdict"] for each in many.json}
    assert many.exit == Exit.FAILED
    assert verdicts == {
        "a0": "requested", "a1": "cancelled", "dead": "dead", "nobody": "unknown"
    }  # fmt: skip
    assert (await groupflow("task", "cancel", "a0")).out == ("a0: it runs, and is asked to stop\n")
    told = (await groupflow("task", "a0")).out
    assert f", by {getpass.getuser()}: its handler has not ended yet" in told
    for said in (told, (await groupflow("why", "a")).out):
        assert re.search(r"is asked to stop since [0-9:]{8} UTC, by ", said), "as all times are"
    shown = (await groupflow("task", "a1", "--json")).json
    assert (shown["cancelled_by"], shown["reason"]) == (getpass.getuser(), "wrong file")


async def test_a_group_is_counted_confirmed_and_cancelled(spread: Spread, groupflow: Verbs) -> None:
    home = spread.benches[spread.place_of("a")]
    await spread.enqueue(*(arrival(f"a{n}", "a") for n in range(3)), arrival("b0", "b"))
    await (await home.daemon()).claim_one("grouped")
    group = ("task", "cancel", "--group", "a")
    counted = await groupflow(*group, "--dry-run")
    assert counted.out == f"3 tasks {TO_STOP} of group a would be cancelled\n"
    one = await groupflow("task", "cancel", "--group", "b", "--dry-run")
    assert one.out == "1 task of group b would be cancelled\n"
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


async def test_ends_are_told(
    spread: Spread, groupflow: Verbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a task came, began and ended, where, and its result; of a group the last ones."""
    home = spread.benches[spread.place_of("a")]
    await spread.enqueue(*(arrival(f"a{n}", "a") for n in range(4)))
    daemon = await home.daemon()
    for kept in (b'{"result":{"rows":3}}', b'{"result_error":"it is no JSON"}', b""):
        await daemon.settle(Complete(await daemon.claim_one(), 1.25, result=kept))
    assert (await groupflow("task", "cancel", "a3")).exit == 0
    told = await groupflow("task", "a0", "--json")
    names = ("state", "result", "result_error", "seconds", "daemon", "attempt")
    assert [told.json[name] for name in names] == ["done", {"rows": 3}, None, 1.25, "d1", 1]
    times = [moment(told.json[name]) for name in ("enqueued_at", "began_at", "since")]
    said = (await groupflow("task", "a0")).out
    assert "came     {}\nbegan    {}\nended    {}\n".format(*times) in said
    assert 'took     1.250 s on d1\nresult   {\n           "rows": 3\n         }\n' in said
    assert "runs on" not in said
    assert "result   none: it is no JSON\n" in (await groupflow("task", "a1")).out
    assert f"{NONE}\n" in (await groupflow("task", "a2")).out
    cancelled = (await groupflow("task", "a3")).out
    assert ["ended  " in cancelled, "result" in cancelled] == [True, False]
    latest = await groupflow("tasks", "done", "--limit", "2")
    assert [line.split()[0] for line in latest.out.splitlines()] == ["a2", "a1"]
    assert latest.err == "2 are shown, and there may be more: --limit N, or --all\n"
    none = await groupflow("tasks", "dropped", "--json")
    assert (none.err, none.json) == ("", [])
    monkeypatch.setattr(ended, "LOOKED_AT", 0)
    latest = await groupflow("tasks", "done", "--limit", "2", "--json")
    assert [row["id"] for row in latest.json] == ["a2", "a1"]
    assert latest.err.endswith("last ones: plain tasks may be missing\n")
    story = (await groupflow("why", "a", "--json")).json
    assert [each["id"] for each in story["lately"]] == ["a3", "a2", "a1", "a0"]
    assert (story["state"], story["lately"][3]["seconds"]) == ("idle", 1.25)
    lines = (await groupflow("why", "a")).out.splitlines()
    assert lines[0] == "a is idle, 0 waiting: nothing waits in it"
    assert lines[1] == "ended lately, among the last 10,000 of all groups that ended there:"
    assert [line.split("UTC  ")[1] for line in lines[2:]] == [
        "cancelled  a3  t",
        *(f"done  a{n}  t  attempt 1 took 1.250 s on d1" for n in (2, 1, 0)),
    ]
    assert len((await groupflow("why", "b")).out.splitlines()) == 1


@pytest.mark.parametrize("words", ["task cancel --type t --yes", "dead drop --all --yes"])
async def test_a_partition_that_was_passed_over_is_named(
    groupflow: Verbs, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """Though it has answered since."""

    async def walk(*_: object) -> tuple[None, list[Away]]:
        return None, [Away(2, "no answer")]

    for module in ("bulk", "cancelling"):
        monkeypatch.setattr(f"groupflow.operate.{module}.walk", walk)
    said = await groupflow(*words.split())
    assert (said.exit, said.err) == (Exit.UNAVAILABLE, "partition 2 is away: no answer\n")
