"""The API's inputs and answers, beside the shapes of the store's own readers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from groupflow.core.limits import LEAST_BY_HAND, LONGEST_BY_HAND, MOST_AT_ONCE
from groupflow.core.routing import MAX_SECONDS
from groupflow.operate.corrections import Correction
from groupflow.operate.dead import Filter
from groupflow.operate.ended import LATELY, Ended, Minute
from groupflow.operate.groups import Lane, Why
from groupflow.operate.listing import ListedGroups, ListedState
from groupflow.operate.namespace import Away
from groupflow.operate.reasons import CAUSE
from groupflow.operate.schedules import Schedule
from groupflow.operate.tasks import Choice, Verdict

MOST_IDS = 500  # dead letters an action
_NUMBER = "[0-9]{1,15}"  # in a cursor: Redis and Lua count so far exactly
_FARTHEST = 10_000_000  # entries that a page may pass over
_PARTITIONS = 1024  # that a namespace may have


def _one_line(value: str) -> str:
    if not value.isprintable():
        raise ValueError("leave out control characters")
    return value


def _cursor(pattern: str) -> AfterValidator:
    known = re.compile(pattern)

    def check(value: str) -> str:
        if not known.fullmatch(value):
            raise ValueError("give 0, or what `next` of the page before said")
        return value

    return AfterValidator(check)


def _near(value: str) -> str:
    if any(int(each) > _FARTHEST for each in value.split("-") if each):
        raise ValueError("it is too far back: give a filter")
    return value


Key = Annotated[str, Field(min_length=1, max_length=1024)]
# The longest id, and what a derived id appends.
TaskId = Annotated[str, Field(min_length=1, max_length=1024 + 17)]
Text = Annotated[str, Field(max_length=1024)]
PageLimit = Annotated[int, Field(ge=1, le=500)]
_OF_ALL = Field(max_length=_PARTITIONS * 16)
CursorText = Annotated[str, Field(max_length=64), _cursor(rf"{_NUMBER}(\.{_NUMBER})*")]
# A number for each partition, none at its end.
CursorOfAll = Annotated[str, _OF_ALL, _cursor(rf"-*{_NUMBER}(-+{_NUMBER})*-*")]
Passed = Annotated[CursorOfAll, AfterValidator(_near)]
By = Annotated[str, Field(max_length=64), AfterValidator(_one_line)]


class Input(BaseModel):
    """Input: unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Nothing(Input):
    pass


class GroupsQuery(Input):
    state: ListedGroups | Literal["drained"] = "ready"
    text: Text = Field("", description="What the group's name must have in it.")
    tenant: Text = Field("", description="The tenant of its head; empty for anybody.")
    cursor: CursorOfAll = "0"
    limit: PageLimit = 50


class GroupQuery(Input):
    key: Key = Field(description="The group key as rendered; any characters.")
    passed: Annotated[int, Field(ge=0, le=_FARTHEST)] = 0
    limit: PageLimit = 50
    lately: Annotated[int, Field(ge=0, le=LATELY)] = Field(
        LATELY, description="How many of its tasks that ended lately to seek; 0: nor the hour."
    )


class Choosing(Input):
    """Which task, where several have one id."""

    tenant: Text | None = Field(
        None, description="Of several tasks that have one id, that of this tenant; empty: of none."
    )
    partition: Annotated[int, Field(ge=0, lt=_PARTITIONS)] | None = Field(
        None, description="Of several tasks that have one id, that of this partition."
    )

    @property
    def choice(self) -> Choice:
        """The same as the namespace takes it."""
        return Choice(self.tenant, self.partition)


class TaskQuery(Choosing):
    id: TaskId = Field(description="The task's id; any characters.")


class TasksQuery(Input):
    state: ListedState = "queued"
    id: Text = Field("", description="What the id must have in it.")
    type: Text = Field("", description="The type, or how it begins: `import.*`.")
    tenant: Text = ""
    group: Text = Field("", description="What the group's name must have in it.")
    older: Annotated[float, Field(ge=0, le=MAX_SECONDS)] = Field(
        0.0, description="Seconds since it came, or has ended, at least."
    )
    cursor: CursorText = "0"
    limit: PageLimit = 100


