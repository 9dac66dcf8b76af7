"""What is shown: the live picture, the summary, and why the watch gives up."""

from __future__ import annotations

import asyncio
import io
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from groupflow.demo.rows import FLIGHTS, ImportTask, load_tasks, open_database
from groupflow.demo.screen import Screen, print_summary, read_state
from groupflow.demo.show import DaemonDied, DemoDaemon, Import, Servers
from groupflow.demo.verdict import DemoFindings


def _console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    options: Any = {"highlight": False, "soft_wrap": True, "width": 100, "height": 40}
    return Console(file=text, force_terminal=terminal, **options), text


@pytest.mark.parametrize("terminal", [True, False])
def test_the_last_picture_stays(tmp_path: Path, terminal: bool) -> None:
    """Of a part that has run, and some that failed; without a terminal it is a line."""
    console, text = _console(terminal=terminal)
    screen, tasks = Screen(console), load_tasks()
    with closing(open_database(tmp_path / "imported.db", tasks)) as db:
        attempts = [
            (task.number, task.group, f"demo-{1 + n % 2}", n / 10, (n + 1) / 10)
            for n, task in enumerate(tasks[:1010])
        ]
        attempts.append((tasks[1].number, tasks[1].group, "demo-1", 101, 101))  # once more
        db.executemany("INSERT INTO attempts VALUES (?, ?, ?, 0, ?, ?, NULL)", attempts)
        state = read_state(db, now=101.0)
    assert (state.handled, state.total, state.failed, state.elapsed) == (1010, 3095, 0, 101)
    assert state.daemons == {"demo-1": 506, "demo-2": 504}
    assert state.rate == pytest.approx(10, abs=1)
    with screen.open():
        screen.show(state._replace(failed=3), 3095, "[red]demo-2 killed[/]")
    shown = text.getvalue()
    for words in ("1,010", "3,095", "demo-2", "504", "3 FAILED", "demo-2 killed"):
        assert words in shown
    assert ("JetBlue Airways" in shown, "\x1b" in shown) == (terminal, terminal)


GOOD = DemoFindings(
    checks={
        "order": {"tasks out of order": []},
        "delivery": {"lost": [], "run again without a crash": [], "failed": []},
    },
    errors=[],
    rows={"planes": 240, "flights": 2141},
    differences=[],
    seconds=300,
    crashed=26,
    peak_groups=32,
    serial_seconds=3000,
    ungrouped_failed=226,
    ungrouped_wrong=2268,
)


def test_the_summary_names_what_went_wrong() -> None:
    """Any fault is a failure, as is an end before its time."""
    assert GOOD.equal
    assert not replace(GOOD, differences=["x"]).equal
    assert not replace(GOOD, checks={"order": {"tasks out of order": [1]}}).equal
    delivery = {"lost": [3094], "run again without a crash": [0, 1, 2, 3, 4, 5], "failed": [7]}
    wrong = replace(
        GOOD,
        checks=GOOD.checks | {"delivery": delivery},
        errors=["KeyError: [2]"],
        differences=["planes UA/N1 is [1], not [2]"],
    )
    console, text = _console(terminal=False)
    print_summary(console, wrong, "demo-2", "Gave up.")
    for words in (
        "Gave up.",
        "✗ delivery  1 lost, 6 run again without a crash, 1 failed",
        "      lost: task 3094\n",
        "      run again without a crash: task 0, 1, 2, 3, 4\n",
        "      KeyError: [2]",
        "1 differ",
        "      planes UA/N1 is [1], not [2]",
        "NOT equal",
    ):
        assert words in text.getvalue()
    print_summary(console, GOOD, "demo-2", "Gave up.")
    assert text.getvalue().count("NOT equal") == 2


TASKS = [ImportTask(n, FLIGHTS, "UA", "N1:UA", b"{}") for n in range(3)]


@pytest.fixture
def work(tmp_path: Path) -> Import:
    return Import(TASKS, tmp_path / "imported.db")


def _log(work: Import, *numbers: int) -> None:
    with closing(sqlite3.connect(work.database)) as db:
        rows = [(number, number, number + 1) for number in numbers]
        db.executemany("INSERT INTO attempts VALUES (?, 'N1:UA', 'demo-1', 0, ?, ?, NULL)", rows)
        db.commit()


async def _nothing() -> None:
    """All is published."""


async def _watch(work: Import, standstill: float = 30.0) -> str:
    publishing = asyncio.create_task(_nothing())
    return await work.watch(Screen(Console(quiet=True)), publishing, standstill)


async def test_it_gives_up_at_a_standstill(work: Import) -> None:
    _log(work, 0)
    stopped = await _watch(work, 0.2)
    assert stopped == "Gave up after 0.2 s without progress: 1 of 3 tasks were handled."


async def test_no_daemon_may_end_by_itself(work: Import, tmp_path: Path) -> None:
    (tmp_path / "demo-2.log").write_text("first\nmy last word\n")
    work.daemons.append(DemoDaemon("demo-2", tmp_path, {}))
    with pytest.raises(DaemonDied, match=r"demo-2 ended.*\nfirst\nmy last word"):
        await _watch(work)


def test_the_daemons_see_nothing_of_the_users_own_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GROUPFLOW_WORKERS__GROUPED", "1")
    monkeypatch.setenv("GROUPFLOW_REDIS__URL", "redis://elsewhere/")
    mine = Servers("amqp://here/", "redis://here/", "name").environment()
    assert mine["GROUPFLOW_REDIS__URL"] == "redis://here/"
    assert mine["GROUPFLOW_RABBITMQ__QUEUE"] == mine["GROUPFLOW_REDIS__NAMESPACE"] == "name"
    assert "GROUPFLOW_WORKERS__GROUPED" not in mine
    assert "PATH" in mine
