"""Daemons' tickers on a bench, and time that passes without anybody waiting for it."""

from __future__ import annotations

from time import monotonic
from typing import Any, TypeAlias
from unittest.mock import patch

from groupflow.core.measures import ScheduleMeasures
from groupflow.operate.schedules import Schedule, read_schedules
from groupflow.schedule.definitions import Definition, definitions_of
from groupflow.schedule.table import ScheduleTable
from groupflow.schedule.ticker import Tickers
from groupflow.settings.model import Settings
from tests.store.bench import Bench

Rule: TypeAlias = dict[str, Any]
HOUR = 3_600_000_000  # microseconds
GROUPED: Rule = {"app": "crm", "key": "{kind}:{tenant_id}"}


def rule(name: str = "nightly", **facts: Any) -> Rule:
    """A schedule of every hour."""
    if "every" not in facts:
        facts = {"cron": "0 * * * *", **facts}
    return {"name": name, "type": "t", **facts}


def defined(*rules: Rule, groups: tuple[Rule, ...] = (GROUPED,)) -> list[Definition]:
    """What a configuration with these schedules says."""
    return definitions_of(Settings(**{"schedules": rules, "groups": groups}))


class Clockwork:
    """One daemon's tickers.

    Attributes:
        measures: what it has counted.
    """

    def __init__(self, *benches: Bench, daemon: str = "d1") -> None:
        """Has no schedule yet; each bench is a partition."""
        self.measures = ScheduleMeasures()
        tables = [ScheduleTable(each.client, daemon) for each in benches]
        self._tickers = Tickers(tables, self.measures)

    def load(self, *rules: Rule, groups: tuple[Rule, ...] = (GROUPED,), ago: float = 0.0) -> None:
        """Take a configuration over that was loaded just now, or so many seconds ago.

        Which of two is older is known to half a round trip: what depends on it needs more.
        """
        with patch("groupflow.schedule.ticker.monotonic", lambda: monotonic() - ago):
            self._tickers.adopt(defined(*rules, groups=groups))

    async def go_on(self) -> float:
        """One pass of each; when the next one is due, in seconds."""
        return min([await ticker.run_once() for ticker in self._tickers])

    async def look(self) -> None:
        """A pass that asks when its schedules are due, as one does every few seconds."""
        for ticker in self._tickers:
            ticker._present_at = 0.0
        await self.go_on()


async def begun(
    bench: Bench, *rules: Rule, hours: int = 0, daemon: str = "d1", **loading: Any
) -> Clockwork:
    """A daemon that has schedules; then so many hours pass, and it has looked again."""
    clock = Clockwork(bench, daemon=daemon)
    clock.load(*rules, **loading)
    await clock.look()
    if hours:
        let_pass(bench, hours, rules[0]["name"])
        await clock.look()
    return clock


async def the(bench: Bench, name: str = "nightly") -> Schedule:
    """A schedule as operators see it."""
    (found,) = [each for each in await read_schedules(bench.namespace) if each.name == name]
    return found


async def names(bench: Bench) -> list[str]:
    """All schedules."""
    return [each.name for each in await read_schedules(bench.namespace)]


def due_of(bench: Bench, name: str = "nightly") -> int:
    """When its next tick is due, by Redis's clock."""
    found: Any = bench.raw.zscore(bench.keys("schedules"), name)
    return int(found)


def let_pass(bench: Bench, hours: int, name: str = "nightly") -> None:
    """It is so many hours later than it was: a schedule of every hour has been due meanwhile."""
    bench.raw.zadd(bench.keys("schedules"), {name: due_of(bench, name) - hours * HOUR})
    row = bench.keys("schedule", name)
    decided = int(bench.raw.hget(row, "decided") or 0)
    bench.raw.hset(row, "decided", f"{decided - hours * HOUR:016d}")


def let_be_old(bench: Bench, seconds: float, name: str = "nightly") -> None:
    """No daemon has presented it for so long."""
    row = bench.keys("schedule", name)
    presented = int(bench.raw.hget(row, "presented") or 0)
    bench.raw.hset(row, "presented", f"{presented - round(seconds * 1_000_000):016d}")


def waiting(bench: Bench) -> list[str]:
    """The ids of all tasks that are there, sorted."""
    found: Any = bench.raw.hkeys(bench.keys("tasks"))
    return sorted(each.decode() for each in found)


def schedule(**facts: Any) -> Schedule:
    """A schedule of every hour that is in no store: due, and never made yet."""
    told: dict[str, Any] = {
        **{"name": "nightly", "next_at": 0.0, "last_at": None, "last_task": None},
        **{"last_outcome": None, "missed_total": 0, "paused": False, "ticks_total": 0},
        **{"skipped_total": 0, "paused_by": None, "paused_since": None, "cron": "0 * * * *"},
        **{"every": None, "timezone": "UTC", "type": "t", "group": None, "tenant": None},
        **{"overlap": "queue", "missed": "once", "overdue": 0.0, "interval": 3600.0},
        **{"daemon": "d1", "daemon_age": 0.0, "rival": None, "runs": []},
    }
    return Schedule(**{**told, **facts})
