"""The checker sees what it is there to see: one bad history a case, and a good one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.history.events import Event, History, Journal, State, Totals
from tests.history.invariants import check

GOOD: dict[str, State] = {"a1": "done", "a2": "done", "p1": "dead"}
TOTALS = Totals(taken=3, queued=0, running=0, done=2, dead=1)


def _published() -> list[Event]:
    return [
        Event("published", "a1", 1.0, group="a", tenant="42", n=1),
        Event("published", "a2", 1.1, group="a", tenant="42", n=2),
        Event("published", "p1", 1.2, tenant="42", n=1),
    ]


def _run(  # the facts of one attempt, with those that rarely matter filled in
    id_: str,
    fence: int,
    start: float,
    end: float | None,
    *,
    how: str = "done",
    crashes: int = 0,
    attempt: int = 1,
) -> list[Event]:
    """An attempt at one of the published tasks; `end` is ``None`` where nobody saw it."""
    was = next(event for event in _published() if event.id == id_)
    began = replace(
        was,
        kind="start",
        at=start,
        fence=fence,
        crashes=crashes,
        attempt=attempt,
        enqueued_at=was.at,
    )
    return [began] if end is None else [began, replace(began, kind="end", at=end, how=how)]


def _settle(id_: str, fence: int, at: float, how: str = "accepted") -> Event:
    return Event("settle", id_, at, fence=fence, how=how)


def _good_runs() -> list[Event]:
    return [
        *_run("a1", 1, 2.0, 3.0),
        _settle("a1", 1, 3.1),
        *_run("a2", 2, 3.5, 4.0),
        _settle("a2", 2, 4.1),
        *_run("p1", 3, 2.1, 2.2, how="failed"),
        _settle("p1", 3, 2.3),
    ]


def _history(*runs: Event, **facts: object) -> History:
    whole = {"states": GOOD, "totals": TOTALS, "with_faults": False} | facts
    return History([*_published(), *runs], **whole)  # type: ignore[arg-type]


def _seen(history: History) -> set[str]:
    return {violation.invariant for violation in check(history)}


def test_good_history_passes() -> None:
    """A history without a fault has no violation."""
    assert check(_history(*_good_runs())) == []


def test_crash_and_retry_pass() -> None:
    """A crash, a retry, a hand-back, and the ghost of a lost lease are no violations."""
    history = _history(
        *_run("a1", 1, 2.0, None),
        *_run("a1", 2, 4.0, 5.0, crashes=1, how="failed"),
        *_run("a1", 3, 6.0, 7.0, crashes=1, attempt=2, how="cut"),
        *_run("a1", 4, 8.0, 20.0, crashes=1, attempt=2, how="cut"),
        *_run("a1", 5, 9.0, 9.5, crashes=2, attempt=2),
        *_run("a2", 6, 10.0, 11.0),
        *_run("p1", 7, 2.1, 2.2, how="failed"),
        with_faults=True,
    )
    assert check(history) == []


def test_duplicate_publish_passes() -> None:
    """An id that is published twice is one task."""
    again = replace(_published()[0], at=5.0)
    assert check(_history(*_good_runs(), again)) == []


@pytest.mark.parametrize("state", ["waiting", "running"])
def test_s1_task_that_never_ends(state: State) -> None:
    """S1: a confirmed publish that is neither done nor dead."""
    assert "S1" in _seen(_history(*_good_runs(), states={**GOOD, "a2": state}))


@pytest.mark.parametrize("how", ["failed", "cut", None])
def test_s1_task_that_is_done_and_never_was(how: str | None) -> None:
    """S1: a task counts as done though none of its attempts came to a good end."""
    end = None if how is None else 4.0
    runs = [*_run("a1", 1, 2.0, 3.0), *_run("a2", 2, 3.5, end, how=how or "done")]
    assert _seen(_history(*runs)) == {"S1"}


def test_s1_task_that_is_lost() -> None:
    """S1: a confirmed publish that nobody knows."""
    states = {id_: state for id_, state in GOOD.items() if id_ != "a2"}
    assert {"S1", "S2"} <= _seen(_history(*_good_runs(), states=states))


def test_s2_acked_and_unknown() -> None:
    """S2: RabbitMQ has let go of a message that the store never got."""
    states = {id_: state for id_, state in GOOD.items() if id_ != "p1"}
    assert "S2" in _seen(_history(*_good_runs(), states=states, left_in_queue=0))
    assert "S2" not in _seen(_history(*_good_runs(), states=states, left_in_queue=1))


def test_s3_claim_settled_twice() -> None:
    """S3: one claim, two accepted settles."""
    assert "S3" in _seen(_history(*_good_runs(), _settle("a2", 2, 5.0)))


def test_s3_refused_repeat_passes() -> None:
    """S3 is about accepted settles only."""
    assert check(_history(*_good_runs(), _settle("a2", 2, 5.0, "refused"))) == []


def test_s3_stale_fence_accepted() -> None:
    """S3: a zombie's settle is accepted after its task was claimed anew."""
    zombie = [
        *_run("a1", 1, 2.0, None),
        *_run("a1", 2, 3.0, 3.4, crashes=1),
        _settle("a1", 1, 3.3),
    ]
    assert _seen(_history(*zombie, with_faults=True)) == {"S3"}


