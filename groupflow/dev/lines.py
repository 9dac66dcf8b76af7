"""A daemon's log for authors of handlers: a line for each attempt, with its failure."""

from __future__ import annotations

from typing import Any

import orjson

from groupflow.core.escaping import plain_text

_MARKS = {"complete": "✓", "advance": "→", "retry": "↻", "release": "·"}
_LEFT_OUT = frozenset(
    ("event", "level", "timestamp", "logger", "task", "type", "group", "fence", "slot", "exception")
)
_SERVERS = frozenset(("doctor.finding",))  # about private servers, which don't last
_LOUD = frozenset(("warning", "error", "critical"))


def line_of(line: str) -> str | None:
    """A line of the log as it is shown; ``None`` for lines that only operators want.

    A line that isn't an event is a handler's `print`, or an interpreter's last words: shown as it
    is.
    """
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        event = None
    if not isinstance(event, dict) or "event" not in event:
        return plain_text(line)
    name = event["event"]
    if name == "task.settled":
        return _settled(event)
    if name == "task.buried":
        return _with_traceback(f"{_start(event, '✗')}  dead: {_plain(event, 'reason')}", event)
    if name in _SERVERS:
        return None
    is_handlers = "task" in event or "logger" in event
    if event.get("level") in _LOUD or (event.get("level") == "info" and is_handlers):
        facts = {key: fact for key, fact in event.items() if key not in _LEFT_OUT}
        said = "  ".join(f"{key}={fact}" for key, fact in facts.items() if fact is not None)
        return _with_traceback(f"{_clock(event)}   {plain_text(f'{name}  {said}'.rstrip())}", event)
    return None


def _settled(event: dict[str, Any]) -> str:
    outcome = str(event.get("outcome"))
    start = _start(event, _MARKS.get(outcome, "·"))
    if outcome != "retry":
        return f"{start}  {float(event['seconds']):.2f} s"
    words = f"{_plain(event, 'error')}: {_plain(event, 'message')}".removesuffix(": ")
    again = f"attempt {event.get('attempt')}, again in {event.get('after'):g} s"
    return _with_traceback(f"{start}  {words}  ({again})", event)


def _start(event: dict[str, Any], mark: str) -> str:
    group = _plain(event, "group")
    who = "  ".join(each for each in (_plain(event, "type") or "no type", group) if each)
    return f"{_clock(event)} {mark} {who}  {_plain(event, 'task')}"


def _with_traceback(text: str, event: dict[str, Any]) -> str:
    traceback = str(event.get("exception") or "").rstrip()
    return "\n".join([text, *(f"           {plain_text(each)}" for each in traceback.splitlines())])


def _clock(event: dict[str, Any]) -> str:
    return plain_text(str(event.get("timestamp", ""))[11:19])


def _plain(event: dict[str, Any], name: str) -> str:
    return plain_text(str(event.get(name) or ""))
