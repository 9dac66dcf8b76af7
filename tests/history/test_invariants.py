"""The checker sees what it is there to see: bad histories, one a case, and good ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.history.events import Event, History, Journal, State
from tests.history.invariants import check

GOOD: dict[str, State] = {"a1": "done", "a2": "done", "p1": "dead"}
PUBLISHED = {
    "a1": Event("published", "a1", 1.0, group="a", tenant="42", n=1),
    "a2": Event("published", "a2", 1.1, group="a", tenant="42", n=2),
    "p1": Event("published", "p1", 1.2, tenant="42", n=1),
}
FAULTS: dict[str, Any] = {"with_faults": True}


def run(id_: str, fence: int, start: float, end: float | None, **facts: Any) -> list[Event]:
    """An attempt at one of the published tasks; `end` is ``None`` where no process saw it."""
    how, was = facts.pop("how", "done"), PUBLISHED[id_]
    began = replace(was, kind="start", at=start, fence=fence, enqueued_at=was.at, **facts)
    return [began] if end is None else [began, replace(began, kind="end", at=end, how=how)]


def settle(id_: str, fence: int, at: float, how: str = "accepted") -> Event:
    return Event("settle", id_, at, fence=fence, how=how)


def of(*runs: Event, **facts: Any) -> History:
    whole: dict[str, Any] = {"states": GOOD, "taken": 3, "with_faults": False} | facts
    return History([*PUBLISHED.values(), *runs], **whole)


def starts(events: list[Event]) -> frozenset[Event]:
    return frozenset(event for event in events if event.kind == "start")


def but(id_: str) -> dict[str, State]:
    """The states of a good history, without a task."""
    return {name: state for name, state in GOOD.items() if name != id_}


def passed(**first: Any) -> list[Event]:
    """The first runs behind the second, which had lost its lease by then."""
    runs = [*run("a1", 1, 2.0, 3.0, how="failed"), *run("a2", 2, 4.0, 9.0)]
    runs += [*run("a1", 3, 6.0, 7.0, **first), *run("a2", 4, 8.0, 8.5, crashes=1)]
    return [*runs, *run("p1", 5, 2.1, 2.2, how="failed")]


P1 = run("p1", 3, 2.1, 2.2, how="failed")
# A dead letter is redriven, and begins in front of a task that may have lost its claim.
REDRIVEN = [*run("a1", 1, 2.0, 3.0, how="failed"), *run("a1", 4, 6.0, 7.0), *P1]
LATE = {"redriven": {"a1": [5.0]}, "states": {**GOOD, "a2": "dropped"}, **FAULTS}
ENDED = [*run("a1", 1, 2.0, 3.0), settle("a1", 1, 3.1), *run("a2", 2, 3.5, 4.0)]
SOUND = [*ENDED, settle("a2", 2, 4.1), *P1, settle("p1", 3, 2.3)]
# A server forgets the settle of a1, and all of a2; how the two began, and then began again.
FIRST = [*run("a1", 1, 2.0, 3.0), *run("a2", 2, 3.5, 4.0)]
SECOND = [*run("a1", 8, 6.0, 6.5), *run("a2", 9, 7.0, 7.5), *P1]
UNDONE = {"undone": starts(FIRST)}
GIVEN, BACK = run("a1", 1, 2.0, 3.0), run("a1", 4, 3.1, 3.2)
REST = [*run("a2", 5, 3.5, 4.0), *P1]
ONCE = run("p1", 1, 2.0, 3.0)
KILLED = [replace(run("a1", 1, 2.0, None)[0], pid=7), *run("a2", 2, 4.0, 5.0)]
ZOMBIE = [*run("a1", 1, 2.0, None), *run("a1", 2, 3.0, 3.4, crashes=1), settle("a1", 1, 3.3)]
# What a case is about; the invariants that it breaks; the history.
CASES: list[tuple[str, str, History]] = [
    ("no fault", "", of(*SOUND)),
    ("a crash, a retry, a hand-back, the ghost of a lost lease", "", of(
        *run("a1", 1, 2.0, None),
        *run("a1", 2, 4.0, 5.0, crashes=1, how="failed"),
        *run("a1", 3, 6.0, 7.0, crashes=1, attempt=2, how="cut"),
        *run("a1", 4, 8.0, 20.0, crashes=1, attempt=2, how="cut"),
        *run("a1", 5, 9.0, 9.5, crashes=2, attempt=2),
        *run("a2", 6, 10.0, 11.0),
        *run("p1", 7, 2.1, 2.2, how="failed"), **FAULTS)),
    ("published twice, one task", "", of(*SOUND, replace(PUBLISHED["a1"], at=5.0))),
    ("a task waits for ever", "S1", of(*SOUND, states={**GOOD, "a2": "waiting"})),
    ("a task runs for ever", "S1", of(*SOUND, states={**GOOD, "a2": "running"})),
    ("done, and it failed", "S1", of(*FIRST[:2], *run("a2", 2, 3.5, 4.0, how="failed"))),
    ("done, and it was cut", "S1", of(*FIRST[:2], *run("a2", 2, 3.5, 4.0, how="cut"))),
    ("done, and no process saw an end", "S1", of(*FIRST[:2], *run("a2", 2, 3.5, None))),
    ("a confirmed publish that no store knows", "S1 S2", of(*SOUND, states=but("a2"))),
    ("let go by RabbitMQ, and never got", "S1 S2", of(*SOUND, states=but("p1"), left_in_queue=0)),
    ("RabbitMQ has it still", "S1", of(*SOUND, states=but("p1"), left_in_queue=1)),
    ("one claim, two accepted settles", "S3", of(*SOUND, settle("a2", 2, 5.0))),
    ("the second is refused", "", of(*SOUND, settle("a2", 2, 5.0, "refused"))),
    ("a zombie's settle is accepted", "S3", of(*ZOMBIE, **FAULTS)),
    ("two claims under one fence", "S3", of(*run("a1", 5, 2.0, 3.0), *run("p1", 5, 2.0, 3.0))),
    ("fences that fall", "S3 S4", of(
        *run("a1", 5, 2.0, None), *run("a1", 4, 3.0, 3.5, crashes=1), **FAULTS)),
    ("the second runs first", "S4", of(*run("a2", 1, 2.0, 3.0), *run("a1", 2, 4.0, 5.0))),
    ("an overlap", "S4", of(*run("a1", 1, 2.0, 3.0), *run("a2", 2, 2.9, 4.0))),
    ("an overlap, though not of neighbours in time", "S4", of(
        *run("a1", 1, 2.0, 9.0, how="cut"), *run("a1", 2, 10.0, 10.1), *run("a2", 3, 4.0, 4.5))),
    ("a ghost excuses its own task's new run alone", "S4", of(
        *run("a1", 1, 2.0, 9.0), *run("a2", 2, 3.0, 4.0, crashes=1), **FAULTS)),
    ("the first never ended", "S1 S4", of(*run("a1", 1, 2.0, None), *run("a2", 2, 3.0, 4.0))),
    ("what a killed daemon ran has ended", "", of(
        *KILLED, Event("killed", "", 3.0, pid=7), states={**GOOD, "a1": "dead"}, **FAULTS)),
    ("what another one ran has not", "S1 S4", of(
        *KILLED, Event("killed", "", 3.0, pid=8), **FAULTS)),
    ("a retry loses its place", "S4", of(
        *run("a1", 1, 2.0, 3.0, how="failed"), *run("a2", 2, 4.0, 5.0),
        *run("a1", 3, 6.0, 7.0, attempt=2))),
    ("what waits for its retry is passed by its rule", "", of(
        *passed(attempt=2), aside={"a"}, **FAULTS)),
    ("and by no other", "S4", of(*passed(attempt=2), **FAULTS)),
    ("but by one that never lost its lease", "S4", of(
        *passed(attempt=2)[:6], *passed()[8:], aside={"a"}, **FAULTS)),
    ("a dead letter is passed, and begins again", "", of(
        *passed(), redriven={"a1": [5.0]}, **FAULTS)),
    ("and not before it is redriven", "S4 S5", of(*passed(), redriven={"a1": [7.5]}, **FAULTS)),
    ("its group's ghost is dropped before it is seen again", "", of(
        *REDRIVEN, *run("a2", 2, 4.0, None), **LATE)),
    ("no ghost: it ended after the other began", "S4", of(
        *REDRIVEN, *run("a2", 2, 4.0, 9.0, how="failed"), **LATE)),
    ("run again for no reason", "S5", of(*ONCE, *run("p1", 2, 4.0, 5.0))),
    ("for no reason beside faults", "S5", of(*ONCE, *run("p1", 2, 4.0, 5.0), **FAULTS)),
    ("a crash in a run without any", "S5", of(*run("p1", 1, 2.0, 3.0, crashes=1))),
    ("what no server forgot runs again", "S4 S5", of(*FIRST, *SECOND)),
    ("what a server forgot runs again", "", of(*FIRST, *SECOND, **UNDONE)),
    ("under the fence that it had", "S3", of(
        *FIRST, *run("a1", 1, 6.0, 6.5), *SECOND[2:], **UNDONE)),
    ("what it forgot is taken in again", "", of(
        *FIRST, *[replace(e, enqueued_at=5.0) if e.id == "a2" else e for e in SECOND], **UNDONE)),
    ("what it knew is taken in again", "S5 S6", of(
        *FIRST, *[replace(e, enqueued_at=5.0) if e.id == "a2" else e for e in SECOND],
        undone=starts(FIRST[:2]))),
    ("it excuses no overlap", "S4", of(
        *FIRST, *run("a1", 8, 3.7, 6.5), *SECOND[2:], **UNDONE)),
    ("nor the order of what it knew", "S4 S5", of(*FIRST, *SECOND, undone=starts(FIRST[2:]))),
    ("nor a third run", "S5", of(*FIRST, *SECOND, *run("a2", 10, 8.0, 8.5), **UNDONE)),
    ("nor a fence of another task", "S3", of(
        *FIRST, *SECOND[:-2], *run("p1", 1, 5.0, 5.1, how="failed"), **UNDONE)),
    ("runs again before the next", "S5", of(*GIVEN, *BACK, *REST)),
    ("given back by its daemon, it may", "", of(*GIVEN, *BACK, *REST, given_back=starts(GIVEN))),
    ("and not behind the next", "S4", of(
        *GIVEN, *REST, *run("a1", 6, 5.0, 5.1), given_back=starts(GIVEN))),
    ("one id, two tasks", "S5 S6", of(
        *ONCE, *[replace(e, fence=2, at=e.at + 2, enqueued_at=9.0) for e in ONCE])),
    ("one more was taken in", "S6", of(*SOUND, taken=4)),
    *[(f"it runs as another's: {wrong}", "S9", of(
        *[replace(e, **wrong) for e in run("a1", 1, 2.0, 3.0)])) for wrong in (
        {"group": "b"}, {"tenant": "43"}, {"n": 7})],
]  # fmt: skip


def seen(history: History) -> set[str]:
    return {violation.invariant for violation in check(history)}


@pytest.mark.parametrize(
    ("found", "history"), [each[1:] for each in CASES], ids=[c[0] for c in CASES]
)
def test_it_sees_what_is_broken_and_nothing_else(found: str, history: History) -> None:
    """As far as the case is about it: tasks that have no run here are not done either."""
    assert {*found.split()} == seen(history)


def repeated(*, crashes: int = 1) -> History:
    """Two tasks of a run are done and not settled when their daemon dies; both run again."""
    events = [*PUBLISHED.values(), *run("a1", 1, 2.0, 2.5), *run("a2", 2, 2.6, None)]
    events += [*run("a1", 3, 4.0, 4.5, crashes=crashes), *run("a2", 4, 4.6, 4.9)]
    return History(events, states=GOOD, runs={"a": 2})


def test_a_crash_repeats_a_run() -> None:
    """Of so many tasks as its rule says; so does a claim that is given back, and nothing else."""
    assert seen(repeated()) == set()
    assert seen(replace(repeated(), runs={})) == {"S4", "S5"}
    history = repeated(crashes=0)
    assert seen(history) == {"S4", "S5"}
    first = next(event for event in history.events if (event.kind, event.fence) == ("start", 1))
    assert seen(replace(history, given_back={first})) == set()


def test_journal_reads_what_was_written(tmp_path: Path) -> None:
    """Events survive the way through the file, with any names."""
    journal = Journal(tmp_path / "history.jsonl")
    assert journal.read() == []
    events = [replace(event, group="a\u2028|||{b}\n") for event in SOUND]
    for event in events:
        journal.write(event)
    assert journal.read() == events