def test_s3_fence_of_two() -> None:
    """S3: two claims under one fence."""
    assert "S3" in _seen(_history(*_run("a1", 5, 2.0, 3.0), *_run("p1", 5, 2.0, 3.0)))


def test_s3_fences_that_fall() -> None:
    """S3: a later claim with a smaller fence."""
    runs = [*_run("a1", 5, 2.0, None), *_run("a1", 4, 3.0, 3.5, crashes=1)]
    assert "S3" in _seen(_history(*runs, with_faults=True))


def test_s4_out_of_order() -> None:
    """S4: the second runs first."""
    runs = [*_run("a2", 1, 2.0, 3.0), *_run("a1", 2, 4.0, 5.0)]
    assert _seen(_history(*runs)) == {"S4"}


def test_s4_overlap() -> None:
    """S4: the second starts before the first has ended."""
    runs = [*_run("a1", 1, 2.0, 3.0), *_run("a2", 2, 2.9, 4.0)]
    assert _seen(_history(*runs)) == {"S4"}


def test_s4_overlap_seen_over_others() -> None:
    """S4: an overlap shows even where the neighbours in time don't overlap."""
    runs = [
        *_run("a1", 1, 2.0, 9.0, how="cut"),
        *_run("a1", 2, 10.0, 10.1),
        *_run("a2", 3, 4.0, 4.5),
    ]
    assert "S4" in _seen(_history(*runs))


def test_s4_ghost_is_no_excuse_for_others() -> None:
    """S4: a lost lease excuses the same task's new run, not another's."""
    runs = [*_run("a1", 1, 2.0, 9.0), *_run("a2", 2, 3.0, 4.0, crashes=1)]
    assert "S4" in _seen(_history(*runs, with_faults=True))


def test_s4_end_unseen() -> None:
    """S4: the first never ended, and the second runs all the same."""
    runs = [*_run("a1", 1, 2.0, None), *_run("a2", 2, 3.0, 4.0)]
    assert "S4" in _seen(_history(*runs))


def test_s4_kill_is_an_end() -> None:
    """What a killed daemon ran has ended, but not what another one ran."""
    runs = [*_run("a1", 1, 2.0, None), *_run("a2", 2, 4.0, 5.0)]
    runs[0] = replace(runs[0], pid=7)
    states: dict[str, State] = {**GOOD, "a1": "dead"}
    history = _history(*runs, Event("killed", "", 3.0, pid=7), states=states, with_faults=True)
    assert check(history) == []
    assert "S4" in _seen(_history(*runs, Event("killed", "", 3.0, pid=8), with_faults=True))


def test_s4_retry_loses_its_place() -> None:
    """S4: a retry of the first runs behind the second."""
    runs = [
        *_run("a1", 1, 2.0, 3.0, how="failed"),
        *_run("a2", 2, 4.0, 5.0),
        *_run("a1", 3, 6.0, 7.0, attempt=2),
    ]
    assert _seen(_history(*runs)) == {"S4"}


