"""What has happened to a task that left the straight path; of other tasks nothing is noted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

_CLAIMED_BEFORE = (b"attempt", b"crashes", b"stage", b"redriven")  # only such a task state has


@dataclass(frozen=True, slots=True)
class TaskState:
    """A task state as it lies in the store, times in microseconds."""

    attempt: int = 1  # the one that runs or is next; of a dead letter, the one that ended it
    crashes: int = 0  # claims that ended without a settle
    lost_leases: int = 0  # of those: lost leases of daemons that aren't known to have died
    stage: str | None = None  # the one that it has reached
    context: Any = None  # what the stage before handed on
    # one entry for each failed attempt that is remembered, oldest first
    errors: list[dict[str, Any]] = field(default_factory=list)
    due: int | None = None  # before which it may not run
    enqueued: int | None = None  # when it came, where its place in line isn't that any more
    latest: int | None = None  # until when it waits for quiet, where that is what it waits for
    unknown: str | None = None  # its type, where it waits since no living daemon knows that
    pool: str | None = None  # whose workers pull it; None where daemons run it
    reason: str = ""
    was_claimed: bool = False  # whether it ever was
    drained: bool = False  # whether it tells that its group is drained
    redriven: int = 0  # how many times it was a dead letter that became a task again

    @property
    def deaths(self) -> int:
        """Claims that ended with the death of their daemon, as far as that is known."""
        return self.crashes - self.lost_leases

    @property
    def told(self) -> dict[str, Any]:
        """What operators are told of each task, by the names that they know."""
        deaths = {"crashes": self.deaths, "lost_leases": self.lost_leases}
        return {"attempt": self.attempt, **deaths, "stage": self.stage}

    @classmethod
    def of(cls, flat: Sequence[bytes]) -> TaskState:
        """From a hash or a part of one, as Redis answers it: names and values in turn."""
        facts = dict(zip(flat[::2], flat[1::2], strict=True))
        stage, context = facts.get(b"stage"), facts.get(b"context")
        due, enqueued = facts.get(b"due"), facts.get(b"enqueued")
        latest, unknown, pool = (facts.get(name) for name in (b"latest", b"unknown", b"pool"))
        return cls(
            attempt=int(facts.get(b"attempt", 1)),
            crashes=int(facts.get(b"crashes", 0)),
            lost_leases=int(facts.get(b"lost_leases", 0)),
            stage=None if stage is None else stage.decode(),
            context=None if context is None else orjson.loads(context),
            errors=orjson.loads(facts.get(b"errors", b"[]")),
            due=None if due is None else int(due),
            enqueued=None if enqueued is None else int(enqueued),
            latest=None if due is None or latest is None or latest < due else int(latest),
            unknown=None if unknown is None else unknown.decode(),
            pool=None if pool is None else pool.decode(),
            reason=facts.get(b"reason", b"").decode(),
            was_claimed=not facts.keys().isdisjoint(_CLAIMED_BEFORE),
            drained=b"drained" in facts,
            redriven=int(facts.get(b"redriven", 0)),
        )
