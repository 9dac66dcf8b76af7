"""The verdict on the handlers' log: each fault is seen, and nothing else is."""

from groupflow.demo.history import Attempt, Verdict, judge, peak_groups
from groupflow.demo.tasks import FLIGHTS, ImportTask


def _tasks(*groups: str | None) -> list[ImportTask]:
    return [ImportTask(n, FLIGHTS, "UA", group, b"{}") for n, group in enumerate(groups)]


def _ran(
    number: int, group: str | None, started: float, ended: float, error: str | None = None
) -> Attempt:
    return Attempt(number, group, 1, started, ended, error)


def _faults(verdict: Verdict) -> dict[str, list[int]]:
    names = ("lost", "repeated", "failed", "misrouted", "out_of_order", "overlapping")
    return {name: faults for name in names if (faults := getattr(verdict, name))}


def test_groups_side_by_side_and_back_to_back_are_faultless() -> None:
    verdict = judge(
        _tasks("a", "b", "a", None),
        [_ran(0, "a", 0, 1), _ran(2, "a", 1, 2), _ran(1, "b", 0.5, 3), _ran(3, None, 0, 4)],
    )
    assert verdict.faultless
    assert verdict.peak_groups == 2
    assert verdict.seconds == 4


def test_a_lost_task() -> None:
    verdict = judge(_tasks("a", "a"), [_ran(0, "a", 0, 1)])
    assert _faults(verdict) == {"lost": [1]}
    assert not verdict.faultless


def test_a_task_run_twice() -> None:
    verdict = judge(
        _tasks("a", None), [_ran(0, "a", 0, 1), _ran(1, None, 0, 1), _ran(1, None, 2, 3)]
    )
    assert _faults(verdict) == {"repeated": [1]}


def test_a_failure() -> None:
    assert _faults(judge(_tasks("a"), [_ran(0, "a", 0, 1, "no")])) == {"failed": [0]}


def test_a_wrong_group() -> None:
    assert _faults(judge(_tasks("a"), [_ran(0, None, 0, 1)])) == {"misrouted": [0]}


def test_tasks_that_should_be_a_group_but_ran_without() -> None:
    attempts = [_ran(1, None, 0, 2), _ran(0, None, 1, 3)]
    assert _faults(judge(_tasks("a", "a"), attempts)) == {
        "misrouted": [1, 0],
        "out_of_order": [0],
        "overlapping": [0],
    }


def test_out_of_order_within_a_group() -> None:
    verdict = judge(
        _tasks("a", "a", "b"), [_ran(1, "a", 0, 1), _ran(0, "a", 1, 2), _ran(2, "b", 0, 1)]
    )
    assert _faults(verdict) == {"out_of_order": [0]}


def test_overlapping_within_a_group() -> None:
    verdict = judge(_tasks("a", "a"), [_ran(0, "a", 0, 2), _ran(1, "a", 1, 3)])
    assert _faults(verdict) == {"overlapping": [1]}


def test_one_that_outlasts_several_overlaps_with_each() -> None:
    verdict = judge(
        _tasks("a", "a", "a"), [_ran(0, "a", 0, 9), _ran(1, "a", 1, 2), _ran(2, "a", 3, 4)]
    )
    assert _faults(verdict) == {"overlapping": [1, 2]}


def test_nothing_handled() -> None:
    verdict = judge(_tasks("a"), [])
    assert verdict.lost == [0]
    assert verdict.seconds == 0
    assert verdict.peak_groups == 0


def test_a_group_counts_once_at_its_peak() -> None:
    assert peak_groups([_ran(0, "a", 0, 2), _ran(1, "a", 1, 3), _ran(2, "b", 2.5, 3)]) == 2
