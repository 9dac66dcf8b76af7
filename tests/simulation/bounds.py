"""Sees to the moment that no more wait in a group than its rule lets, where messages ask for room.

Tasks that come back (a retry, a crash) don't ask: so it looks at what one script adds.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import hiredis

from groupflow.operate.scripts import OperatorVerb
from groupflow.store.scripts import AnyVerb, Scripts, Verb
from tests.history.invariants import Violation
from tests.simulation.fleet import Fleet
from tests.simulation.jobs import MOST_QUEUED
from tests.simulation.redis_side import RealRedis

_FIRST, _EACH = 5, 10  # arguments in front of an enqueue's messages, and of each of them
_KEYS = 6  # words of a command in front of its arguments
_FULL = 5  # where an enqueue answers which found their group full

_Waiting: TypeAlias = dict[tuple[bytes, str], int]  # by partition and group


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

    def _ask(self, packed: list[bytes]) -> tuple[list[Any], bytes]:
        """Run commands one by one; their replies, and the same as bytes."""
        enqueue, redrive = (self._shas(verb) for verb in (Verb.ENQUEUE, OperatorVerb.REDRIVE))
        replies: list[Any] = []
        whole: list[bytes] = []
        for command in packed:
            is_enqueue = any(sha in command[:100] for sha in enqueue)
            asks = is_enqueue or any(sha in command[:100] for sha in redrive)
            before = self._waiting() if asks else {}
            ([reply], text) = self._real.ask([command])
            replies.append(reply)
            whole.append(text)
            if asks:
                after = self._waiting()
                self._look_at_growth(before, after)
                if is_enqueue and isinstance(reply, list) and len(reply) > _FULL:
                    self._look_at_refusals(command, reply[_FULL], after)
        return replies, b"".join(whole)

    def _shas(self, verb: AnyVerb) -> list[bytes]:
        """What a verb's script is called at the real server, for each number of partitions."""
        order = self._fleet.plan.order
        numbers = {number for _, number in self._fleet.layouts}
        texts = [Scripts(order, partitions=number)[verb].sha for number in numbers]
        return [self._real.sha(sha).encode() for sha in texts]

    def _waiting(self) -> _Waiting:
        raw: Any = self._fleet.raw
        return {
            (keys.tag.encode(), group): raw.llen(keys("lane", group))
            for keys in self._fleet.partitions
            for group in self._groups
        }

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
