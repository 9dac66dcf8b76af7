"""What a configuration says of schedules: when each is due, and the message that it then makes."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from groupflow.core.timing import NEVER, Cron, Every, Timing, next_tick
from groupflow.settings.types import YEAR, PlainName, Printable, Seconds, Section, TaskType, no_bool

MOST = 500  # of a configuration: each is shown, and looked at every few seconds
_LONGEST_ZONE = 64  # characters of a name that are compared with those that exist
_MOST_MEANT = 3  # names to choose from
_START = 1_600_000_000_000_000  # any moment: whether a tick ever comes doesn't depend on it


def _zone(value: str, info: ValidationInfo) -> str:
    try:
        ZoneInfo(value)
    # KeyError: there is none of that name. OSError: a folder of zones, such as "Europe".
    except (KeyError, OSError, ValueError):
        schedule = f"The schedule {info.data['name']!r} has" if "name" in info.data else "It has"
        remedy = f"{schedule} no time zone that tzdata knows. {_meant(value)}"
        raise ValueError(remedy) from None
    return value


def _meant(value: str) -> str:
    """What to write instead of a time zone that does not exist."""
    known = _zones()
    close = get_close_matches(value[:_LONGEST_ZONE].lower(), known, n=_MOST_MEANT)
    if not close:
        return 'Write "UTC", or an area and a city, such as "Europe/Berlin".'
    meant = " or ".join(f'"{known[zone]}"' for zone in close)
    return f"Did you mean {meant}?"


@cache  # it opens each of 600 files
def _zones() -> dict[str, str]:
    """The names of all time zones, by their lower case."""
    return {zone.lower(): zone for zone in available_timezones()}


_Owner = Annotated[Printable, Field(max_length=255)]


class ScheduleRule(Section):
    """One `[[schedules]]`: a task that comes by itself, once each time that it is due."""

    name: PlainName
    """Its name, which ids of its ticks have in them: schedule:NAME:2026-11-22T03:00:00Z."""
    cron: str | None = None
    """When it is due: minute hour day month weekday, or six fields, seconds first."""
    every: Seconds | None = Field(default=None, ge=0.1, le=YEAR)
    """Seconds from tick to tick, in place of cron; counted from 1970, so that nothing drifts."""
    timezone: Annotated[str, AfterValidator(_zone)] = "UTC"
    """The time zone that cron's fields are in."""
    app: _Owner = ""
    """The application whose message a tick is; empty: none."""
    tenant: Annotated[_Owner | int, BeforeValidator(no_bool)] = ""
    """The tenant whose message a tick is, text or number; empty: none."""
    type: TaskType
    """The task type, which names the handler."""
    body: dict[str, Any] = Field(default_factory=dict)
    """What else the body of each tick says."""
    overlap: Literal["queue", "skip"] = "queue"
    """"skip": no tick while the last one waits, is delayed or runs."""
    missed: Literal["once", "skip", "all"] = "once"
    """What to make of ticks that were due while no daemon ran: the last, none, or each."""
    catch_up: Seconds = Field(default=86_400.0, ge=0, le=YEAR)
    """Seconds for which missed = "all" goes back."""

    @model_validator(mode="after")
    def _is_due_sometimes(self) -> Self:
        if (self.cron is None) == (self.every is None):
            raise ValueError("Give it exactly one of cron and every.")
        timing = self.timing()
        if isinstance(timing, Cron):
            timing.check()
            if next_tick(timing, _START) == NEVER:
                raise ValueError("Give cron a time that comes: nothing matches it in fifty years.")
        return self

    def timing(self) -> Timing:
        """When it is due."""
        if self.cron is not None:
            return Cron(self.cron, ZoneInfo(self.timezone))
        assert self.every is not None  # noqa: S101
        return Every(round(self.every * 1_000_000))
