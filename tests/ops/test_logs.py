"""The log: one line an event, machine-readable or readable, with any text of strangers in it."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import Any

import orjson
import pytest
import structlog

from groupflow.ops.logs import configure_logging


class Odd:
    def __str__(self) -> str:
        raise RuntimeError


class Mean(float):
    """As numpy's are."""


class Kind(StrEnum):
    A = "a"


class Growing:
    """Changes as it is walked, as another thread may change it."""

    def __str__(self) -> str:
        GROWING.add(len(GROWING))
        return "growing"


class Closed(dict[str, int]):
    def items(self) -> Any:
        raise LookupError


GROWING: set[Any] = {Growing()}

ODD: dict[str, Any] = {
    "mean": Mean(1.5),
    "bytes": b"\xff\x00",
    "surrogate": "a\ud800",
    "big": 10**5000,
    "nan": float("nan"),
    "odd": Odd(),
    "kinds": {Kind.A: Kind.A},
    "closed": Closed(a=1),
    "growing": GROWING,
    "nested": {"a": [b"\xff", {1: "\ud800"}], 2: {3}},
    "forged": "x\n2026-01-01 [info] task.claimed \x1b[31m\u202e",
}


def test_json_events_have_level_and_utc_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Away from a terminal, and once each however often that is configured."""
    for _ in range(2):
        configure_logging("info", "auto")
    structlog.get_logger().info("task.claimed", task="t1", fence=7, **ODD)
    structlog.get_logger().debug("task.renewed")
    logging.getLogger("x").warning("once")
    out, err = capsys.readouterr()
    event, other = map(orjson.loads, err.splitlines())
    assert (out, other["event"]) == ("", "once")
    assert event["timestamp"].endswith("Z")
    told = {"event": "task.claimed", "level": "info", "fence": 7, "odd": "<Odd>", "mean": 1.5}
    told |= {"kinds": {"a": "a"}, "closed": "{'a': 1}"}
    assert event.items() >= told.items()


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_mark_drives_a_terminal(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", form)
    marks = "\x7f\x85\x9b\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ufeff"
    structlog.get_logger().info("task.buried", reason=marks, **{marks: [{marks: marks}]})
    logging.getLogger("a.handler").warning(marks)
    err = capsys.readouterr().err
    assert not set(err) & set(marks)
    if form == "json":
        event = orjson.loads(err.splitlines()[0])
        assert event["reason"] == marks
        assert event[marks] == [{marks: marks}]


def test_console_values_cannot_forge_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Each event has a line; a traceback's lines stand behind a bar."""
    configure_logging("info", "console")
    log = structlog.get_logger()
    log.info("task.claimed", **ODD, **{"ke\ny": 1})
    log.info("an event\nof two lines")
    try:
        raise ValueError("a\n2026-01-01 [info] forged \x1b[1m")
    except ValueError:
        log.exception("task.failed")
    err = capsys.readouterr().err
    lines = err.splitlines()
    assert "task.failed" in lines[2]
    assert len(lines) > 3
    assert all(line.startswith("  | ") for line in lines[3:])
    assert "\x1b" not in err
    assert "\u202e" not in err


@pytest.mark.parametrize("form", ["json", "console"])
def test_passwords_in_urls_are_hidden(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", form)
    log = structlog.get_logger()
    url = "amqp://u:hunter2@h/?password=hunter2"
    log.info("a", url=url, deep=[{"x": f"at {url}, then {url}"}], error=ValueError(url))
    logging.getLogger("aio_pika").warning("lost %s", url)
    try:
        int(url)
    except ValueError:
        log.exception("task.failed")
    err = capsys.readouterr().err
    assert "hunter2" not in err
    assert err.count("u:***@h") >= 5


def test_libraries_are_heard_from_warnings_on(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    for name in ("aio_pika", "aiormq", "redis"):
        logging.getLogger(name).info("chatter")
        logging.getLogger(f"{name}.connection").warning("lost %s", "it")
    logging.getLogger("a.handler").info("heard")
    events = [orjson.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [event["event"] for event in events] == ["lost it"] * 3 + ["heard"]
    assert events[0]["logger"] == "aio_pika.connection"
    assert "message" not in events[0]


def test_a_wrong_format_string_does_not_raise(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    record = logging.LogRecord("some.library", logging.INFO, "f", 1, "wrong %d", ("x",), None)
    logging.getLogger().handlers[-1].emit(record)
    assert "some.library can't be shown" in capsys.readouterr().err


def test_a_closed_stderr_does_not_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def write(self, _: str) -> None:
            raise BrokenPipeError

        def isatty(self) -> bool:
            raise ValueError("closed")

    configure_logging("info", "json")
    monkeypatch.setattr(sys, "stderr", Broken())
    structlog.get_logger().info("task.claimed")
    configure_logging("info", "auto")
    monkeypatch.setattr(sys, "stderr", None)
    structlog.get_logger().info("task.claimed")