def _passed(**first: int) -> list[Event]:
    """The first runs behind the second, which had lost its lease by then."""
    return [
        *_run("a1", 1, 2.0, 3.0, how="failed"),
        *_run("a2", 2, 4.0, 9.0),
        *_run("a1", 3, 6.0, 7.0, **first),  # type: ignore[arg-type]
        *_run("a2", 4, 8.0, 8.5, crashes=1),
        *_run("p1", 5, 2.1, 2.2, how="failed"),
    ]


def test_s4_what_steps_aside_is_passed() -> None:
    """A task that waits for its retry is passed where its rule says so, and nowhere else."""
    runs = _passed(attempt=2)
    assert check(_history(*runs, aside={"a"}, with_faults=True)) == []
    assert _seen(_history(*runs, with_faults=True)) == {"S4"}
    beside = [*runs[:6], *runs[8:]]  # the second never lost its lease
    assert _seen(_history(*beside, aside={"a"}, with_faults=True)) == {"S4"}


def test_a_redriven_task_is_passed_and_runs_again() -> None:
    """A dead letter has been passed, and begins anew once somebody redrives it, and not before."""
    runs = _passed()
    assert check(_history(*runs, redriven={"a1": [5.0]}, with_faults=True)) == []
    assert _seen(_history(*runs, redriven={"a1": [7.5]}, with_faults=True)) == {"S4", "S5"}


def test_s5_runs_again_for_no_reason() -> None:
    """S5: done, and run once more."""
    runs = [*_run("p1", 1, 2.0, 3.0), *_run("p1", 2, 4.0, 5.0)]
    assert _seen(_history(*runs)) == {"S5"}
    assert _seen(_history(*runs, with_faults=True)) == {"S5"}


def test_s5_crash_in_a_run_without_faults() -> None:
    """S5: nobody crashed, and yet a crash is counted."""
    assert "S5" in _seen(_history(*_run("p1", 1, 2.0, 3.0, crashes=1)))


def _forgotten() -> tuple[list[Event], list[Event]]:
    """A server forgets the settle of a1, and all of a2; how the two began, and then began again."""
    first = [*_run("a1", 1, 2.0, 3.0), *_run("a2", 2, 3.5, 4.0)]
    again = [
        *_run("a1", 8, 6.0, 6.5),
        *_run("a2", 9, 7.0, 7.5),
        *_run("p1", 3, 2.1, 2.2, how="failed"),
    ]
    return first, again


def _starts(events: list[Event]) -> frozenset[Event]:
    return frozenset(event for event in events if event.kind == "start")


def test_what_a_server_forgot_is_run_again() -> None:
    """In order, one at a time, and never under the fence that it had."""
    first, again = _forgotten()
    assert _seen(_history(*first, *again)) == {"S4", "S5"}
    assert check(_history(*first, *again, undone=_starts(first))) == []
    same = _run("a1", 1, 6.0, 6.5)
    assert _seen(_history(*first, *same, *again[2:], undone=_starts(first))) == {"S3"}


def test_what_it_took_in_and_forgot_is_taken_in_again() -> None:
    first, again = _forgotten()
    later = [replace(e, enqueued_at=5.0) if e.id == "a2" else e for e in again]
    assert check(_history(*first, *later, undone=_starts(first))) == []
    assert "S6" in _seen(_history(*first, *later, undone=_starts(first[:2])))


def test_what_it_forgot_excuses_nothing_else() -> None:
    """Neither an overlap, nor the order or a third run of what it knew."""
    first, again = _forgotten()
    undone = _starts(first)
    early = [replace(e, at=3.7) if e.kind == "start" and e.id == "a1" else e for e in again]
    assert _seen(_history(*first, *early, undone=undone)) == {"S4"}
    assert _seen(_history(*first, *again, undone=_starts(first[2:]))) == {"S4", "S5"}
    third = _run("a2", 10, 8.0, 8.5)
    assert _seen(_history(*first, *again, *third, undone=undone)) == {"S5"}
    stranger = [replace(e, fence=1) for e in _run("p1", 3, 5.0, 5.1, how="failed")]
    assert "S3" in _seen(_history(*first, *again[:-2], *stranger, undone=undone))


