"""Which tests notice a mutant: one pytest session, in which each mutant has a fork of its own.

First every test runs once on the code as it is, and is watched: which lines it comes to. Then, with
all modules imported and all servers up, a process is forked for each mutant. There the damaged
function's code takes the place of the sound one, and the tests that come to the damaged lines run,
first those that come to little else, until one fails. So a mutant costs little more than the test
that notices it.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Literal

import pytest

from tests.verification.mutants.places import Mutant, damaged

Verdict = Literal["killed", "hung", "alive", "unseen", "invalid"]

MEMORY = 8 * 1024**3  # bytes of address space for one that never stops growing
_CODES: dict[int, Verdict] = {0: "alive", 1: "killed", 3: "hung", 4: "invalid"}


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a mutant.

    Attributes:
        mutant: which.
        verdict: `unseen` where no test comes to its lines.
        seconds: that took.
        killer: the test that noticed, empty where none did.
    """

    mutant: Mutant
    verdict: Verdict
    seconds: float
    killer: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether no test noticed it."""
        return self.verdict in ("alive", "unseen")


@dataclass(eq=False)
class Trials:
    """The plugin: takes the session over once its tests are collected.

    Attributes:
        root: of the tree that is damaged.
        mutants: to be tried.
        between: done before each, to start from the same state.
        tell: told of each as it is known.
    """

    root: Path
    mutants: Sequence[Mutant]
    between: Callable[[], None]
    tell: Callable[[Fate], None]
    slack: float = 5.0  # seconds for a test, beside five times what it takes on sound code
    budget: float = inf  # seconds of tests for one mutant, as they take on sound code
    fates: list[Fate] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # tests that fail on sound code
    seconds: float = 0.0  # that all tests take together, on sound code
    _took: dict[pytest.Item, float] = field(default_factory=dict)
    _reach: dict[pytest.Item, int] = field(
        default_factory=dict
    )  # lines: few, where it is about them
    _seen: dict[tuple[str, int], set[pytest.Item]] = field(default_factory=lambda: defaultdict(set))
    _has_failed: bool = False
    _last: Any = None
    _pools: list[ThreadPoolExecutor] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._has_failed = self._has_failed or report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run nothing but trials."""
        # Where this comes next, the session's servers stay up, and all else is torn down.
        self._last = session
        for item, following in _each_and_next(session.items, session):
            self._watch(item, following)
        if self.broken:
            return True
        self.seconds = sum(self._took.values())
        self._pools = [each for each in gc.get_objects() if isinstance(each, ThreadPoolExecutor)]
        # A fork has no thread but its own: what passes here must pass there too.
        verdict, killer = self._fork(None, (), session.items)
        if verdict != "alive":
            self.broken.append(f"{killer.nodeid if killer else 'a test'} ({verdict} in a fork)")
            return True
        functions = _functions_of({str(self.root / each.path) for each in self.mutants})
        kills = Counter[tuple[str, pytest.Item]]()
        for mutant in self.mutants:
            self._try(mutant, functions, kills)
        # What the mutants left behind must not be what killed the later ones.
        self.between()
        for item, following in _each_and_next(session.items, session):
            if not self._passes(item, following):
                self.broken.append(f"{item.nodeid} (after the mutants)")
        return True

    def _watch(self, item: pytest.Item, following: Any) -> None:
        paths = {str(self.root / each.path): each.path for each in self.mutants}
        seen: set[tuple[str, int]] = set()

        def lines(frame: FrameType, event: str, arg: Any) -> Any:
            seen.add((paths[frame.f_code.co_filename], frame.f_lineno))
            return lines

        def calls(frame: FrameType, event: str, arg: Any) -> Any:
            return lines(frame, event, arg) if frame.f_code.co_filename in paths else None

        began = time.perf_counter()
        threading.settrace(calls)
        sys.settrace(calls)
        try:
            passes = self._passes(item, following)
        finally:
            sys.settrace(None)
            threading.settrace(None)
        if not passes:
            self.broken.append(item.nodeid)
        self._took[item] = time.perf_counter() - began
        self._reach[item] = len(seen)
        for place in seen:
            self._seen[place].add(item)

    def _passes(self, item: pytest.Item, following: Any) -> bool:
        self._has_failed = False
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        return not self._has_failed

    def _try(
        self,
        mutant: Mutant,
        functions: dict[tuple[str, str], list[FunctionType]],
        kills: Counter[tuple[str, pytest.Item]],
    ) -> None:
        began = time.perf_counter()
        here = f"{mutant.path} {mutant.function}"
        chosen = set[pytest.Item]().union(
            *(self._seen.get((mutant.path, line), ()) for line in mutant.lines)
        )
        room = f"tests/{mutant.path.split('/')[1]}/" if "/" in mutant.path else ""
        items = sorted(
            chosen,
            key=lambda item: (
                -kills[here, item],
                not item.nodeid.startswith(room),
                self._reach[item],
            ),
        )
        spent = accumulate(self._took[item] for item in items)
        items = [item for item, so_far in zip(items, spent, strict=True) if so_far < self.budget]
        verdict: Verdict = "unseen"
        killer: pytest.Item | None = None
        if items:
            self.between()
            verdict, killer = self._fork(
                mutant, functions[str(self.root / mutant.path), mutant.function], items
            )
            if killer is not None:
                kills[here, killer] += 1
        fate = Fate(mutant, verdict, time.perf_counter() - began, killer.nodeid if killer else "")
        self.fates.append(fate)
        self.tell(fate)

    def _fork(
        self,
        mutant: Mutant | None,
        functions: Sequence[FunctionType],
        items: Sequence[pytest.Item],
    ) -> tuple[Verdict, pytest.Item | None]:
        told, tells = os.pipe()
        pid = os.fork()
        if not pid:
            code = 2
            try:
                os.setpgid(0, 0)
                os.close(told)
                code = self._live(mutant, functions, items, tells)
            finally:
                os._exit(code)
        os.close(tells)
        limit = 3 * sum(self._took[item] for item in items) + 4 * self.slack
        watch = threading.Timer(limit, os.kill, (pid, signal.SIGKILL))
        watch.start()
        _, status = os.waitpid(pid, 0)
        watch.cancel()
        watch.join()
        _end_group(pid)
        begun = len(os.read(told, 65536))
        os.close(told)
        # A process that dies of its damage is noticed, too.
        verdict = _CODES.get(os.waitstatus_to_exitcode(status), "killed")
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            verdict = "hung"
        return verdict, items[begun - 1] if verdict in ("killed", "hung") and begun else None

    def _live(
        self,
        mutant: Mutant | None,
        functions: Sequence[FunctionType],
        items: Sequence[pytest.Item],
        tells: int,
    ) -> int:
        """A mutant's process. Returns how it ends."""
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for pool in self._pools:  # their threads stayed behind
            pool.__dict__.update(ThreadPoolExecutor(pool._max_workers).__dict__)
        try:
            if mutant is not None:
                code = damaged(mutant, self.root)
                for function in functions:
                    function.__code__ = code
        except (SyntaxError, ValueError):
            return 4
        end = [0.0]
        threading.Thread(target=_end_at, args=(end,), daemon=True).start()
        for item, following in _each_and_next(items, self._last):
            end[0] = time.monotonic() + self._limit(item)
            os.write(tells, b".")
            if not self._passes(item, following):
                return 1
        return 0

    def _limit(self, item: pytest.Item) -> float:
        return 5 * self._took[item] + self.slack


def _each_and_next(items: Sequence[pytest.Item], last: Any) -> Iterator[tuple[pytest.Item, Any]]:
    return zip(items, [*items[1:], last], strict=True)


def _end_at(end: Sequence[float]) -> None:
    """End this process once it is over a time that others move."""
    while True:
        time.sleep(0.05)
        if 0 < end[0] < time.monotonic():
            os._exit(3)


def _end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _functions_of(paths: Iterable[str]) -> dict[tuple[str, str], list[FunctionType]]:
    """All functions of some files, whatever decorators have wrapped around them."""
    wanted, found = set(paths), defaultdict[tuple[str, str], list[FunctionType]](list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            code: CodeType = each.__code__
            if code.co_filename in wanted:
                found[code.co_filename, code.co_qualname].append(each)
    return found
