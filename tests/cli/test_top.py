"""`groupflow top`: what it draws, and what its reader answers."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from rich.console import Console

from groupflow.cli.exits import Exit
from groupflow.cli.top_screen import Look, View, draw
from groupflow.operate.busy import Busy, read_busy
from groupflow.operate.dead import DeadLetter
from groupflow.operate.groups import ALL, Groups
from groupflow.operate.totals import DaemonStatus
from groupflow.servers import RedisServer
from tests.deadlines import deadline
from tests.store.bench import Bench, arrival, bury, totals

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
async def bench(redis_server: RedisServer) -> AsyncIterator[Bench]:
    made = Bench(redis_server.url)
    yield made
    await made.close()


def config_of(bench: Bench, server: RedisServer, folder: Path) -> str:
    file = folder / "groupflow.toml"
    file.write_text(f'[redis]\nurl = "{server.url}"\nnamespace = "{bench.keys.namespace}"\n')
    return str(file)


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
    await daemon.claim("plain", "w3")
    await bench.enqueue(arrival("n0", "next"), arrival("s0", "stopped"))
    await Groups(bench.namespace).pause("stopped", "me")


async def test_the_reader_tells_each_state(bench: Bench) -> None:
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


async def test_the_reader_is_bounded(bench: Bench) -> None:
    """However many groups wait, a look sees 200 of them."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(450)))
    assert len(await read_busy(bench.namespace)) == 200


async def test_one_look(bench: Bench, redis_server: RedisServer, tmp_path: Path) -> None:
    """Text without colour for a pipe, in 80 columns; one JSON value for programs."""
    await fill(bench)
    config = config_of(bench, redis_server, tmp_path)
    text = _top(config, "--once").stdout.decode()
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) <= 24
    assert "plain 0 queued, 1 running" in text
    assert "ready0 on d1, w1" in text
    look = orjson.loads(_top(config, "--once", "--json").stdout)
    assert look["status"]["grouped"]["parked"] == 1
    assert look["groups"][0]["waiting"] == 3
    assert [letter["id"] for letter in look["dead"]] == ["parked0"]
    for wrong in (("--json",), ()):
        done = _top(config, *wrong)
        assert done.returncode == Exit.USAGE
        assert b"--once" in done.stderr


async def test_a_pause_is_told_first(
    bench: Bench, redis_server: RedisServer, tmp_path: Path
) -> None:
    """That all stands still is the first thing that anybody wants to know."""
    await fill(bench)
    await Groups(bench.namespace).pause(ALL, "ada\x1b[2J")
    config = config_of(bench, redis_server, tmp_path)
    top = _top(config, "--once").stdout.decode()
    assert "PAUSED: everything, by ada" in top.splitlines()[1]
    status = [sys.executable, "-m", "groupflow", "status", "--config", config]
    text = subprocess.run(  # noqa: ASYNC221
        status, capture_output=True, check=True, timeout=deadline()
    ).stdout.decode()
    lines = text.splitlines()
    assert lines[0].startswith("PAUSED: everything, by ada\\x1b[2J since 20")
    assert any("oldest wait" in line for line in lines)
    assert "1 parked, 1 paused" in text
    assert "parked: parked, behind dead letter parked0, since 20" in text
    assert "paused: stopped, by me, since 20" in text
    done = subprocess.run(  # noqa: ASYNC221
        [*status, "--json"], capture_output=True, check=True, timeout=deadline()
    )
    told = orjson.loads(done.stdout)
    assert told["paused"]["by"] == "ada\x1b[2J"
    assert told["paused"]["since"] > 0
    assert told["grouped"]["waited"] > 0
    assert (told["grouped"]["parked"], told["grouped"]["paused"]) == (1, 1)


async def test_a_live_view_ends_with_q(
    bench: Bench, redis_server: RedisServer, tmp_path: Path
) -> None:
    """On a terminal of its own, which is afterwards as it was before."""
    import termios

    await fill(bench)
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    before = termios.tcgetattr(theirs)
    command = [sys.executable, "-m", "groupflow", "top", "--interval", "0.2"]
    with subprocess.Popen(  # noqa: ASYNC220  it lives beside the test
        [*command, "--config", config_of(bench, redis_server, tmp_path)],
        cwd=REPOSITORY,
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm-256color"},
    ) as process:
        try:
            _read_until(ours, b"ready0 on d1")
            os.write(ours, b" ")
            _read_until(ours, b"HELD")
            os.write(ours, b"q")
            _read_until(ours, b"\x1b[?1049l")
            assert process.wait(30) == Exit.FINE
        finally:
            process.kill()
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def _read_until(terminal: int, wanted: bytes) -> None:
    seen = b""
    while wanted not in seen:
        seen += os.read(terminal, 65536)


def _top(config: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "groupflow", "top", "--config", config, *arguments]
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=deadline(),
        check=False,
    )


def look_at(at: float, *, done: int = 0, groups: int = 0, daemons: int = 1, dead: int = 0) -> Look:
    return Look(
        at,
        totals(
            queued_grouped=groups,
            groups=groups,
            ready=groups,
            dead=dead,
            done_total=done,
            daemons=[DaemonStatus(f"d{n}", n, "h", 4, 0.5) for n in range(daemons)],
        ),
        [Busy(f"g{n}:" + "x" * 200, "ready", n) for n in range(groups)],
        [
            DeadLetter(
                f"i{n}", "t", "\x1b[31m", None, "y" * 300, "Dead", 1, 0.0, False, partition=0
            )
            for n in range(dead)
        ]
        if dead
        else [],
    )


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 50), (200, 24)])
@pytest.mark.parametrize("many", [0, 1, 100])
def test_it_fits(width: int, height: int, many: int) -> None:
    """Whatever is shown, no line is too long and none falls off the screen."""
    look = look_at(0.0, groups=many, daemons=many, dead=many)
    view = View(now=look, trouble="no answer\x1b[2J" * 30)
    console = Console(width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(draw(view, width, height))
    lines = captured.get().splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert "\x1b" not in captured.get()


def test_rates_are_over_the_last_seconds() -> None:
    view = View(now=look_at(100.0, done=0))
    assert view.rate("done") == "-"
    view = view.seen(look_at(104.0, done=400))
    assert view.rate("done") == "100.0/s"
    view = view.seen(look_at(120.0, done=400))
    assert view.rate("done") == "-", "a gap is no rate"
    view = view.failed("gone").seen(look_at(121.0, done=500))
    assert (view.rate("done"), view.trouble) == ("100.0/s", "")


def test_keys() -> None:
    view = View(now=look_at(0.0))
    assert view.after("s").order == "seconds"
    assert view.after("s").after("s").order == "waiting"
    assert view.after(" ").is_held
    assert view.after("x") == view
