"""Tests run in a child of a process that has imported and collected them all: a fork each trial."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pytest

from groupflow.store.rendering import Script
from groupflow.store.scripts import AnyVerb, Scripts

_PR_SET_PDEATHSIG = 1
_GRACE = 15.0  # seconds that any test may take, with whatever it waits for in vain
_SLOWER = 8  # times as long as it took in the recording
_UNKNOWN = 120.0  # seconds that a test may take in the recording
BEFORE = "what comes before the first test"


@dataclass(frozen=True, slots=True)
class Ran:
    """One test in a child.

    Attributes:
        test: its node id.
        seconds: it took, with its fixtures.
        files: the scripts that it made, as `read_lua` takes them, and what stands before them.
        failure: the beginning of what pytest said of it; None where it passed.
    """

    test: str
    seconds: float
    files: frozenset[str]
    failure: str | None


@dataclass(slots=True)
class Trial:
    """What a child came to.

    Attributes:
        ran: the tests, in their order, up to the first that failed where that was to be the last.
        hung: the test that did not end, or ended the child.
    """

    ran: list[Ran] = field(default_factory=list)
    hung: str | None = None

    @property
    def killer(self) -> str | None:
        """The first test that noticed something."""
        return self.hung or next((each.test for each in self.ran if each.failure is not None), None)


def try_out(
    items: Sequence[pytest.Item],
    *,
    prepare: Callable[[], None] = lambda: None,
    seconds: dict[str, float] | None = None,
    stop_at_first: bool = True,
) -> Trial:
    """Run tests in a child, and see what becomes of them.

    Args:
        items: the tests, in the order in which they run.
        prepare: is called in the child, before the first of them.
        seconds: how long each takes, by node id; without it, all are slow.
        stop_at_first: whether a failure is the end.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.setsid()
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            _be_silent()
            with os.fdopen(writing, "wb", buffering=0) as pipe:
                prepare()
                _run(items, pipe, stop_at_first)
        finally:
            os._exit(0)
    os.close(writing)
    trial = Trial()
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        for told in _told(pipe, seconds):
            if "hung" in told:
                trial.hung = told["hung"]
            else:
                files = frozenset(told["files"])
                trial.ran.append(Ran(told["test"], told["seconds"], files, told["failure"]))
    _end(child)
    return trial


def _limit(running: str, seconds: dict[str, float] | None) -> float:
    return _UNKNOWN if seconds is None else _GRACE + _SLOWER * seconds.get(running, 0.0)


def _end(child: int) -> None:
    for end in (os.killpg, os.kill):
        try:
            end(child, signal.SIGKILL)
        except ProcessLookupError:
            continue
    os.waitpid(child, 0)


def _be_silent() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    sys.stdout.flush()


def _told(pipe: BinaryIO, seconds: dict[str, float] | None) -> Iterator[dict[str, Any]]:
    """What each test in a child came to; at last, which one didn't end, or ended the child."""
    kept, running = b"", BEFORE
    while True:
        if not select.select([pipe], [], [], _limit(running, seconds))[0]:
            break
        chunk = pipe.read(65536)
        if not chunk:
            break
        *lines, kept = (kept + chunk).split(b"\n")
        for line in lines:
            told = json.loads(line)
            running = told.get("begins", "")
            if not running:
                yield told
    if running:
        yield {"hung": running}


def _run(items: Sequence[pytest.Item], pipe: BinaryIO, stop_at_first: bool) -> None:
    reports = _Reports()
    items[0].config.pluginmanager.register(reports)
    made = _watch_scripts()
    for item, following in zip(items, [*items[1:], None], strict=True):
        _tell(pipe, begins=item.nodeid)
        made.clear()
        reports.failure = None
        began = time.monotonic()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        _tell(
            pipe,
            test=item.nodeid,
            seconds=time.monotonic() - began,
            files=sorted(made),
            failure=reports.failure,
        )
        if stop_at_first and reports.failure is not None:
            return


def _tell(pipe: BinaryIO, **facts: Any) -> None:
    pipe.write(json.dumps(facts).encode() + b"\n")


class _Reports:
    """What pytest says of the test that runs."""

    def __init__(self) -> None:
        self.failure: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failure is None:
            self.failure = f"{report.when}: {report.longreprtext[-500:]}"


def _watch_scripts() -> set[str]:
    """The files of all scripts that are made from now on; each client makes those that it runs."""
    made: set[str] = set()
    make = Scripts.__missing__

    def watched(scripts: Scripts, verb: AnyVerb) -> Script:
        made.update((verb.file, *verb.rules))
        return make(scripts, verb)

    Scripts.__missing__ = watched  # type: ignore[assignment, method-assign]
    return made