def test_what_a_daemon_gave_back_runs_again() -> None:
    """Under another fence, and before the next of its group."""
    first, second = _run("a1", 1, 2.0, 3.0), _run("a1", 4, 3.1, 3.2)
    rest = [*_run("a2", 5, 3.5, 4.0), *_run("p1", 3, 2.1, 2.2, how="failed")]
    assert _seen(_history(*first, *second, *rest)) == {"S5"}
    assert check(_history(*first, *second, *rest, given_back=_starts(first))) == []
    late = _run("a1", 6, 5.0, 5.1)
    assert _seen(_history(*first, *rest, *late, given_back=_starts(first))) == {"S4"}


def test_s6_one_id_two_tasks() -> None:
    """S6: one id was taken in twice."""
    runs = _run("p1", 1, 2.0, 3.0)
    again = [replace(event, fence=2, at=event.at + 2, enqueued_at=9.0) for event in runs]
    assert "S6" in _seen(_history(*runs, *again))
    assert "S6" in _seen(_history(*_good_runs(), totals=replace(TOTALS, taken=4, done=3)))


def test_s7_totals_do_not_add_up() -> None:
    """S7: one task is missing from the sum."""
    assert _seen(_history(*_good_runs(), totals=replace(TOTALS, done=1))) == {"S7"}


def test_s8_group_that_stands() -> None:
    """S8: tasks wait in a group that nobody runs."""
    assert "S8" in _seen(_history(*_good_runs(), states={**GOOD, "a2": "waiting"}))
    running: dict[str, State] = {**GOOD, "a1": "running", "a2": "waiting"}
    assert "S8" not in _seen(_history(*_good_runs(), states=running))


@pytest.mark.parametrize("wrong", [{"group": "b"}, {"tenant": "43"}, {"n": 7}])
def test_s9_runs_as_somebody_elses(wrong: dict[str, str]) -> None:
    """S9: a task's group, tenant or body is another one's."""
    runs = [replace(event, **wrong) for event in _run("a1", 1, 2.0, 3.0)]  # type: ignore[arg-type]
    assert "S9" in _seen(_history(*runs))


def test_journal_reads_what_was_written(tmp_path: Path) -> None:
    """Events survive the way through the file, whatever is in their names."""
    journal = Journal(tmp_path / "history.jsonl")
    assert journal.read() == []
    events = [replace(event, group="a\u2028|||{b}\n") for event in _good_runs()]
    for event in events:
        journal.write(event)
    assert journal.read() == events


def _repeated_run(*, crashes: int = 1) -> History:
    """Two tasks of a run are done and not settled when their daemon dies; both run again."""
    events = [
        *_published(),
        *_run("a1", 1, 2.0, 2.5),
        *_run("a2", 2, 2.6, None),
        *_run("a1", 3, 4.0, 4.5, crashes=crashes),
        *_run("a2", 4, 4.6, 4.9),
    ]
    return History(events, states={"a1": "done", "a2": "done", "p1": "dead"}, runs={"a": 2})


def test_a_crash_repeats_a_run() -> None:
    assert check(_repeated_run()) == []


def test_without_a_run_it_repeats_one_task() -> None:
    found = {each.invariant for each in check(replace(_repeated_run(), runs={}))}
    assert found == {"S4", "S5"}


def test_a_run_is_not_repeated_for_no_reason() -> None:
    assert {each.invariant for each in check(_repeated_run(crashes=0))} == {"S4", "S5"}


def test_claims_that_are_given_back_repeat_a_run() -> None:
    """As those do that a server forgot; nothing has crashed there."""
    history = _repeated_run(crashes=0)
    first = next(event for event in history.events if (event.kind, event.fence) == ("start", 1))
    assert check(replace(history, given_back={first})) == []
