"""Judges the handlers' log: was anything lost, run twice, out of order, or two at once?"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from groupflow.demo.tasks import ImportTask


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a handler, as it logged it.

    Attributes:
        number: the task's place in the order of publishing.
        group: the group that groupflow ran it in, ``None`` for plain.
        pid: the daemon's process id.
        started: when the handler was called, seconds on the machine's monotonic clock.
        ended: when it had written, on the same clock.
        error: what it raised, ``None`` if it succeeded.
    """

    number: int
    group: str | None
    pid: int
    started: float
    ended: float
    error: str | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the log says; each list holds task numbers, and all of them are empty when all is well.

    Attributes:
        lost: never handled.
        repeated: handled more than once.
        failed: the handler raised.
        errors: what the handlers raised, in words, in the order it happened.
        misrouted: ran in another group than the configuration says.
        out_of_order: started after a task of the same group that was published later.
        overlapping: started while another task of the same group ran.
        peak_groups: the largest number of groups that had a task running at the same moment.
        seconds: from the first start to the last end.
    """

    lost: list[int]
    repeated: list[int]
    failed: list[int]
    errors: list[str]
    misrouted: list[int]
    out_of_order: list[int]
    overlapping: list[int]
    peak_groups: int
    seconds: float

    @property
    def faultless(self) -> bool:
        """Whether nothing at all went wrong."""
        return not (
            self.lost
            or self.repeated
            or self.failed
            or self.misrouted
            or self.out_of_order
            or self.overlapping
        )


def read_attempts(db: sqlite3.Connection, after: int = 0) -> list[Attempt]:
    """The attempts logged so far, in the order they were logged, without the first `after`."""
    # Nothing is ever deleted from the log, so the n-th row has rowid n.
    rows = db.execute(
        "SELECT number, task_group, pid, started, ended, error FROM attempts"
        " WHERE rowid > ? ORDER BY rowid",
        (after,),
    )
    return [Attempt(*row) for row in rows]


def judge(tasks: Sequence[ImportTask], attempts: Sequence[Attempt]) -> Verdict:
    """Hold the log against what was published."""
    times = Counter(attempt.number for attempt in attempts)
    groups = {task.number: task.group for task in tasks}
    by_group = _by_group(attempts, groups)
    return Verdict(
        lost=[task.number for task in tasks if task.number not in times],
        repeated=sorted(number for number, count in times.items() if count > 1),
        failed=[attempt.number for attempt in attempts if attempt.error is not None],
        errors=[attempt.error for attempt in attempts if attempt.error is not None],
        misrouted=[a.number for a in attempts if a.group != groups.get(a.number)],
        out_of_order=_out_of_order(by_group),
        overlapping=_overlapping(by_group),
        peak_groups=peak_groups(attempts),
        seconds=_span(attempts),
    )


def running_groups(attempts: Iterable[Attempt], moment: float) -> int:
    """How many groups had a task running at a moment (monotonic clock)."""
    return sum(1 for a in attempts if a.group is not None and a.started <= moment < a.ended)


def peak_groups(attempts: Iterable[Attempt]) -> int:
    """The largest number of groups that had a task running at the same moment."""
    changes = [(a.started, a.group, 1) for a in attempts if a.group is not None]
    changes += [(a.ended, a.group, -1) for a in attempts if a.group is not None]
    running: Counter[str] = Counter()
    peak = 0
    # At one moment, ends come before starts: two tasks back to back are not two at once.
    for _, group, change in sorted(changes, key=lambda change: (change[0], change[2])):
        running[group] += change
        if not running[group]:
            del running[group]
        peak = max(peak, len(running))
    return peak


def _by_group(attempts: Iterable[Attempt], groups: Mapping[int, str | None]) -> list[list[Attempt]]:
    """The attempts of each group as they started, by the group that each task *should* be in."""
    found: defaultdict[str, list[Attempt]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda attempt: attempt.started):
        group = groups.get(attempt.number)
        if group is not None:
            found[group].append(attempt)
    return list(found.values())


def _out_of_order(by_group: Iterable[Sequence[Attempt]]) -> list[int]:
    late = []
    for group in by_group:
        highest = -1
        for attempt in group:
            if attempt.number < highest:
                late.append(attempt.number)
            highest = max(highest, attempt.number)
    return late


def _overlapping(by_group: Iterable[Sequence[Attempt]]) -> list[int]:
    early = []
    for group in by_group:
        latest_end = group[0].ended
        for attempt in group[1:]:
            if attempt.started < latest_end:
                early.append(attempt.number)
            latest_end = max(latest_end, attempt.ended)
    return early


def _span(attempts: Sequence[Attempt]) -> float:
    if not attempts:
        return 0.0
    return max(a.ended for a in attempts) - min(a.started for a in attempts)
