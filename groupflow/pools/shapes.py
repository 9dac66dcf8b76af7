"""What workers that pull send, and what they are answered."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import Field, RootModel, model_validator

from groupflow.broker.publisher import Message, Outgoing
from groupflow.core.errors import Unroutable
from groupflow.core.outcome import Advance, Dead, Done, Outcome, Retry, Untold, wrong_stage
from groupflow.core.progress import Progress, pack_progress
from groupflow.core.task import PULLED
from groupflow.flow.batches import FollowUpTasks
from groupflow.flow.settling import following_of
from groupflow.ops.page.shapes import Input, Key, TaskId
from groupflow.pools.pullers import CancelledTask, TaskReport
from groupflow.settings.types import YEAR
from groupflow.store.given import Claim
from groupflow.store.pulling import MOST_HELD

LONGEST_WAIT = 60.0  # seconds
_OBJECT = re.compile(rb"[ \t\r\n]*+\{")
_Seconds = Annotated[float, Field(ge=0, le=YEAR)]
_Fence = Annotated[int, Field(ge=1, lt=2**53)]
_Words = Annotated[str, Field(max_length=2000)]


class Wanted(Input):
    """How much a worker wants."""

    limit: Annotated[int, Field(ge=1, le=MOST_HELD)] = Field(
        description="How many tasks it wants to hold in all; of more, the newest go back."
    )
    wait: Annotated[float, Field(ge=0, le=LONGEST_WAIT)] = Field(
        0.0, description="Seconds to wait for something, where there is nothing."
    )
    holding: Annotated[int, Field(ge=0, le=MOST_HELD)] = Field(
        0,
        description="How many tasks it knows to hold: where it holds more, it is answered at once.",
    )


class Settled(Input):
    """What became of a task."""

    id: TaskId
    fence: _Fence = Field(description="As the claim had it.")
    outcome: Literal["done", "retry", "advance", "dead"]
    after: _Seconds | None = Field(
        None, description="Seconds until the next attempt or stage; none: as the policy says."
    )
    scope: Literal["task", "group"] = Field(
        "task", description="What waits until it is retried: the task, or all of its group."
    )
    reason: _Words | None = Field(None, description="Why it is to be retried, or is dead.")
    stage: Key | None = Field(None, description="The next stage.")
    context: Any = Field(None, description="Any JSON value, handed on to that stage.")
    result: Any = Field(None, description="Any JSON value up to 64 KiB, told with the task's end.")
    result_error: _Words | None = Field(None, description="Why there is no result to be told.")
    then: FollowUpTasks = Field(
        default_factory=list,
        description="Follow-up tasks, made if this one is done. They take the right to publish.",
    )

    @model_validator(mode="after")
    def _is_done(self) -> Self:
        has_more = self.then or self.result is not None or self.result_error
        if self.outcome != "done" and has_more:
            raise ValueError("only a task that is done has a result or follow-up tasks")
        return self

    def told(self, check: Callable[[Message], Outgoing]) -> TaskReport:
        """The same as `Pullers` takes it; each follow-up task has to pass the `check`.

        Raises:
            Unroutable: its stage can't be one, or a follow-up task can't be a task.
        """
        then = [each.message() for each in self.then]
        following_of(then, check)
        result = Untold(self.result_error) if self.result_error else self.result
        outcome: Outcome = Done(result, tuple(then))
        match self.outcome:
            case "retry":
                outcome = Retry(self.after, self.reason or "", self.scope)
            case "advance":
                if wrong := wrong_stage(self.stage):
                    raise Unroutable(wrong)
                outcome = Advance(self.stage or "", self.context, self.after or 0.0)
            case "dead":
                outcome = Dead(self.reason or "a worker said so")
        return TaskReport(self.id, self.fence, outcome)


class Settlements(RootModel[Annotated[list[Settled], Field(min_length=1, max_length=MOST_HELD)]]):
    """What became of some tasks."""


class Told(Input):
    """How far a task has got."""

    id: TaskId
    fence: _Fence = Field(description="As the claim had it.")
    done: int | float
    total: int | float | None = Field(None, description="Of how much; null where that isn't known.")
    unit: str = Field("", description="Of both: up to 32 printable characters.")

    def packed(self) -> bytes:
        """The same as the store keeps it."""
        return pack_progress(self.done, self.total, self.unit)

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        self.packed()
        return self


class Renewal(Input):
    """What a worker says as it renews its lease."""

    progress: Annotated[list[Told], Field(max_length=MOST_HELD)] = Field(
        default_factory=list, description="How far tasks that it holds have got."
    )


@dataclass(frozen=True, slots=True)
class PulledTask:
    """A task that a worker holds."""

    id: str
    type: str
    group: str | None
    tenant: str | None
    attempt: int  # from 1
    crashes: int  # claims of it that ended without a settle
    fence: int  # to be shown when it is settled
    stage: str | None
    context: Any
    body: Any = None  # JSON as it was published
    body_base64: str | None = None  # in its place, where it is no JSON
    since: float | None = None  # since when it is held, Unix seconds, where that is told
    progress: Progress | None = None  # how far it has got, where the worker says so and it is told


@dataclass(frozen=True, slots=True)
class GivenTasks:
    """What a worker holds now."""

    tasks: list[PulledTask]  # all of it, the newest last; the oldest 8 MiB of it, where it is more
    more: bool  # whether it holds others too, which come once some of these are settled
    lease_until: float  # Unix seconds by Redis's clock: when a silent worker loses them
    lease: float  # seconds from now until then
    cancelled: list[CancelledTask]  # of what it holds: end these, and say what became of them


@dataclass(frozen=True, slots=True)
class HeldTasks:
    """What a worker holds, for any caller."""

    tasks: list[PulledTask]
    more: bool  # as of a claim
    lease_until: float | None  # None for a worker that was silent for its lease, or never called


@dataclass(frozen=True, slots=True)
class SettledTask:
    """Whether what a worker said of a task holds."""

    id: str
    verdict: Literal["accepted", "stale"]


@dataclass(frozen=True, slots=True)
class Renewed:
    """A lease that was pushed back."""

    lease_until: float  # Unix seconds by Redis's clock
    lease: float  # seconds from now until then
    fences: list[int]  # of what the worker holds; it has lost tasks whose fences are missing
    cancelled: list[CancelledTask]  # of these: end them, and say what became of them


@dataclass(frozen=True, slots=True)
class Returned:
    """What a worker has given back."""

    returned: int  # tasks


@dataclass(frozen=True, slots=True)
class Filled:
    """What became of a list that a pool was to be equal to."""

    added: int
    removed: int  # tasks that waited, and are not in it
    kept: int  # that waited already; their priorities are the list's now
    assigned: int  # that workers hold, and that were left alone
    over: int  # that were done within the dedup window, and are not made again
    dead: int  # that are dead letters
    foreign: int  # whose ids belong to tasks of the same application and tenant outside this pool


def pulled(claim: Claim, since: float | None = None) -> dict[str, Any]:
    """A task as it is answered; its body byte for byte, where it is JSON."""
    task = claim.task
    facts = {name: getattr(task, name) for name in PULLED}
    # Around it are more brackets than orjson writes, where it has as many as a stage's may have.
    facts["context"] = orjson.Fragment(orjson.dumps(task.context))
    # Parsing a body again would block the loop for up to half a second. None is needed: what is no
    # JSON object became no task of a pool, unless something beside groupflow wrote it.
    if _OBJECT.match(task.body):
        facts["body"] = orjson.Fragment(task.body)
    else:
        facts["body_base64"] = base64.b64encode(task.body).decode()
    return facts if since is None else {**facts, "since": since}
