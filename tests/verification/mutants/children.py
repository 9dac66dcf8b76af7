"""Tests run in a child of a process that has imported and collected them all: a fork each trial."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pytest

from tests.deadlines import deadline

_PR_SET_PDEATHSIG = 1
_MEMORY = 8 * 1024**3  # bytes of address space, for a mutant that never stops growing
_GRACE = 5.0  # seconds that any test may take, with what it waits for in vain
_SLOWER = 8  # times as long as on the sound product
_UNKNOWN = 15.0  # seconds that a test takes there, as long as that isn't known


@dataclass(frozen=True, slots=True)
class Ran:
    """A test that ended in a child, after some seconds; `failure` is what pytest said of it."""

    test: str
    seconds: float
    marks: frozenset[str]
    failure: str


@dataclass(slots=True)
class Trial:
    """What a child came to.

    Attributes:
        ran: the tests in their order, up to the first that failed where that was to be the last.
        running: the test that did not end, or ended the child.
        is_begun: whether the child came as far as the first test.
    """

    ran: list[Ran] = field(default_factory=list)
    running: str = ""
    is_begun: bool = False

    @property
    def killer(self) -> str:
        """The first test that failed, did not end, or ended the child."""
        return next((each.test for each in self.ran if each.failure), self.running)


def try_out(
    items: Sequence[pytest.Item],
    *,
    prepare: Callable[[], set[str] | None] = set,
    seconds: dict[str, float],
    to_end: bool = False,
) -> Trial:
    """Run tests in a child.

    Args:
        items: the tests, in the order in which they run.
        prepare: is called in the child, before the first of them; the set that it may return tells
            what tests come to from then on.
        seconds: that tests take on the sound product, by node id.
        to_end: also when one fails.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            _be_apart()
            with os.fdopen(writing, "wb", buffering=0) as pipe:
                marks = prepare()
                _run(items, pipe, set() if marks is None else marks, to_end=to_end)
        finally:
            os._exit(0)
    os.close(writing)
    trial = Trial()
    with os.fdopen(reading, "rb") as pipe:
        for told in _lines(pipe, lambda: seconds.get(trial.running, _UNKNOWN)):
            trial.is_begun = True
            trial.running = told.pop("begins", "")
            if told:
                trial.ran.append(Ran(**{**told, "marks": frozenset(told["marks"])}))
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return trial


def _be_apart() -> None:
    """A group of processes of its own, silent, that ends with its parent."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _lines(pipe: BinaryIO, takes: Callable[[], float]) -> Iterator[dict[str, Any]]:
    """What a child tells, until it ends or tells nothing for too long."""
    kept = b""
    while select.select([pipe], [], [], deadline(_GRACE + _SLOWER * takes()))[0]:
        chunk = os.read(pipe.fileno(), 65536)
        if not chunk:
            return
        *lines, kept = (kept + chunk).split(b"\n")
        yield from map(json.loads, lines)


def _run(items: Sequence[pytest.Item], pipe: BinaryIO, marks: set[str], *, to_end: bool) -> None:
    def tell(**facts: Any) -> None:
        pipe.write(json.dumps(facts).encode() + b"\n")

    reports = _Reports()
    items[0].config.pluginmanager.register(reports)
    for item, following in zip(items, [*items[1:], None], strict=True):
        tell(begins=item.nodeid)
        marks.clear()
        reports.failure, began = "", time.monotonic()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        took, failure = time.monotonic() - began, reports.failure
        tell(test=item.nodeid, seconds=took, marks=[*marks], failure=failure)
        if failure and not to_end:
            return


class _Reports:
    """What pytest says of a test that fails."""

    failure = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failure = f"{report.when}: {report.longreprtext[-500:]}"
