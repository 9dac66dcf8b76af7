"""What is shown: the live picture, the lines, and the summary at the end."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from groupflow.demo.compare import TableComparison
from groupflow.demo.history import Attempt, judge
from groupflow.demo.progress import Progress, Snapshot
from groupflow.demo.screen import LineScreen, LiveScreen, line, picture, screen_for, step
from groupflow.demo.summary import Result, duration, print_intro, print_summary
from groupflow.demo.tasks import ImportTask, load_tasks


@pytest.fixture(scope="module")
def tasks() -> list[ImportTask]:
    return load_tasks()


def _console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=100, height=40), text


def _handled(tasks: list[ImportTask]) -> list[Attempt]:
    """One after another, a tenth of a second each."""
    return [
        Attempt(task.number, task.group, 11 + task.number % 2, n / 10, (n + 1) / 10, None)
        for n, task in enumerate(tasks)
    ]


def _snapshot(tasks: list[ImportTask], handled: int) -> Snapshot:
    progress = Progress(tasks, {11: "demo-1", 12: "demo-2"}, published=2000)
    progress.attempts += _handled(tasks[:handled])
    return progress.snapshot(now=handled / 10)


def test_a_snapshot_counts(tasks: list[ImportTask]) -> None:
    snapshot = _snapshot(tasks, 1000)
    assert (snapshot.handled, snapshot.total, snapshot.published) == (1000, 3095, 2000)
    assert snapshot.daemons == {"demo-1": 500, "demo-2": 500}
    assert snapshot.rate == pytest.approx(10, abs=1)
    assert sum(tenant.handled for tenant in snapshot.tenants) == 1000
    assert {tenant.code: tenant.groups for tenant in snapshot.tenants}["LGA"] == 0
    assert not snapshot.complete
    assert _snapshot(tasks, 3095).complete


def test_a_snapshot_before_the_first_task(tasks: list[ImportTask]) -> None:
    snapshot = _snapshot(tasks, 0)
    assert (snapshot.handled, snapshot.elapsed, snapshot.groups_running) == (0, 0, 0)


def test_the_picture_names_tenants_daemons_and_counts(tasks: list[ImportTask]) -> None:
    console, text = _console(terminal=False)
    console.print(picture(_snapshot(tasks, 1000)))
    for word in ("JetBlue Airways", "40 groups", "Newark weather", "plain", "demo-2 500", "1,000"):
        assert word in text.getvalue()


def test_a_failure_is_shown_at_once(tasks: list[ImportTask]) -> None:
    failed = replace(_snapshot(tasks, 1000), failed=3)
    console, text = _console(terminal=False)
    console.print(picture(failed))
    assert "3 failed" in text.getvalue()
    assert "3 FAILED" in line(failed)


def test_without_a_terminal_there_is_a_line_a_second(tasks: list[ImportTask]) -> None:
    console, text = _console(terminal=False)
    with screen_for(console) as screen:
        assert isinstance(screen, LineScreen)
        for handled in (1000, 1010, 3095, 3095):
            screen.show(_snapshot(tasks, handled))
    first, last = text.getvalue().splitlines()
    assert "1,000 of 3,095 imported" in first
    assert "3,095 of 3,095 imported" in last
    assert "\x1b" not in text.getvalue()


def test_on_a_terminal_the_last_picture_stays(tasks: list[ImportTask]) -> None:
    console, text = _console(terminal=True)
    with screen_for(console) as screen:
        assert isinstance(screen, LiveScreen)
        screen.show(_snapshot(tasks, 1000))
        screen.show(_snapshot(tasks, 3095))
    assert "all imported" in text.getvalue()


def test_a_step_is_ticked_when_it_is_done() -> None:
    console, text = _console(terminal=False)
    with step(console, "Starting a thing"):
        assert text.getvalue() == ""
    assert text.getvalue().startswith("✓ Starting a thing 0.0 s")


def test_the_introduction_counts(tasks: list[ImportTask]) -> None:
    console, text = _console(terminal=False)
    print_intro(console, tasks)
    assert "3,095 import tasks for 9 tenants: 2,381 in 240 groups, 714 plain" in text.getvalue()
    assert max(map(len, text.getvalue().splitlines())) <= 80


def _result(tasks: list[ImportTask], attempts: list[Attempt]) -> Result:
    return Result(
        tasks=tasks,
        daemons=2,
        verdict=judge(tasks, attempts),
        tables=[TableComparison("planes", 240, 0, ())],
        serial_seconds=3000,
        ungrouped_failed=226,
        ungrouped_wrong=2268,
    )


def _summary(result: Result) -> str:
    console, text = _console(terminal=False)
    print_summary(console, result)
    return text.getvalue()


def test_the_summary_of_a_good_run(tasks: list[ImportTask]) -> None:
    result = _result(tasks, _handled(tasks))
    assert result.equal
    text = _summary(result)
    for words in (
        "3,095 import tasks by 2 daemons",
        "10 times as fast",
        "0 tasks out of order",
        "0 lost, 0 run twice, 0 failed",
        "planes 240 rows: 0 differ",
        "Equal to a serial import",
    ):
        assert words in text
    assert "NOT" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_summary_names_what_went_wrong(tasks: list[ImportTask]) -> None:
    attempts = _handled(tasks)
    wrong = TableComparison("planes", 240, 7, ("planes UA/N1: legs is 1 instead of [2]",))
    result = replace(
        _result(tasks, [*attempts[:-1], attempts[0]]), tables=[wrong], stopped="Gave up."
    )
    assert not result.equal
    text = _summary(result)
    for words in (
        "Gave up.",
        "1 lost, 1 run twice",
        "      lost: task 3094",
        "      run twice: task 0",
        "7 differ",
        "legs is 1 instead of [2]",
        "NOT equal",
    ):
        assert words in text


@pytest.mark.parametrize("fault", ["tables", "stopped", "verdict"])
def test_any_fault_is_a_failure(tasks: list[ImportTask], fault: str) -> None:
    good = _result(tasks, _handled(tasks))
    bad = {
        "tables": [TableComparison("planes", 240, 1, ("x",))],
        "stopped": "Gave up.",
        "verdict": judge(tasks, []),
    }
    assert not replace(good, **{fault: bad[fault]}).equal  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "text"), [(5.44, "5.4 s"), (60, "1 min 0 s"), (230.4, "3 min 50 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