class ActionsQuery(Input):
    limit: Annotated[int, Field(ge=1, le=1000)] = 200


class NameQuery(Input):
    name: Key


class SamplesQuery(Input):
    hours: Literal["1", "24"] = "1"


class TypesQuery(Input):
    hours: Literal["1", "6", "24"] = "1"
    type: Text = Field("", description="That one alone; empty for all.")


class OfDead(Input):
    """What dead letters have to have."""

    reason: Text = Field("", description="A part of the reason, or without the token of its kind.")
    type: Text = Field("", description="The type, or how it begins: `import.*`.")
    group: Text = ""
    since: Annotated[float, Field(gt=0, le=MAX_SECONDS)] | None = Field(
        None, description="Seconds since they died, at most."
    )
    cause: str = Field("", pattern=f"^({CAUSE})?$", description="As `dead/reasons` names it.")

    def filter(self, tenant: str | None, *, sees_contents: bool) -> Filter:
        """The same as the store takes it.

        A caller that isn't shown the words must not find them by trying parts of them.
        """
        sought = self.reason or None
        return Filter(
            reason=sought if sees_contents else None,
            kind=None if sees_contents else sought,
            type=self.type or None,
            group=self.group or None,
            tenant=tenant,
            since=self.since,
            cause=self.cause or None,
            with_words=sees_contents,
        )


class ReasonsQuery(OfDead):
    tenant: Text = ""  # empty for any


class DeadQuery(ReasonsQuery):
    passed: Passed = Field("0", description="0, or `next` of the page before.")
    limit: PageLimit = 50


class Order(Input):
    """An action, and who says so."""

    by: By = Field("", description="Who acts, for the log and for others; not verified.")


class Letters(Order, Choosing, OfDead):
    """Which dead letters to redrive or drop, by ids or by a filter, and who says so."""

    ids: Annotated[list[TaskId], Field(max_length=MOST_IDS)] = Field(default_factory=list)
    tenant: Text | None = Field(
        None, description="In place of ids: those of this tenant. With them: whose is meant."
    )
    everything: bool = Field(False, description="All of them, in place of ids or a filter.")
    cursor: CursorText = Field("0", description="Of a filter: 0, or `next` of the answer before.")
    dry_run: bool = Field(False, description="Of a filter: count what matches, change nothing.")


class Redrive(Letters):
    """The same, and where it is one letter, a corrected body for it."""

    body: str | None = Field(None, description="A body of the same tenant and group.")


class WaitingTask(Order, Choosing):
    """Which task to drop or run now, or of which group the delayed ones, and who says so."""

    ids: Annotated[list[TaskId], Field(max_length=MOST_IDS)] = Field(default_factory=list)
    delayed: Key | None = Field(None, description="A group: its delayed tasks, in place of ids.")


class Cancel(Order, Choosing):
    """Which tasks to cancel: by id, or all of a group or a type; and who says so."""

    ids: Annotated[list[TaskId], Field(max_length=MOST_IDS)] = Field(default_factory=list)
    group: Key | None = Field(None, description="All tasks of a group, in place of ids.")
    type: Key | None = Field(None, description="All of a type, or of several: `import.*`.")
    reason: Annotated[str, Field(max_length=1024), AfterValidator(_one_line)] = Field(
        "", description="Why; it stays in the tasks' history."
    )
    cursor: CursorText = Field("0", description="Of a group or type: 0, or `next` of the answer.")
    dry_run: bool = Field(False, description="Of a group or type: count, change nothing.")


class Target(Order):
    """What to pause or resume, and who says so."""

    group: Key | None = Field(None, description="The group; none with everything = true.")
    everything: bool = False


class TenantsQuery(Input):
    name: Text = Field("", description="The name that they must have; empty for any.")
    cursor: CursorText = "0"
    limit: Annotated[int, Field(ge=1, le=100)] = 50


class LimitedTarget(Order):
    """The group, the tenant or the type whose limits by hand end, and who says so."""

    group: Key | None = Field(None, description="The group; or else a tenant, or a type.")
    tenant: Key | None = Field(None, description="The tenant's name, of whatever application.")
    type: Key | None = Field(None, description="The type, or a pattern of types: import.*")


