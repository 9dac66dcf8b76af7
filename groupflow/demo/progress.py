"""How far the demo is: the handlers' log turned into what the screen shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from groupflow.demo.history import Attempt, running_groups
from groupflow.demo.tasks import TENANTS, ImportTask

# The rate is that of the last so many seconds.
_RATE_SECONDS = 1.0

# An attempt is logged when it ends, so what runs right now is not known yet. What ran this many
# seconds ago is: longer than any look-up takes.
_LOG_DELAY = 0.4


@dataclass(frozen=True, slots=True)
class TenantProgress:
    """One tenant's share.

    Attributes:
        code: the tenant id in its tasks.
        name: for people.
        groups: how many groups it has; 0 means that its tasks are plain.
        handled: tasks whose handler has ended.
        total: tasks in all.
    """

    code: str
    name: str
    groups: int
    handled: int
    total: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state at one moment.

    Attributes:
        elapsed: seconds since the first handler started; 0 before.
        published: messages that the broker has confirmed.
        total: messages in all.
        handled: tasks whose handler has ended, each counted once.
        failed: handlers that raised.
        rate: tasks per second, lately.
        groups_running: groups that had a task running a moment ago.
        tenants: each one's share.
        daemons: tasks handled by each, by its name.
    """

    elapsed: float
    published: int
    total: int
    handled: int
    failed: int
    rate: float
    groups_running: int
    tenants: tuple[TenantProgress, ...]
    daemons: Mapping[str, int]

    @property
    def complete(self) -> bool:
        """Whether every task was handled at least once."""
        return self.handled == self.total


@dataclass(slots=True)
class Progress:
    """Gathers what is known about a running import.

    Attributes:
        tasks: all that is to be imported.
        daemons: the daemons' names by process id.
        attempts: what the log said so far.
        published: messages that the broker has confirmed; the publisher counts here.
    """

    tasks: Sequence[ImportTask]
    daemons: Mapping[int, str]
    attempts: list[Attempt] = field(default_factory=list)
    published: int = 0

    def snapshot(self, now: float) -> Snapshot:
        """The state at a moment (monotonic clock)."""
        handled = {attempt.number for attempt in self.attempts}
        by_pid = Counter(attempt.pid for attempt in self.attempts)
        recent = sum(1 for attempt in self.attempts if attempt.ended > now - _RATE_SECONDS)
        first = min((attempt.started for attempt in self.attempts), default=now)
        return Snapshot(
            elapsed=now - first,
            published=self.published,
            total=len(self.tasks),
            handled=len(handled),
            failed=sum(1 for attempt in self.attempts if attempt.error is not None),
            rate=recent / _RATE_SECONDS,
            groups_running=running_groups(self.attempts, now - _LOG_DELAY),
            tenants=self._tenants(handled),
            daemons={name: by_pid[pid] for pid, name in self.daemons.items()},
        )

    def _tenants(self, handled: set[int]) -> tuple[TenantProgress, ...]:
        total = Counter(task.tenant for task in self.tasks)
        done = Counter(task.tenant for task in self.tasks if task.number in handled)
        groups = Counter(
            tenant for tenant, group in {(task.tenant, task.group) for task in self.tasks} if group
        )
        return tuple(
            TenantProgress(code, name, groups[code], done[code], total[code])
            for code, name in TENANTS.items()
            if total[code]
        )
