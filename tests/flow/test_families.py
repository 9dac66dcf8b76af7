"""Who belongs to a command, by what the kernel tells of each process: given by the test."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from groupflow.flow import leftovers
from groupflow.flow.leftovers import Entry, Look, Looks, family, look, look_around, send

LEADER, SINCE, MARK = 10, 100, b"m1"


def entry(pid: int, parent: int = 1, **facts: int) -> Entry:
    return Entry(pid, parent, **{"group": 1, "session": 1, "start": SINCE, **facts})


def found(*entries: Entry, marked: tuple[int, ...] = ()) -> set[int]:
    leader = entry(LEADER, group=LEADER, session=LEADER)
    marks = {each: frozenset([MARK] if each.pid in marked else []) for each in (leader, *entries)}
    return {each.pid for each in family(Look(0, marks), LEADER, SINCE, MARK)}


def test_it_is_found_by_session_group_mark_and_descent() -> None:
    assert found(entry(11, session=LEADER)) == {11}
    assert found(entry(11, group=LEADER)) == {11}
    assert found(entry(11), marked=(11,)) == {11}
    assert found(entry(11, parent=LEADER)) == {11}
    assert found(entry(11), entry(12, parent=11)) == set()


def test_descent_is_followed_to_its_end() -> None:
    """In whatever order they are met, and from each that was found by anything else."""
    line = [entry(11, LEADER), entry(12, 11), entry(13, 12), entry(14, 13)]
    assert found(*line) == found(*reversed(line)) == {11, 12, 13, 14}
    assert found(entry(22, parent=21), entry(21), marked=(21,)) == {21, 22}
    assert found(entry(22, parent=21), entry(21, session=LEADER)) == {21, 22}


def test_nobody_older_belongs_to_it_and_neither_does_it_itself() -> None:
    """A number may have been somebody else's; the leader is ended by whoever waits for it."""
    older = entry(11, LEADER, start=SINCE - 1, session=LEADER, group=LEADER)
    assert found(older, marked=(11, LEADER)) == set()
    assert found(entry(11, LEADER, start=SINCE + 1)) == {11}


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``/proc`` of the test's own."""
    monkeypatch.setattr(leftovers, "_PROC", tmp_path)
    return tmp_path


def add(
    proc: Path, pid: int, start: int, environment: bytes | None = b"", name: str = "sh"
) -> None:
    (proc / str(pid)).mkdir()
    between = " ".join(str(n) for n in range(4, 19))
    line = f"{pid} ({name}) S 2 3 4 {between} {start} 99\n"
    (proc / str(pid) / "stat").write_text(line)
    if environment is not None:
        (proc / str(pid) / "environ").write_bytes(environment)


def test_a_line_of_the_kernel_is_read_behind_the_name(proc: Path) -> None:
    """Which may have brackets and blanks in it."""
    add(proc, 7, start=1234, name="a) S 1 (b")
    assert look(7) == Entry(7, parent=2, group=3, session=4, start=1234)
    assert look(8) is None
    text = (proc / "7" / "stat").read_text()
    for state in "ZX":
        (proc / "7" / "stat").write_text(text.replace(") S 2", f") {state} 2"))
        assert look(7) is None


def test_a_look_has_all_that_are_young_enough_with_their_marks(proc: Path) -> None:
    marks = b"A=1\0GROUPFLOW_MARK=m1\0B=2\0GROUPFLOW_MARK=m2\0"
    add(proc, 1, start=99, environment=marks)
    add(proc, 2, start=100, environment=marks)
    add(proc, 3, start=101, environment=b"A=GROUPFLOW_MARK=m1\0")
    add(proc, 4, start=102, environment=None)
    (proc / "self").mkdir()
    seen = look_around(100)
    assert seen.since == 100
    assert {each.pid: each_marks for each, each_marks in seen.marks.items()} == {
        2: {b"m1", b"m2"},
        3: frozenset(),
        4: frozenset(),
    }


def test_where_nothing_can_be_listed_nobody_is_found(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_PROC", proc / "none")
    assert look_around(0).marks == {}


def test_only_those_that_are_still_the_same_get_a_signal(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    def kill(pid: int, number: int) -> None:
        sent.append(pid)
        raise {1: ProcessLookupError, 2: PermissionError}.get(pid, FileNotFoundError)

    monkeypatch.setattr(os, "kill", kill)
    for pid in (1, 2, 3):
        add(proc, pid, start=SINCE)
    send(signal.SIGTERM, [entry(1), entry(2), entry(3, start=SINCE - 1), entry(4)])
    assert sent == [1, 2]


async def test_the_next_look_goes_back_as_far_as_any_of_them_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, go = list[int](), Event()

    def look_around(since: int) -> Any:
        asked.append(since)
        assert go.wait(20.0)
        return Look(since, {})

    monkeypatch.setattr(leftovers, "look_around", look_around)
    looks = Looks()
    first = looks._asked(9)
    while not asked:
        pass
    later = [looks._asked(since) for since in (5, 3, 7)]
    assert later[0] is later[1] is later[2]
    assert later[0] is not first
    go.set()
    assert first.result(20.0).since == 9
    assert later[0].result(20.0).since == 3
    assert looks._asked(8).result(20.0).since == 8
    assert asked == [9, 3, 8]


async def test_without_a_thread_it_is_looked_at_here(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks()
    looks._thread.shutdown()
    monkeypatch.setattr(leftovers, "look_around", lambda since: Look(since, {}))
    assert (await looks.after_now(5)).since == 5
