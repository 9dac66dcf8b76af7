"""What is shown: the live picture, the lines, and the summary at the end."""

import io
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from groupflow.demo.rows import ImportTask, load_tasks, open_database
from groupflow.demo.screen import (
    ImportProgress,
    Screen,
    duration,
    print_summary,
    read_state,
)
from groupflow.demo.verdict import DemoFindings


@pytest.fixture(scope="module")
def tasks() -> list[ImportTask]:
    return load_tasks()


def _console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=100, height=40), text


def _state(path: Path, tasks: list[ImportTask], handled: int) -> ImportProgress:
    """As if the tasks had been handled one after another, a tenth of a second each."""
    with closing(open_database(path / f"{handled}.db", tasks)) as db:
        db.executemany(
            "INSERT INTO attempts VALUES (?, ?, ?, 0, ?, ?, NULL)",
            [
                (task.number, task.group, f"demo-{1 + n % 2}", n / 10, (n + 1) / 10)
                for n, task in enumerate(tasks[:handled])
            ],
        )
        return read_state(db, now=handled / 10)


def test_a_state_counts(tasks: list[ImportTask], tmp_path: Path) -> None:
    state = _state(tmp_path, tasks, 1000)
    assert (state.handled, state.total, state.failed) == (1000, 3095, 0)
    assert state.elapsed == 100
    assert state.rate == pytest.approx(10, abs=1)
    assert state.daemons == {"demo-1": 500, "demo-2": 500}
    groups, handled, total = state.tenants["B6"]
    assert groups == 40
    assert 0 < handled < total
    assert state.tenants["LGA"][0] == 0
    nothing = _state(tmp_path, tasks, 0)
    assert (nothing.handled, nothing.elapsed, nothing.groups_running) == (0, 0, 0)


def test_without_a_terminal_there_is_a_line_a_second(
    tasks: list[ImportTask], tmp_path: Path
) -> None:
    console, text = _console(terminal=False)
    screen = Screen(console)
    failed = _state(tmp_path, tasks, 1010)._replace(failed=3)
    with screen.open():
        screen.show(_state(tmp_path, tasks, 0), 2000)
        screen._last = 0.0
        screen.show(failed, 3095)
        screen.show(failed, 3095, "[red]killed[/]")
        screen.show(failed, 3095, "[red]killed[/]")
        screen.show(_state(tmp_path, tasks, 3095), 3095, "[red]killed[/]")
    starting, first, killed, last = text.getvalue().splitlines()
    assert "published 2,000 of 3,095" in starting
    assert "1,010 of 3,095 imported" in first
    assert "(demo-1 505, demo-2 505)  3 FAILED" in first
    assert killed == "  killed"
    assert "3,095 of 3,095 imported" in last
    assert "\x1b" not in text.getvalue()


def test_on_a_terminal_the_last_picture_stays(tasks: list[ImportTask], tmp_path: Path) -> None:
    console, text = _console(terminal=True)
    screen = Screen(console)
    with screen.open():
        screen.show(_state(tmp_path, tasks, 0), 2000)
        screen.show(_state(tmp_path, tasks, 1000), 3095)
        text.truncate(0)
        screen.show(_state(tmp_path, tasks, 3095), 3095, "demo-2 killed")
    for word in ("JetBlue Airways", "40 groups", "plain", "demo-2 1,547", "3,095", "demo-2 killed"):
        assert word in text.getvalue()


GOOD = DemoFindings(
    checks={
        "order": {"tasks out of order": []},
        "delivery": {"lost": [], "run twice": [], "failed": []},
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


def _summary(verdict: DemoFindings, stopped: str) -> str:
    console, text = _console(terminal=False)
    print_summary(console, verdict, "demo-2", stopped)
    return text.getvalue()


def test_the_summary_names_what_went_wrong() -> None:
    delivery = {"lost": [3094], "run twice": [0, 1, 2, 3, 4, 5], "failed": [7]}
    wrong = replace(
        GOOD,
        checks=GOOD.checks | {"delivery": delivery},
        errors=["KeyError: [2]"],
        differences=["planes UA/N1 is [1], not [2]"],
    )
    text = _summary(wrong, "Gave up.")
    for words in (
        "Gave up.",
        "✗ delivery  1 lost, 6 run twice, 1 failed",
        "      lost: task 3094\n",
        "      run twice: task 0, 1, 2, 3, 4\n",
        "      KeyError: [2]",
        "✗ tables",
        "1 differ",
        "      planes UA/N1 is [1], not [2]",
        "NOT equal",
    ):
        assert words in text
    assert max(map(len, text.splitlines())) <= 80


def test_any_fault_is_a_failure() -> None:
    assert GOOD.equal
    assert not replace(GOOD, differences=["x"]).equal
    assert not replace(GOOD, checks={"order": {"tasks out of order": [1]}}).equal
    assert "NOT equal" in _summary(GOOD, "Gave up.")


@pytest.mark.parametrize(
    ("seconds", "text"), [(5.44, "5.4 s"), (60, "1 min 0 s"), (230.4, "3 min 50 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