class LimitOrder(LimitedTarget):
    """Other limits than configured, for a while, and who says so."""

    concurrency: Annotated[int, Field(ge=0, le=MOST_AT_ONCE)] | None = Field(
        None, description="Tasks at once; none: as configured; of a tenant or a type 0: any number."
    )
    rate: Annotated[str, Field(max_length=64)] | None = Field(
        None, description="Starts, as in the configuration; none: as configured; empty: any number."
    )
    seconds: Annotated[float, Field(ge=LEAST_BY_HAND, le=LONGEST_BY_HAND)] = Field(
        3600.0, description="For how long; then it ends by itself."
    )


class NamedTarget(Order):
    """Which schedule to run, or which scan to wake, or of both to pause or resume; who says so."""

    name: Key


class RouteQuery(Input):
    """A message that is not sent: where would it go?"""

    body: Annotated[str, Field(max_length=1_000_000)]
    type: Annotated[str, Field(max_length=1024)] | None = Field(
        None, description="The AMQP type property."
    )
    headers: Annotated[dict[str, str], Field(max_length=100)] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupStory:
    """One group: why it stands where it stands, and what waits in it, the next to run first."""

    why: Why
    lane: Lane
    lately: list[Ended]  # its last tasks that ended, the newest first
    hour: list[Minute]  # what ended of it within the last hour; only where `lately` is asked for
    hour_since: float | None  # from when on that is known


@dataclass(frozen=True, slots=True)
class Content:
    """What a task was published with, or its result, for those who may see it."""

    headers: dict[str, Any]
    body: str | None  # where that is UTF-8, cut where it is long
    body_base64: str | None  # where it isn't
    body_bytes: int  # of the whole body; of a letter without it, of what Redis holds of that
    is_cut: bool  # whether a part of it is shown
    is_withheld: bool
    """Whether all of this, and the words of reason and errors, are left out, since there is a token
    and the caller has not shown it."""


@dataclass(frozen=True, slots=True)
class Letter(Content):
    """A dead letter with all that is kept of it, for those who may see it."""

    body_error: str  # why headers and body can't be read, which lie in RabbitMQ; empty if they can
    id: str
    type: str
    group: str | None
    tenant: str | None
    reason: str  # why it died; its kind, where words are withheld
    kind: str  # what it died of, without a handler's or stranger's words
    attempts: int
    died_at: float
    errors: list[dict[str, Any]]
    """One entry for each failed attempt that is remembered, oldest first; its words are withheld
    as the body is."""
    routed_first: bool  # whether a redrive routes it, since it never had a route
    corrections: list[Correction]  # its bodies before, oldest first; withheld as the body is


@dataclass(frozen=True, slots=True)
class Untouched:
    """A dead letter that an action left as it was, and why."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Result:
    """What became of an action: ids that it was done to, and those that it left alone."""

    done: list[str]
    stayed: list[Untouched]
    matching: int | None = None  # of a filter: how many of those looked at match
    next: str | None = None  # cursor by which a filter goes on, None at the end
    away: list[Away] = field(default_factory=list)  # partitions that a filter had to leave out


@dataclass(frozen=True, slots=True)
class Judged:
    """What the cancel of a task came to; `requested`: it runs, and is asked to stop."""

    id: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What became of a cancel: of each id, or of some of a group or a type."""

    tasks: list[Judged] = field(default_factory=list)  # of ids
    stayed: list[Untouched] = field(default_factory=list)  # ids that nothing was done to
    waiting: int = 0  # tasks of a group or type that waited, and have ended, or would
    running: list[str] = field(default_factory=list)  # those that run, and are asked, or would be
    next: str | None = None  # cursor by which a group or type goes on, None at the end
    away: list[Away] = field(default_factory=list)  # partitions that were left out


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a pause or resume: whether anything is different now."""

    changed: bool


@dataclass(frozen=True, slots=True)
class ScheduleList:
    """All schedules by name, each with its last runs, the newest first."""

    schedules: list[Schedule]


@dataclass(frozen=True, slots=True)
class Made:
    """The task that was made."""

    task: str


@dataclass(frozen=True, slots=True)
class Published:
    """A task that RabbitMQ has taken."""

    id: str


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the daemon runs by, secrets masked, and the handlers that it has."""

    settings: dict[str, Any]
    handlers: list[str]
