"""`groupflow dead` by filters: what is listed, counted, redriven and dropped."""

from __future__ import annotations

import getpass
from dataclasses import replace
from pathlib import Path

import pytest

from groupflow.cli.exits import Exit
from groupflow.core.errors import BodyMissing, ServerUnreachable
from groupflow.core.routing import scope_of
from groupflow.operate.reasons import cause_of
from groupflow.store.enqueue import Arrival
from tests.cli.verbs import Verbs
from tests.operate.spread import Spread
from tests.store.bench import arrival

FIELDS = '[fields]\ntenant = "tenant"\n'
EVERY = ("full", "gone-7", "gone-mine", "gone-old")
FILTERS = {
    "--all": EVERY,
    "--reason ROW": EVERY[1:],
    "--reason row --tenant 7": EVERY[1:2],
    "--type im.*": EVERY[2:3],
    "--tenant= --type im.row": EVERY[2:3],
    "--since 1h": EVERY[:3],
    "--since 1h --reason row": EVERY[1:3],
    "--reason row --since 1h --type t --tenant 7": EVERY[1:2],
    "--reason nothing": (),
    f"--cause {cause_of('t', 'rejected', 'no such row')[1]}": ("gone-7", "gone-old"),
}


async def _die(spread: Spread) -> None:
    """Four letters of several partitions; one died long ago."""
    row = "no such row"
    seventh, mine = arrival("gone-7", dead=row), arrival("gone-mine", dead=row)
    await spread.enqueue(
        arrival("full", dead="the disk is full"),
        replace(seventh, envelope=replace(seventh.envelope, tenant="7")),
        replace(mine, envelope=replace(mine.envelope, tenant=None, type="im.row")),
        arrival("gone-old", dead=row),
    )
    for bench in spread.benches:
        bench.raw.zadd(bench.keys("dead"), {"gone-old": 1_000_000}, xx=True)
        bench.raw.zadd(bench.keys("bodies"), {"gone-old": 1_000_000}, xx=True)


async def test_filters_are_combined(spread: Spread, groupflow: Verbs) -> None:
    """A list, a count and a drop mean the same letters; a dry run changes nothing."""
    await _die(spread)
    for options, ids in FILTERS.items():
        words = options.split()
        if options != "--all":
            listed = await groupflow("dead", "list", *words, "--json")
            assert sorted(letter["id"] for letter in listed.json) == [*ids], options
        for verb in ("redrive", "drop"):
            counted = await groupflow("dead", verb, *words, "--dry-run", "--json")
            assert (counted.exit, counted.json) == (0, {"matching": len(ids)}), options
    told = await groupflow("dead", "causes", "--reason", "row", "--json")
    facts = [[each[name] for name in ("count", "type", "reason", "example")] for each in told.json]
    assert facts == [[2, "t", "no such row", "gone-7"], [1, "im.row", "no such row", "gone-mine"]]
    shown = await groupflow("dead", "causes", "--limit", "1")
    assert f"2  {told.json[0]['cause']}  newest " in shown.out
    assert shown.out.endswith("gone-7  t  no such row\nand 2 more causes; 4 dead letters in all\n")
    said = await groupflow("dead", "drop", "--reason", "row", "--since", "1h", "--dry-run")
    assert said.out == "2 dead letters match; without --dry-run each is dropped\n"
    said = await groupflow("dead", "drop", "--type", "im.row", "--since", "60 min", "--dry-run")
    assert said.out == "1 dead letter matches; without --dry-run each is dropped\n"
    for which in (("--reason", "row"), ("--all",)):  # a script has no terminal to be asked at
        asked = await groupflow("dead", "drop", *which)
        assert (asked.exit, "--yes" in asked.err) == (Exit.USAGE, True)
    assert (await groupflow("dead", "list", "--group", "none")).out == "no dead letters\n"
    assert (await groupflow("dead", "show", "never came")).exit == Exit.FAILED
    dropped = await groupflow("dead", "drop", "--since", "1h", "--reason", "ROW", "-y", "--json")
    assert sorted(dropped.json["dropped"]) == [*EVERY[1:3]]
    left = await groupflow("dead", "list", "--json", "--limit", "2")
    assert (left.err, sorted(each["id"] for each in left.json)) == ("", [EVERY[0], EVERY[3]])
    cut = await groupflow("dead", "list", "--json", "--limit", "1")
    assert len(cut.json) == 1
    assert cut.err == "1 are shown, and there may be more: --limit N\n"


async def test_a_corrected_body(spread: Spread, groupflow: Verbs, tmp_path: Path) -> None:
    """From a file or stdin; a refusal names the value, and `task ID` shows the old body.

    A letter that can't be routed without one stays, and the exit code says so.
    """
    groupflow.file.write_text(groupflow.file.read_text() + FIELDS)
    await spread.enqueue(arrival("a", dead="no tenant"), dead_of("42"))
    file = tmp_path / "body.json"
    redrive = ("dead", "redrive", "b", "--body", str(file))
    for body, said in (("{}", "its tenant would be none, and was '42'"), ("{", "not JSON")):
        file.write_text(body)
        told = await groupflow(*redrive)
        assert (told.exit, told.out) == (Exit.FAILED, "redriven 0\n")
        assert f"b stays: with the corrected body {said}" in told.err or said in told.err
    file.write_text('{"tenant": "42", "rows": 7}')
    assert (await groupflow(*redrive, "--json")).json == {"redriven": ["b"], "unknown": []}
    again = await groupflow(*redrive)
    assert (again.exit, again.err) == (Exit.FAILED, "no dead letter b\n")
    shown = await groupflow("task", "b")
    by = f"by {getpass.getuser()}; before:\n"
    assert by in shown.out
    assert '{"id":"b"}\n' in shown.out
    assert "SHA-256" in shown.out
    [correction] = (await groupflow("task", "b", "--json")).json["corrections"]
    assert correction["body"] == '{"id":"b"}'
    shown = await groupflow("dead", "show", "a", "--json")
    assert shown.json["corrections"] == []
    with groupflow.file.open("a") as config:
        config.write('[[groups]]\nkey = "{k}"\n')
    for words in (("a",), ("--all",)):  # it has no route yet
        told = await groupflow("dead", "redrive", *words)
        assert (told.exit, told.out) == (Exit.FAILED, "redriven 0\n")
        assert "a stays: " in told.err


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (BodyMissing("its retention is over"), Exit.FAILED),
        (ServerUnreachable("RabbitMQ", "there", "its retention is over"), Exit.UNAVAILABLE),
    ],
)
async def test_a_body_that_cannot_be_read(
    spread: Spread,
    groupflow: Verbs,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    end: Exit,
) -> None:
    """All else is shown, and the exit code says that something is missing."""

    async def whole_letter(*_: object) -> None:
        raise error

    monkeypatch.setattr("groupflow.operate.redrive.whole_letter", whole_letter)
    await spread.enqueue(arrival("a", dead="no tenant"))
    shown = await groupflow("dead", "show", "a")
    assert (shown.exit, "no tenant" in shown.out) == (end, True)
    assert shown.err == f"groupflow: {error}\n"
    told = await groupflow("dead", "show", "a", "--json")
    assert (told.exit, told.json["reason"], told.json["headers"]) == (end, "no tenant", {})
    assert ("body" in told.json, told.json["body_error"]) == (False, str(error))


def dead_of(tenant: str) -> Arrival:
    """A letter that had a route: there was no room for its delay."""
    message = arrival("b")
    envelope = replace(message.envelope, tenant=tenant, scope=scope_of(None, tenant))
    return replace(message, envelope=envelope, dead="no row")
