"""A pytest run that, instead of running its tests, tries them on each mutant of the scripts."""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.schedule.table import ScheduleVerb
from groupflow.store import scripts
from groupflow.store.keys import spelled
from groupflow.store.scripts import AnyVerb, Verb
from tests.verification.mutants.lua_mutants import Mutant
from tests.verification.mutants.scripts_children import BEFORE, Ran, Trial, try_out
from tests.verification.mutants.scripts_server import Server

VERBS: tuple[AnyVerb, ...] = (*Verb, *OperatorVerb, *ScheduleVerb)
_CHANCES = 2  # of a test that noticed a mutant, to find nothing wrong without it
_FORGETS = 0.8  # how much less a kill says of the mutant after the next one


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant.

    Attributes:
        mutant: which.
        how: ``killed``, ``hung`` (a test did not end: killed too), ``survived``, ``invalid``.
        by: the test that killed it, or why Redis refuses it.
        tests: how many tests it was tried on.
    """

    mutant: Mutant
    how: str
    by: str
    tests: int


class Failing(Exception):
    """Tests fail on the scripts as they are."""


class Trials:
    """A pytest plugin: collects, records which test needs which script, tries every mutant.

    Attributes:
        verdicts: one a mutant, once the run is over.
        recorded: what the tests did on the scripts as they are.
        problem: why there are no verdicts.
    """

    def __init__(
        self,
        mutants: Sequence[Mutant],
        told: Callable[[Verdict], None],
        longest: float = inf,
    ) -> None:
        """Try nothing yet.

        Args:
            mutants: what to try.
            told: hears of each verdict at once.
            longest: seconds that a test which may kill takes at most.
        """
        self.verdicts: list[Verdict] = []
        self.recorded: list[Ran] = []
        self.problem = ""
        self._mutants = mutants
        self._told = told
        self._longest = longest
        self._seconds: dict[str, float] = {}
        self._items: dict[str, pytest.Item] = {}
        self._kills: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what needs other servers, or is about the texts themselves."""
        items[:] = [item for item in items if _may_kill(item)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try all mutants."""
        with tempfile.TemporaryDirectory(prefix="groupflow-mutants-") as folder:
            server = Server(Path(folder) / "redis")
            try:
                sys.modules["tests.conftest"]._running = server.shared  # type: ignore[attr-defined]
                self._items = {item.nodeid: item for item in session.items}
                self._record()
                for mutant in self._mutants:
                    verdict = self._try(mutant, server)
                    self.verdicts.append(verdict)
                    self._told(verdict)
            except Failing as problem:
                self.problem = str(problem)
            finally:
                server.stop()
        return True

    def _record(self) -> None:
        trial = try_out(list(self._items.values()), stop_at_first=False)
        if wrong := [f"{each.test}: {each.failure}" for each in trial.ran if each.failure]:
            raise Failing("these fail on the scripts as they are:\n" + "\n".join(wrong))
        if trial.hung:
            raise Failing(f"{trial.hung} ends the process that it runs in")
        self.recorded = [each for each in trial.ran if each.files]
        self.recorded = [each for each in self.recorded if each.seconds <= self._longest]
        self._seconds = {each.test: each.seconds for each in self.recorded}
        spent = sum(each.seconds for each in self.recorded)
        print(f"{len(self.recorded)} tests may kill, {spent:.0f} s in all", flush=True)

    def _try(self, mutant: Mutant, server: Server) -> Verdict:
        server.clear()
        if refusal := server.refusal(self._whole(mutant)):
            return Verdict(mutant, "invalid", refusal, 0)
        kills = self._kills[mutant.file]
        able = [each for each in self.recorded if mutant.file in each.files]
        able.sort(key=lambda each: -(kills[each.test] + 0.05) / each.seconds)
        trial = Trial()
        if able:
            items = [self._items[each.test] for each in able]
            trial = try_out(items, prepare=lambda: _put_in(mutant), seconds=self._seconds)
        if trial.hung == BEFORE:
            raise Failing(f"the trial of {mutant.key} did not begin")
        for test in kills:
            kills[test] *= _FORGETS
        if trial.killer is None:
            return Verdict(mutant, "survived", "", len(able))
        self._confirm(trial.killer, server)
        kills[trial.killer] += 1
        return Verdict(mutant, "hung" if trial.hung else "killed", trial.killer, len(trial.ran))

    def _confirm(self, killer: str, server: Server) -> None:
        """Whoever noticed a mutant must find nothing wrong with the scripts as they are."""
        for _ in range(_CHANCES):
            server.clear()
            trial = try_out([self._items[killer]], seconds=self._seconds)
            if trial.killer is None:
                return
        found = trial.ran[-1].failure if trial.ran else "it does not end"
        raise Failing(f"{killer} fails on the scripts as they are: {found}")

    @staticmethod
    def _whole(mutant: Mutant) -> str:
        """A script that the mutant is in, as Redis gets it."""
        verb = next(verb for verb in VERBS if mutant.file in (verb.file, *verb.rules))
        texts = {file: scripts.read_lua(file) for file in (verb.file, *verb.rules)}
        texts[mutant.file] = mutant.text
        front = "\n".join(texts[file] for file in verb.rules)
        own = texts[verb.file]
        shebang, own = own.split("\n", 1) if own.startswith("#!") else ("", own)
        text = spelled(f"{front}\n{own}")
        return f"{shebang}\nlocal TAG, ORDER = KEYS[1], 'oldest'\n{text}".lstrip("\n")


def _may_kill(item: pytest.Item) -> bool:
    servers = {"rabbitmq_server", "valkey_server"} & set(getattr(item, "fixturenames", ()))
    is_about_texts = item.path.name.startswith("test_damaged_")
    return not servers and "valkey" not in item.nodeid and not is_about_texts


def _put_in(mutant: Mutant) -> None:
    """From now on, whoever reads the file of a mutant reads the mutant."""
    sound = scripts.read_lua

    def read_lua(file: str) -> str:
        return mutant.text if file == mutant.file else sound(file)

    scripts.read_lua = read_lua  # type: ignore[assignment]
