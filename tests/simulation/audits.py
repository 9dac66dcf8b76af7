"""Looks at what Redis holds, between calls: each script is atomic, so all is sound at any time.

Where groups have bounds, it looks at each enqueue and each redrive too: no more may wait than the
rule lets, where messages ask for room. Tasks that come back (a retry, a crash) don't ask.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import hiredis

from groupflow.operate.scripts import OperatorVerb
from groupflow.store.scripts import AnyVerb, Verb
from tests.history.auditor import audit_of
from tests.history.invariants import Violation
from tests.history.snapshot import read
from tests.simulation import clock
from tests.simulation.configured import scripts_of
from tests.simulation.fleet import Fleet
from tests.simulation.jobs import MOST_OF_TENANT, MOST_QUEUED
from tests.simulation.redis_side import RealRedis, pack

_FIRST, _EACH = 6, 10  # arguments in front of an enqueue's messages, and of each of them
_KEYS = 6  # words of a command in front of its arguments
_FULL = 5  # where an enqueue answers which found their group full

_Waiting: TypeAlias = dict[tuple[bytes, str], int]  # by partition and group


class Unsound(Exception):
    """What lies in Redis contradicts itself."""

    def __init__(self, violations: list[Violation]) -> None:
        super().__init__(str(violations[0]))
        self.violations = violations


class Audits:
    """Looks between calls, a number of them after the last look."""

    def __init__(self, fleet: Fleet) -> None:
        """Begins with the first call of a run."""
        self._fleet = fleet
        self._gaps = iter(fleet.plan.audits)
        self._left = next(self._gaps, 0)
        self.done = 0
        fleet.redis.before_call = self._count

    def _count(self) -> None:
        self._left -= 1
        if not self._left:
            self._left = next(self._gaps, 0)
            self._look()

    def _was_raised(self, found: Violation) -> bool:
        """Whether it is of tasks that began while an operator let more of theirs run at once."""
        if of_tenant := re.match(r"of tenant .{8}(.+) run (\d+) more", found.text):
            raised_to = self._fleet.watch.raised_tenants.get(of_tenant[1], 0)
            return raised_to - MOST_OF_TENANT >= int(of_tenant[2])
        if of_type := re.match(r"of type (\S+) run (\d+) more", found.text):
            # Its tasks may have begun under another pattern.
            raised_to = max(self._fleet.watch.raised_types.values(), default=0)
            return raised_to > 1 and raised_to >= int(of_type[2])
        raised = (group for group, most in self._fleet.watch.raised.items() if most > 1)
        return any(found.text.startswith(f"of {group} run ") for group in raised)

    def _is_early(self, found: Violation) -> bool:
        """Whether it is of a group that a move found ready: a claim asks for its limits again."""
        since, _ = self._fleet.layouts[-1]
        is_moved = len(self._fleet.layouts) > 1 and clock.now() < since + 1
        return is_moved and found.invariant == "L8" and " is ready, " in found.text

    def _is_tie(self, found: Violation) -> bool:
        """Whether it is of tasks that came at one moment, to partitions which a move has joined."""
        if len(self._fleet.layouts) == 1 or not found.text.endswith("]"):
            return False
        arrivals = [int(each) for each in re.findall(r"\d{16}", found.text)]
        return found.invariant == "S4" and arrivals == sorted(arrivals, reverse=True)

    def _look(self) -> None:
        if self._fleet.is_moving or self._fleet.loop.broken:
            return
        self.done += 1
        found = [
            Violation(each.invariant, f"{clock.now() - clock.BEGIN:.4f} s: {each.text}")
            for keys in self._fleet.partitions
            for each in audit_of(read(self._fleet.raw, keys))
            if not (self._was_raised(each) or self._is_early(each) or self._is_tie(each))
        ]
        if found:
            self._fleet.loop.broken = Unsound(found)


class Bounds:
    """Looks at each enqueue and each redrive of one run."""

    def __init__(self, fleet: Fleet, real: RealRedis) -> None:
        """Looks at nothing where no group has a bound."""
        self._fleet, self._real = fleet, real
        self._groups = sorted(
            {job.group for job in fleet.plan.jobs if job.rule == "full" and job.group}
        )
        self.refused = 0
        """Messages that found their group full."""
        if self._groups:
            fleet.redis.ask = self._ask
            self._enqueues = [*self._shas_of(Verb.ENQUEUE), *self._shas_of(Verb.FOLLOW)]
            self._shas = [*self._enqueues, *self._shas_of(OperatorVerb.REDRIVE)]

    def _ask(self, packed: list[bytes]) -> tuple[list[Any], bytes]:
        """Run commands, one by one where they enqueue or redrive; their replies, also as bytes."""
        asking = [any(sha in command[:100] for sha in self._shas) for command in packed]
        if not any(asking):
            return self._real.ask(packed)
        replies: list[Any] = []
        whole: list[bytes] = []
        for command, asks in zip(packed, asking, strict=True):
            before = self._waiting() if asks else {}
            ([reply], text) = self._real.ask([command])
            replies.append(reply)
            whole.append(text)
            if asks:
                after = self._waiting()
                self._look_at_growth(before, after)
                is_enqueue = any(sha in command[:100] for sha in self._enqueues)
                if is_enqueue and isinstance(reply, list) and len(reply) > _FULL:
                    self._look_at_refusals(command, reply[_FULL], after)
        return replies, b"".join(whole)

    def _shas_of(self, verb: AnyVerb) -> list[bytes]:
        """What a verb's script is called at the real server, for each number of partitions."""
        plan = self._fleet.plan
        numbers = {plan.partitions, *(move.partitions for move in plan.moves)}
        every = [scripts_of(plan.order, n, tells=self._fleet.tells)[verb].sha for n in numbers]
        return [self._real.sha(sha).encode() for sha in every]

    def _waiting(self) -> _Waiting:
        lanes = {
            (keys.tag.encode(), group): pack("LLEN", keys("lane", group))
            for keys in self._fleet.partitions
            for group in self._groups
        }
        numbers, _ = self._real.ask([*lanes.values()])
        return dict(zip(lanes, numbers, strict=True))

    def _look_at_growth(self, before: _Waiting, after: _Waiting) -> None:
        for where, number in after.items():
            if number > max(before[where], MOST_QUEUED):
                self._is_broken(
                    f"{number} wait in {where[1]}, where {before[where]} did: {MOST_QUEUED} may"
                )

    def _look_at_refusals(self, command: bytes, full: list[int], after: _Waiting) -> None:
        """Only what found as many as may wait is refused: an enqueue takes none out."""
        reader = hiredis.Reader()
        reader.feed(command)
        words: list[bytes] = reader.gets()
        self.refused += len(full)
        for place in full:
            group = words[_KEYS + _FIRST + _EACH * (place - 1) + 1].decode()
            number = max((n for (_, name), n in after.items() if name == group), default=0)
            if number < MOST_QUEUED:
                self._is_broken(f"a message of {group} was refused, where {number} wait")

    def _is_broken(self, text: str) -> None:
        self._fleet.watch.violations.append(Violation("P3", text))
