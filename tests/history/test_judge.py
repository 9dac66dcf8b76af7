"""What the judge lets pass where servers lost writes, and what it doesn't."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from groupflow.store.partitions import partition_of
from tests.history.configuration import RUN
from tests.history.events import Event
from tests.history.judge import (
    UNBEGUN,
    UNSENT,
    lost_in,
    resumed_in,
    starts_lost,
    starts_of,
    undone_starts,
)

PARTITIONS = 6
HERE = partition_of("g", "", PARTITIONS)


def _attempt(fence: int, start: float, end: float | None, id_: str = "t") -> list[Event]:
    began = Event("start", id_, start, group="g", fence=fence)
    return [began, *([] if end is None else [Event("end", id_, end, group="g", fence=fence)])]


def _lossy(began: float, ended: float, partition: int = HERE) -> list[Event]:
    return [
        Event("lossy", "", began, n=partition, how="began"),
        Event("lossy", "", ended, n=partition, how="ended"),
    ]


def _fences(events: list[Event]) -> set[int]:
    ordered = sorted(events, key=lambda event: event.at)
    return {event.fence for event in undone_starts(ordered, PARTITIONS)}


def test_only_what_ran_when_writes_were_lost_is_undone() -> None:
    attempts = [
        *_attempt(1, 1.0, 10.0 - UNSENT - 0.1),
        *_attempt(2, 1.0, 10.0 - UNSENT + 0.1),
        *_attempt(3, 1.0, None),
        *_attempt(4, 10.5, 10.6, "t#second"),
        *_attempt(5, 12.0 + UNBEGUN + 0.1, None),
    ]
    assert _fences([*attempts, *_lossy(10.0, 12.0)]) == {2, 3, 4}
    assert _fences([*attempts, *_lossy(10.0, 12.0, (HERE + 1) % PARTITIONS)]) == set()
    assert _fences([*attempts, *_lossy(-0.2, -0.1), *_lossy(13.0, 14.0)]) == {3, 5}
    overlapping = [*_lossy(10.0, 10.2), *_lossy(10.1, 12.0), *_lossy(10.3, 10.4)]
    assert _fences([*attempts, *overlapping]) == {2, 3, 4}
    assert _fences([*attempts, _lossy(10.0, 0.0)[0]]) == {2, 3, 4, 5}


@pytest.mark.parametrize("event", ["task.resumed", "task.released"])
def test_what_daemons_gave_back_is_read_from_their_logs(tmp_path: Path, event: str) -> None:
    """By task and fence, which is unique among all partitions in the history."""
    log = tmp_path / "daemon.log"
    said = {"event": event, "task": "t", "group": "g", "fence": 7, "held_by": "d"}
    log.write_bytes(b"no json\n" + orjson.dumps(said) + b"\n")
    events = [
        *_attempt(7 * PARTITIONS + HERE, 1.0, 2.0),
        *_attempt(7 * PARTITIONS + HERE, 3.0, 4.0, "t#second"),
        *_attempt(8 * PARTITIONS + HERE, 5.0, 6.0),
        *_attempt(7 * PARTITIONS + HERE, 7.0, 8.0, "other"),
    ]
    found = starts_of(events, resumed_in([log]), PARTITIONS)
    assert found == {events[0], events[2]}


def test_what_a_lost_session_held_is_read_from_logs(tmp_path: Path) -> None:
    """With what stood in front of it in its run; not what was lost otherwise."""
    log = tmp_path / "daemon.log"
    lines = [
        _line("claim.lost", "a", 5),
        {"event": "session.lost", "error": "Redis …: what it runs may be unknown there"},
        _line("claim.lost", "b", 7, "runs-1"),
        {"event": "lease.begun"},
        _line("claim.lost", "c", 9),
        {"event": "session.lost", "error": "the lease ran out"},
        _line("claim.lost", "d", 11),
    ]
    log.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in lines))
    assert lost_in([log]) == {("b", 7, "runs-1")}
    starts = [
        Event("start", id_, at, group, fence=fence * PARTITIONS + HERE)
        for id_, at, group, fence in (
            *(("before", 1.0, "runs-1", 6), ("b", 2.0, "runs-1", 7), ("b", 3.0, "runs-1", 8)),
            *(("other", 1.0, "runs-2", 6), ("long ago", 0.0, "runs-1", 7 - RUN)),
        )
    ]
    assert starts_lost(starts, lost_in([log]), PARTITIONS) == {*starts[:2]}


def _line(event: str, task: str, fence: int, group: str | None = None) -> dict[str, object]:
    return {"event": event, "task": task, "fence": fence, "group": group}
