"""`groupflow top`: what it draws, and what its reader answers."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from groupflow.cli.exits import Exit
from groupflow.cli.status import outbox_line, tenants_line
from groupflow.cli.top_screen import Look, View, draw
from groupflow.core.progress import Progress, pack_progress
from groupflow.operate.busy import Busy, read_busy
from groupflow.operate.cancelling import Several, cancel_step
from groupflow.operate.dead import DeadLetter
from groupflow.operate.groups import ALL, Groups
from groupflow.operate.namespace import Namespace
from groupflow.operate.totals import DaemonStatus
from groupflow.store.client import StoreClient
from groupflow.store.progress import Said, write_progress
from groupflow.store.scripts import Telling
from tests.cli.verbs import Verbs
from tests.deadlines import deadline
from tests.operate.spread import Spread
from tests.store.bench import Bench, arrival, bury, totals


async def fill(bench: Bench) -> None:
    """Groups in each state, a plain task that runs, a dead letter."""
    await bench.enqueue(
        *(arrival(f"{group}{n}", group) for group in ("ready", "parked") for n in range(4)),
        arrival("held0", "held", delay=600.0),
        arrival("plain0"),
    )
    daemon = await bench.daemon("d1")
    claims = {c.task.group: c for c in await daemon.claim("grouped", "w1", "w2")}
    await daemon.settle(bury(claims["parked"], park=True))
    claims["plain"] = (await daemon.claim("plain", "w3"))[0]
    said = [
        Said(claims[name].slot, claims[name].fence, pack_progress(*figures))
        for name, figures in (("ready", (29, 100)), ("plain", (1400, None, "rows")))
    ]
    await write_progress(bench.client, daemon.session, [(each, 3.0) for each in said])
    await bench.enqueue(arrival("n0", "next"), arrival("s0", "stopped"))
    await Groups(bench.namespace).pause("stopped", "me")


async def test_the_reader_tells_each_state(bench: Bench) -> None:
    """However many groups wait, a look sees 200 of them."""
    await fill(bench)
    rows = {row.group: row for row in await read_busy(bench.namespace)}
    states = {group: (row.state, row.waiting) for group, row in rows.items()}
    assert states == {
        "ready": ("running", 3),
        None: ("running", 0),
        "parked": ("parked", 3),
        "held": ("delayed", 1),
        "next": ("ready", 1),
        "stopped": ("paused", 1),
    }
    running = rows["ready"]
    assert (running.task, running.daemon, running.worker) == ("ready0", "d1", "w1")
    assert running.seconds is not None
    assert rows["next"].seconds is None
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(450)))
    seen = [row.state for row in await read_busy(bench.namespace)]
    assert seen.count("ready") == 200


async def test_one_look(bench: Bench, tmp_path: Path) -> None:
    """Text without colour for a pipe, in 80 columns; a pause is told first; JSON for programs."""
    await fill(bench)
    await Groups(bench.namespace).pause("ready", "me")
    await Groups(bench.namespace).pause(ALL, "ada\x1b[2J")
    groupflow = Verbs(tmp_path, bench.url, bench.keys.namespace)
    text = (await groupflow("top", "--once")).out
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) <= 24
    assert "PAUSED: everything, by ada" in text.splitlines()[1]
    assert "plain 0 queued, 1 running" in text
    assert "██░░░░░░ 29 %  ready0 on d1, w1" in text
    assert "1,400 rows     plain0" in text
    look = (await groupflow("top", "--once", "--json")).json
    assert look["status"]["grouped"]["parked"] == 1
    assert look["groups"][0]["waiting"] == 3
    assert [letter["id"] for letter in look["dead"]] == ["parked0"]
    assert "progress 29 of 100, 29 % (" in (await groupflow("task", "ready0")).out
    told = (await groupflow("task", "plain0", "--json")).json["progress"]
    assert (told.pop("at") > 0, told.pop("age") >= 3) == (True, True)
    assert told == {"done": 1400, "total": None, "unit": "rows"}
    for wrong in (("--json",), ()):
        done = await groupflow("top", *wrong)
        assert (done.exit, "--once" in done.err) == (Exit.USAGE, True)
    status = (await groupflow("status")).out.splitlines()
    assert status[0].startswith("PAUSED: everything, by ada\\x1b[2J since 20")
    assert any("oldest wait" in line for line in status)
    assert "groups 5: 1 running, 1 ready, 1 delayed, 1 parked, 2 paused" in status
    assert "paused ones that still run, or are parked too: 1" in status
    told = (await groupflow("status", "--json")).json
    assert (told["paused"]["by"], told["paused"]["since"] > 0) == ("ada\x1b[2J", True)
    assert (told["grouped"]["parked"], told["grouped"]["paused"]) == (1, 2)
    assert told["grouped"]["waited"] > 0


async def test_a_lease_that_has_run_out(bench: Bench, tmp_path: Path) -> None:
    """Its daemon is no ordinary row; where none lives, it is said what that means."""
    groupflow = Verbs(tmp_path, bench.url, bench.keys.namespace)
    await bench.daemon("d1")
    for others, is_run in (((), False), (("d2",), True)):
        for name in others:
            await bench.daemon(name)
        bench.expire("d1")
        told = (await groupflow("status", "--json")).json["daemons"]
        assert [(each["name"], each["late"]) for each in told] == [
            ("d1", True),
            *((name, False) for name in others),
        ]
        for words in (("status",), ("top", "--once")):
            said = await groupflow(*words)
            assert said.exit == Exit.FINE
            assert "its lease has run out" in said.out
            assert ("no daemon is running: tasks wait until one starts" in said.out) is not is_run


async def test_what_waits_to_be_told(bench: Bench, tmp_path: Path) -> None:
    """It is a word where it is late or stops claims; `why` gives the reason."""
    await bench.enqueue(arrival("a0", "a"), arrival("b0", "b"))
    telling = Telling(frozenset({"cancelled"}), outbox=10)
    client = StoreClient(bench.url, bench.keys, telling=telling)
    await cancel_step(Namespace([client]), Several(group="b"), "ada")
    await client.close()
    groupflow = Verbs(tmp_path, bench.url, bench.keys.namespace)
    told = (await groupflow("status", "--json")).json["outbox"]
    assert (told["events"], told["full"], 0 < told["age"] < deadline()) == (1, 1, True)
    assert told["bytes"] == bench.count("outbox_bytes")
    assert "events.max_memory is reached" in (await groupflow("status")).out
    assert "events.max_memory; it goes on" in (await groupflow("why", "a")).out
    assert outbox_line(totals(outbox=12, outbox_age=4.9)) == ""
    late = "12 events wait to be told, the oldest for 3 min"
    assert outbox_line(totals(outbox=12, outbox_age=200.0)) == late


@pytest.mark.parametrize(("standing", "names"), [(1, "tenant 77"), (3, "tenant 77 …")])
def test_tenants_at_their_limits(standing: int, names: str) -> None:
    facts: Any = {"standing": 1, "standing_plain": 24, "standing_waited": 181.96}
    line = tenants_line(totals(standing_tenants=standing, standing_names=["77"], **facts))
    said = f"tenants {standing} at their limits ({names}): groups 1, plain tasks 24 wait"
    assert line == f"{said}, the oldest for 3 min; the page's Tenants has each"


async def test_a_live_view_ends_with_q(bench: Bench, tmp_path: Path) -> None:
    """On a terminal of its own, which is afterwards as it was before."""
    await fill(bench)
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    before = termios.tcgetattr(theirs)
    file = Verbs(tmp_path, bench.url, bench.keys.namespace).file
    words = [sys.executable, "-m", "groupflow", "top", "--interval", "0.2", "--config", str(file)]
    with subprocess.Popen(  # noqa: ASYNC220  it lives beside the test
        words, stdin=theirs, stdout=theirs, env={**os.environ, "TERM": "xterm-256color"}
    ) as process:
        try:
            for key, wanted in ((b"", b"ready0 on d1"), (b" ", b"HELD"), (b"q", b"\x1b[?1049l")):
                os.write(ours, key)
                seen = b""
                while wanted not in seen:
                    seen += os.read(ours, 65536)
            assert process.wait(deadline()) == Exit.FINE
        finally:
            process.kill()
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


OVER = Progress(2**53, 1, "", 0.0, 0.0)


def look_at(at: float, *, done: int = 0, many: int = 0) -> Look:
    daemons = [DaemonStatus(f"d{n}", n, "h", 4, 0.5) for n in range(many)]
    facts: Any = dict.fromkeys(("queued_grouped", "groups", "ready", "dead"), many)
    letter = ("t", "\x1b[31m", None, "y" * 300, "Dead", 1, 0.0, False)
    return Look(
        at,
        totals(**facts, done_total=done, daemons=daemons),
        [Busy(f"g{n}:" + "x" * 200, "ready", n, progress=OVER) for n in range(many)],
        [DeadLetter(f"i{n}", *letter, partition=0) for n in range(many)],
    )


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50)])
@pytest.mark.parametrize("many", [0, 1, 100])
def test_it_fits(width: int, height: int, many: int) -> None:
    """However much is shown, no line is too long and none falls off the screen."""
    view = View(now=look_at(0.0, many=many), trouble="no answer\x1b[2J" * 30)
    console = Console(width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(draw(view, width, height))
    lines = captured.get().splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert "\x1b" not in captured.get()


def test_rates_are_over_the_last_seconds() -> None:
    view = View(now=look_at(100.0, done=0))
    assert view.rate("done_total") == "-"
    view = view.seen(look_at(104.0, done=400))
    assert view.rate("done_total") == "100.0/s"
    view = view.seen(look_at(120.0, done=400))
    assert view.rate("done_total") == "-", "a gap is no rate"
    view = replace(view, trouble="gone").seen(look_at(121.0, done=500))
    assert (view.rate("done_total"), view.trouble) == ("100.0/s", "")


def test_keys() -> None:
    view = View(now=look_at(0.0))
    assert view.after("s").order == "seconds"
    assert view.after("s").after("s").order == "waiting"
    assert view.after(" ").is_held
    assert view.after("x") == view


async def test_what_waits_for_pullers_is_told(spread: Spread, groupflow: Verbs) -> None:
    """All partitions together, the pools by name; `top` says the same."""
    arrivals = [arrival(f"p{n}") for n in range(9)] + [arrival(f"a{n}", f"a{n}") for n in range(7)]
    for place, each in enumerate(arrivals):
        each.envelope.named_pool = "vans" if place else "bikes"
    await spread.enqueue(*arrivals)
    lines = [
        f"waiting for pool {pool}; no worker pulls from it"
        for pool in ("bikes: plain tasks 1, groups 0", "vans: plain tasks 8, groups 7")
    ]
    told = (await groupflow("status", "--json")).json
    assert told["pools"] == [
        {"name": "bikes", "plain": 1, "groups": 0, "workers": 0},
        {"name": "vans", "plain": 8, "groups": 7, "workers": 0},
    ]
    assert "\n".join(lines) in (await groupflow("status")).out
    assert lines[0] in (await groupflow("top", "--once")).out
    assert {each["pool"] for each in (await groupflow("tasks", "queued", "--json")).json} == {
        "vans", "bikes"
    }  # fmt: skip
    assert "  t  -  tenant 42  pool bikes  attempt 1" in (await groupflow("tasks", "queued")).out
    shown = (await groupflow("task", "p1")).out
    assert "pool     vans\nreason   it waits for a worker that asks pool vans: no" in shown
