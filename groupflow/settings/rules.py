"""What a configuration says of some tasks: groups, handlers other than Python, pools, schedules."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from groupflow.core.limits import Debounce, Limit, Rate, TypeLimit, check_order
from groupflow.core.policy import MOST_TOGETHER, GroupPolicy, RetryOverride
from groupflow.core.routing import Rule
from groupflow.core.template import Template
from groupflow.core.timing import NEVER, Cron, Every, Timing, next_tick
from groupflow.settings.types import (
    YEAR,
    AppName,
    Command,
    KeyTemplate,
    MaybeTaskType,
    Name,
    PlainName,
    Printable,
    RateText,
    RetryInterval,
    Seconds,
    Section,
    TaskType,
    TenantNames,
    TypePattern,
    Whole,
    no_bool,
    refused_by,
)
from groupflow.settings.urls import HttpUrl

MOST_POOLS = 100  # a script that places a group looks at the indexes of each
_SHORTEST = 0.001  # seconds
_NEWEST_MAX = 60.0  # seconds
_BURST = 10  # times a rule's quiet: the longest burst by default
MOST_SCHEDULES = 500  # of a configuration: each is shown, and looked at every few seconds
_LONGEST_ZONE = 64  # characters of a name that are compared with those that exist
_MOST_MEANT = 3  # names to choose from
_START = 1_600_000_000_000_000  # any moment: whether a tick ever comes doesn't depend on it


class Override(Section):
    """What a rule or a handler may say about retries; ``None`` leaves it to `[retry]`."""

    max_attempts: Whole | None = Field(default=None, ge=1)
    """As in [retry]."""
    interval: RetryInterval | None = Field(default=None, ge=-YEAR, le=YEAR)
    """As in [retry]."""
    jitter: Seconds | None = Field(default=None, ge=0, le=1)
    """As in [retry]."""

    def retry(self) -> RetryOverride:
        """The same for retries."""
        return RetryOverride(self.max_attempts, self.interval, self.jitter)


class GroupRule(Override):
    """One `[[groups]]`: which messages are grouped, under which key, with which policy."""

    name: Name = ""
    """How logs and `route` call the rule; groups[N] if none is given."""
    app: AppName = "*"
    """The application it is for; "*" for any."""
    tenants: TenantNames = ("*",)
    """The tenants it is for, a list of numbers and texts; "*": all."""
    key: KeyTemplate
    """The group key: text, {dotted.path} of the body, {header.NAME}; {{ and }}."""
    shares: bool = False
    """Whether its keys may be those of other rules too; else both are refused."""
    on_retry: Literal["hold", "step-aside"] = "hold"
    """Whether the group waits behind a head that is to be retried."""
    on_dead: Literal["skip", "park"] = "skip"
    """Whether the group goes on after a dead letter."""
    stage_order: Literal["hold", "step-aside"] = "hold"
    """Whether a task stays the head when it goes to its next stage."""
    on_delay: Literal["hold", "step-aside"] = "hold"
    """Whether a delayed task holds those behind it."""
    run: Whole = Field(default=1, ge=1, le=MOST_TOGETHER)
    """Most tasks of a group claimed at once, run one after another by one worker."""
    batch: Whole = Field(default=1, ge=1, le=MOST_TOGETHER)
    """Most tasks of a group that one call of a batch handler is given."""
    batch_wait: Seconds = Field(default=0.0, ge=0, le=YEAR)
    """Seconds for which fewer than a batch wait for more, since the oldest of them came."""
    priority: Seconds = Field(default=0.0, ge=-YEAR, le=YEAR)
    """Seconds by which its tasks count as older."""
    concurrency: Whole = Field(default=1, ge=1, le=10_000)
    """Tasks of one group at once; over 1, its order is that of their starts."""
    rate: RateText = ""
    """Starts of one group: "10/s", "600/min", "10/h", "10/s burst 50"; empty: as many as come."""

    max_queued: Whole = Field(default=0, ge=0, le=1_000_000)
    """Tasks that may wait in a group; beyond that a message becomes a dead letter; 0: any."""
    expires: Seconds = Field(default=0.0, ge=0, le=YEAR)
    """Seconds after it came within which a task has to start first, or it ends as expired; 0: any
    time."""
    debounce: Seconds = Field(default=0.0, ge=0, le=YEAR)
    """Over 0: of its waiting tasks of one type the newest replaces the older ones, and starts after
    so many seconds of quiet."""
    debounce_max: Seconds = Field(default=0.0, ge=0, le=YEAR)
    """Seconds after which it starts at the latest, however long the burst goes on; 0: ten times
    debounce."""
    newest: Literal["", "waiting", "running"] = ""
    """Which tasks the newest of a type replaces: of those that wait the others; with "running" it
    also cancels the one that runs."""
    newest_max: Seconds = Field(default=_NEWEST_MAX, ge=_SHORTEST, le=YEAR)
    """Seconds for which updates may cancel what runs; then the one that runs may finish."""
    on_drained: MaybeTaskType = ""
    """A type: each time a group is drained, one task of it is enqueued there; empty: none."""

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        several = "run" if self.run > 1 else "batch" if self.batch > 1 else ""
        if self.debounce_max and not self.debounce:
            raise ValueError("Leave out debounce_max, or give debounce its seconds: it is 0.")
        if 0 < self.debounce < _SHORTEST:
            raise ValueError("Give debounce a millisecond at least, or 0 for none.")
        if 0 < self.debounce_max < self.debounce:
            raise ValueError(
                f"Give debounce_max ({self.debounce_max:g}) at least the seconds of debounce "
                f"({self.debounce:g}), or 0 for ten times as many."
            )
        if 0 < self.expires < _SHORTEST:
            raise ValueError("Give expires a millisecond at least, or 0 for any time.")
        if several and self.expires:
            raise ValueError(
                f"Leave out {several}, or expires: what expires is claimed task by task."
            )
        if self.expires and self.debounce >= self.expires:
            raise ValueError(
                f"Give expires ({self.expires:g}) more seconds than debounce ({self.debounce:g}), "
                "or none of its tasks starts in time."
            )
        if several and self.debounce:
            raise ValueError(
                f"Leave out {several}, or debounce: what debounces is claimed task by task."
            )
        self._check_newest(several or ("concurrency" if self.concurrency > 1 else ""))
        if self.run > 1 and self.batch > 1:
            raise ValueError("Leave out run or batch: a batch is a run handed over at once.")
        if several and (self.concurrency > 1 or self.rate):
            raise ValueError(
                f"Leave out {several}, or concurrency and rate: a {several} is started as a whole."
            )
        if self.batch_wait and 0 < self.max_queued < self.batch:
            raise ValueError(
                f"Give max_queued ({self.max_queued}) at least the tasks of batch ({self.batch}), "
                "or 0: fewer never fill one, and each waits for batch_wait."
            )
        if self.batch_wait and self.batch == 1:
            raise ValueError("Leave out batch_wait, or give the batch that is waited for.")
        return self

    def _check_newest(self, several: str) -> None:
        if self.newest_max != _NEWEST_MAX and self.newest != "running":
            raise ValueError('Leave out newest_max, or give newest = "running".')
        if self.newest and self.debounce:
            raise ValueError("Leave out newest, or debounce, which does the same after its quiet.")
        if self.newest and several:
            raise ValueError(
                f"Leave out {several}, or newest: what makes way for a newer one is claimed alone."
            )

    def rule(self) -> Rule:
        """What routing needs of it."""
        tenants = None if self.tenants == ("*",) else frozenset(self.tenants)
        template = Template.parse(self.key)
        return Rule(self.name, self.app, tenants, template, self.priority, self.expires)

    def limit(self) -> Limit:
        """What scripts need of it."""
        return Limit(self.concurrency, Rate.parse(self.rate), self.batch, self.batch_wait)

    def debouncing(self) -> Debounce | None:
        """What intake needs of it; ``None`` where each of its tasks is run."""
        if self.newest:
            return Debounce(0.0, 0.0, self.newest_max if self.newest == "running" else None)
        if not self.debounce:
            return None
        return Debounce(self.debounce, self.debounce_max or _BURST * self.debounce)

    def policy(self) -> GroupPolicy:
        """What settling needs of it."""
        parks = self.on_dead == "park"
        return GroupPolicy(
            self.retry(), self.on_retry, parks, self.stage_order, self.run, self.batch
        )


class TenantRule(Section):
    """One `[tenants.NAME]`: what that tenant may have; ``None`` leaves it to `[tenants]`."""

    concurrency: Whole | None = Field(default=None, ge=0, le=1_000_000)
    """As in [tenants]."""
    rate: RateText | None = None
    """As in [tenants]."""
    weight: Whole | None = Field(default=None, ge=1, le=1000)
    """As in [tenants]."""


class TypeRule(Section):
    """One `[types."pattern"]`: limits of all tasks of a type ("import.*": of several), together."""

    concurrency: Whole = Field(default=0, ge=0, le=1_000_000)
    """Tasks of these types at once, of daemons and pools alike; 0: any number."""
    rate: RateText = ""
    """Starts of these types, as for groups; empty: as many as come."""

    @model_validator(mode="after")
    def _limits(self) -> Self:
        if not self.concurrency and not self.rate:
            raise ValueError("Give it a concurrency, a rate, or both; or leave the table out.")
        return self

    def limit(self) -> TypeLimit:
        """What scripts need of it."""
        return TypeLimit(self.concurrency, Rate.parse(self.rate))


TypeRules = Annotated[dict[TypePattern, TypeRule], refused_by(check_order)]


class HandlerRule(Override):
    """One `[handlers."type"]`: a handler that is not Python; a command or a URL."""

    exec: Command | None = None
    """Command and arguments, body on stdin; exit 0 done, 75 retry, else failure."""
    http: HttpUrl | None = None
    """URL that the body is posted to; 2xx done, 429 and 503 retry."""
    timeout: Seconds | None = Field(default=None, gt=0)
    """Seconds that one attempt may take; none: no limit."""
    batch: Whole = Field(default=1, ge=1, le=MOST_TOGETHER)
    """Most tasks of a group that one call is given, as JSON Lines; 1: the body alone."""
    scope: Literal["task", "group", "tenant"] = "task"
    """What waits after a 429 or 503 of a URL: the task alone, all of its group, or its tenant."""
    result: bool = False
    """Whether a JSON answer may say `result` and `then`: a result, and follow-up tasks."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.http is None and self.scope != "task":
            raise ValueError("Leave out scope: it is for answers of a URL (http).")
        if (self.exec is None) == (self.http is None):
            raise ValueError("Give it exactly one of exec and http.")
        return self


class PoolRule(Section):
    """One `[pools.NAME]`: tasks for workers anywhere, which pull them over HTTP."""

    types: tuple[TaskType, ...] = Field(min_length=1)
    """The task types that wait here, in place of handlers of daemons."""
    lease: Seconds = Field(default=60.0, ge=1, le=86_400)
    """Seconds of silence after which what a worker holds goes back to the pool."""
    max_workers: Whole = Field(default=1000, ge=1, le=100_000)
    """How many workers may have a lease at a time; what one more asks for is answered with 429."""


def pool_by_type(pools: Mapping[str, PoolRule]) -> dict[str, str]:
    """The pool of each type that has one.

    Raises:
        ValueError: a type has two.
    """
    found: dict[str, str] = {}
    for name, rule in pools.items():
        for each in rule.types:
            if found.setdefault(each, name) != name:
                raise ValueError(
                    f"Type {each!r} is in pools {found[each]!r} and {name!r}: leave it in one."
                )
    return found


PoolRules = Annotated[
    dict[PlainName, PoolRule], Field(max_length=MOST_POOLS), refused_by(pool_by_type)
]


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
