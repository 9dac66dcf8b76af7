"""A line of the log, as the author of handlers is shown it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from groupflow.dev.session import Lines

AT = {"timestamp": "2026-11-22T12:03:04.5Z", "task": "t1", "type": "greet", "group": "contact:42"}


def shown(*, lines: Lines | None = None, **event: Any) -> str | None:
    lines = lines or claimed()
    return lines.shown(orjson.dumps({**AT, **event}).decode())


def claimed() -> Lines:
    """A task of this type and group runs."""
    lines = Lines()
    claim = {"event": "task.claimed", "level": "debug", "fence": 7, "slot": "plain 1", "attempt": 1}
    assert shown(lines=lines, **claim) is None
    return lines


LINES: list[tuple[dict[str, Any], str | None]] = [
    ({"event": "task.settled", "level": "debug", "outcome": "complete", "seconds": 1.0},
     "12:03:04 ✓ greet  contact:42  t1  1.00 s"),
    ({"event": "task.settled", "level": "debug", "outcome": "complete"},
     "12:03:04 ✓ greet  contact:42  t1"),
    ({"event": "task.buried", "level": "error", "reason": "KeyError: 'a'\x1b[2J"},
     "12:03:04 ✗ greet  contact:42  t1  dead: KeyError: 'a'\\x1b[2J"),
    ({"event": "hello", "level": "info", "name": "Ada"}, "12:03:04   hello  name=Ada"),
    ({"event": "hello", "level": "info", "attempt": 1, "fence": 7, "slot": "3", "group": "b",
      "type": None, "rows": [1]}, "12:03:04   hello  group=b  slot=3  rows=[1]"),
    ({"event": "hello", "level": "info", "task": "its own"},
     "12:03:04   hello  task=its own  type=greet  group=contact:42"),
    ({"event": "task.settled", "level": "debug", "outcome": "turn", "seconds": 1.0}, None),
    ({"event": "loop.blocked", "level": "warning"}, "12:03:04   loop.blocked"),
]  # fmt: skip


@pytest.mark.parametrize(("event", "line"), LINES)
def test_a_line(event: dict[str, Any], line: str | None) -> None:
    assert shown(**event) == line


def test_a_failed_attempt_says_where() -> None:
    failed: Any = {"event": "task.settled", "level": "warning", "outcome": "retry", "attempt": 2}
    failed |= {"error": "KeyError", "message": "'a'", "seconds": 0.1, "after": 3.0}
    said = shown(**failed, exception="Traceback\n  File handlers.py")
    assert said is not None
    first, *traceback = said.splitlines()
    assert first.endswith("KeyError: 'a'  (attempt 2, again in 3 s)")
    assert [each.strip() for each in traceback] == ["Traceback", "File handlers.py"]


AS_IT_IS = [
    *("printed", "[1, 2]", '{"no": "event"}', '{"event": "paid"}'),
    *('{"event": {"name": "paid"}}', '{"event": ["paid"]}', '{"event": "paid", "level": [1]}'),
]


@pytest.mark.parametrize("line", AS_IT_IS)
def test_what_is_no_event_is_shown_as_it_is(line: str) -> None:
    assert Lines().shown(line) == line


def test_what_only_operators_want_is_left_out() -> None:
    assert Lines().shown('{"event": "lease.renewed", "level": "info"}') is None
    assert Lines().shown('{"event": "doctor.finding", "level": "warning"}') is None
