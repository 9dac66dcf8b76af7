"""When a schedule's ticks are due: by a cron expression in a time zone, or evenly spaced.

Pure, and the same in all daemons: the next tick follows from the last one and the definition alone,
never from when a daemon asks. Times are whole microseconds since 1970, as scripts have them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import count, takewhile
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_SECOND: Final = 1_000_000  # microseconds
_MINUTE: Final = 60 * _SECOND
_FIELDS: Final = 5  # of a cron expression, without seconds
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_DIGITS: Final = 6

NEVER: Final = 8 * 10**15
"""A moment over 200 years from now, that no tick reaches."""


@dataclass(frozen=True)
class Every:
    """Ticks that are evenly spaced since 1970: nothing drifts, and daemons needn't agree."""

    interval: int  # microseconds

    def ticks(self, moment: int) -> Iterator[int]:
        """The ticks behind a moment, rising."""
        return count((moment // self.interval + 1) * self.interval, self.interval)


@dataclass(frozen=True)
class Cron:
    """Ticks at the times of a cron expression, as Debian's cron takes it.

    Five fields are minutes and up. A sixth one in front of them is the seconds at which a minute
    of the other five ticks; so what five fields mean when clocks are changed, six mean too.
    """

    expression: str
    zone: ZoneInfo

    @cached_property
    def _minutes(self) -> str:
        return " ".join(self.expression.split()[-_FIELDS:])

    @cached_property
    def _seconds(self) -> list[int]:
        return sorted(CronSim(self._whole, _EPOCH).seconds)

    @property
    def _whole(self) -> str:
        fields = self.expression.split()
        return " ".join(fields if len(fields) > _FIELDS else ["0", *fields])

    def check(self) -> None:
        """Refuse what can't be read.

        Raises:
            ValueError: what is wrong, for its operator.
        """
        if len(self.expression.split()) not in (_FIELDS, _FIELDS + 1):
            raise ValueError(
                "Write five fields (minute hour day month weekday), or six: seconds first."
            )
        try:
            CronSim(self._whole, _EPOCH)
        except CronSimError as error:
            what = str(error).removeprefix("Bad ")
            raise ValueError(f"Its {what} can't be read; cron's own rules hold.") from None

    def ticks(self, moment: int) -> Iterator[int]:
        """The same; it ends where nothing matches for fifty years."""
        # From a minute before, since the current minute may have ticks left.
        local = (_EPOCH + timedelta(microseconds=moment - _MINUTE)).astimezone(self.zone)
        for found in CronSim(self._minutes, local):
            minute = (found.astimezone(UTC) - _EPOCH) // _MICROSECOND
            for second in self._seconds:
                tick = minute + second * _SECOND
                # When clocks repeat an hour, ticks of its first run are behind us.
                if tick > moment:
                    yield tick


Timing: TypeAlias = Every | Cron
"""What says when ticks are due."""


def next_tick(timing: Timing, moment: int) -> int:
    """The first tick behind a moment; `NEVER` where there is none."""
    return next(timing.ticks(moment), NEVER)


def last_tick(timing: Timing, after: int, until: int) -> int | None:
    """The last tick behind one moment and not behind another, and ``None`` without any.

    Looks back from the second in growing steps: the cost doesn't grow with the ticks between.
    """
    back = _SECOND
    while True:
        begin = max(after, until - back)
        found = deque(takewhile(lambda tick: tick <= until, timing.ticks(begin)), maxlen=1)
        last = found[0] if found else None
        if last is not None or begin == after:
            return last
        back *= 2


def tick_text(moment: int) -> str:
    """A moment as ids of ticks have it: ``2026-11-22T03:00:00Z``; with a fraction, if any."""
    whole, fraction = divmod(moment, _SECOND)
    text = (_EPOCH + timedelta(seconds=whole)).strftime("%Y-%m-%dT%H:%M:%S")
    behind = f".{fraction:0{_DIGITS}d}".rstrip("0") if fraction else ""
    return f"{text}{behind}Z"
