"""A batch: tasks of one group under one claim, which one call of a handler takes.

It is a run (`slots.py`) that the handler gets at once. The first task that isn't done ends it: the
tasks in front are settled as done, that one as usual, and those behind never left their lane.

A handler that isn't Python gets a line of JSON a task. Its answer may have a line a task, which
says what became of the next one: ``{"outcome": "done"}``, ``retry`` (with ``after`` and ``scope``),
``dead`` (both with a ``reason``), or ``{"stage": …, "context": …}``. Other lines are plain output,
and say nothing. Where the handler's table has ``result = true``, what is done may have a ``result``
and ``then``, follow-up tasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any, TypeAlias

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from groupflow.broker.publisher import Message
from groupflow.core.errors import Unroutable
from groupflow.core.events import MOST_FOLLOWING
from groupflow.core.json_text import Unkeepable, read_exactly, write_exactly
from groupflow.core.outcome import SCOPES, Advance, Dead, Done, Outcome, Retry, wrong_stage
from groupflow.core.policy import Policy
from groupflow.core.task import Task, facts_of
from groupflow.flow.handling import Failed, Runner, checked, text_of
from groupflow.flow.slots import GroupRun
from groupflow.store.given import Claim

LONGEST_ANSWER = 4 * 1024 * 1024  # bytes, where it says results, follow-up tasks, or lines
_ON_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
_OUTCOMES = ("done", "retry", "dead")
_OF_DONE = frozenset({"result", "then"})  # names that an answer may have
_ONLY_DONE = "and only what is done has a result or follow-up tasks"


class FollowUpTask(BaseModel):
    """A follow-up task as JSON says it; `Message` has what each field means."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    body: dict[str, Any] | str = Field(description="A JSON object; or its text, byte for byte.")
    type: str | None = None
    headers: dict[str, Any] = Field(default_factory=dict)
    priority: float | None = None
    delay: float | None = None
    expires: float | None = None

    def message(self) -> Message:
        """The message that it will be.

        Raises:
            Unroutable: its body is nested too deep.
        """
        facts = dict(self)
        try:
            if not isinstance(self.body, str):
                facts["body"] = write_exactly(self.body)
        except RecursionError:
            raise Unroutable("the body of a follow-up task is nested too deep") from None
        return Message(**facts)


FollowUpTasks: TypeAlias = Annotated[list[FollowUpTask], Field(max_length=MOST_FOLLOWING)]
_FOLLOW_UPS = TypeAdapter[list[FollowUpTask]](FollowUpTasks)


class Together(ABC):
    """A runner that runs several tasks of a type in one call."""

    size: int  # most tasks of a call

    async def handle(self, task: Task) -> Outcome | Failed:
        """One attempt at one task, as at several."""
        return (await self.handle_all([task]))[0]

    @abstractmethod
    async def handle_all(self, tasks: Sequence[Task]) -> list[Outcome | Failed]:
        """One attempt at all of them, in order.

        Returns:
            The outcomes of the first tasks, one or more: all before the last are done. Tasks
            without an outcome weren't tried.
        """


def together(claim: Claim, run: GroupRun, runner: Runner, policy: Policy) -> Sequence[Task]:
    """The tasks for one call; none where the call gets the claim's own task alone."""
    if policy.batch == 1:
        return ()
    run.is_ending = True  # the rest was claimed for this call, not to run after it
    if not isinstance(runner, Together):
        return ()
    found = [claim.task]
    for following in islice(run.rest, min(policy.batch, runner.size) - 1):
        if following.task.type != claim.task.type:
            break
        found.append(following.task)
    return found


def outcomes_of(answer: Any, number: int) -> list[Outcome | Failed]:
    """A batch handler's answer: `None`, one outcome for all, or one for each of its tasks."""
    if not isinstance(answer, (list, tuple)):
        outcome = checked(answer)
        return [outcome] * number if isinstance(outcome, Done) else [outcome]
    if len(answer) != number:
        what = f"a batch handler answers for each of its {number} tasks, and not for {len(answer)}"
        return [Failed("ValueError", what, is_final=True)]
    return until_one_is_not_done([checked(each) for each in answer])


def until_one_is_not_done(outcomes: Sequence[Outcome | Failed]) -> list[Outcome | Failed]:
    """The first outcomes, up to the one that ends the batch."""
    for place, outcome in enumerate(outcomes):
        if not isinstance(outcome, Done):
            return list(outcomes[: place + 1])
    return list(outcomes)


def lines_of(tasks: Sequence[Task]) -> bytes:
    """The input of a call: the facts of each task, and its body."""
    return b"".join(
        orjson.dumps(
            {**facts_of(task), "headers": dict(task.headers), **_body_of(task.body)},
            option=orjson.OPT_APPEND_NEWLINE,
        )
        for task in tasks
    )


def _body_of(body: bytes) -> dict[str, Any]:
    """The body as it came, on one line; in base64 where it isn't JSON."""
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return {"body": None, "body_base64": b64encode(body).decode()}
    # Numbers stay as they were written. A line's end can only stand between two words of JSON.
    return {"body": orjson.Fragment(body.translate(_ON_ONE_LINE))}


def outcomes_in(
    answer: bytes, number: int, end: Outcome | Failed, *, has_result: bool = False
) -> list[Outcome | Failed]:
    """The outcomes of a batch's tasks, up to the first that isn't done.

    Args:
        answer: what the handler wrote.
        number: how many tasks it was given.
        end: how the call ended. If it isn't `Done`, the first task without a line gets it; if it
            is and there are no lines at all, every task is done.
        has_result: whether lines may say results and follow-up tasks.
    """
    said: list[Outcome | Failed] = []
    for line in answer.splitlines():
        outcome = _outcome_in(line, has_result)
        if outcome is not None:
            said.append(outcome)
            if not isinstance(outcome, Done):
                return said
        if len(said) == number:
            return said
    if not isinstance(end, Done):
        return [*said, end]
    if not said:
        return [Done()] * number
    what = f"it answered for {len(said)} of its {number} tasks, and it is for all of them or none"
    return [*said, Failed("Answer", what)]


def _outcome_in(line: bytes, has_result: bool) -> Outcome | Failed | None:
    answer = _object_in(line, has_result)
    if isinstance(answer, Failed):
        return answer
    reason = text_of(answer.get("reason"))
    said, says_more = answer.get("outcome"), not _OF_DONE.isdisjoint(answer)
    if says_more and said in ("retry", "dead"):
        return _unusable(f"it says outcome = {said!r}, {_ONLY_DONE}")
    if said == "dead":
        return Dead(reason or "its handler says so")
    if said == "retry":
        return _retry(answer.get("after"), answer.get("scope", "task"), reason)
    if said is None or said == "done":
        return _end_of(answer) or (Done() if said else None)
    what = f"its line says outcome = {text_of(said)!r}: one of {', '.join(_OUTCOMES)}"
    return Failed("Answer", what, is_final=True)


def _retry(after: Any, scope: Any, reason: str) -> Outcome | Failed:
    if scope in SCOPES and (after is None or isinstance(after, (int, float))):
        return Retry(after, reason, scope)
    what = f"it asks for a retry with after = {text_of(after)!r}, scope = {text_of(scope)!r}"
    return Failed("Answer", f"{what}: seconds, and one of {', '.join(SCOPES)}", is_final=True)


def end_in(answer: bytes, *, has_result: bool = False) -> Outcome | Failed:
    """How an attempt ends that went well: a JSON answer may name its next stage.

    With `has_result` it may say a result and follow-up tasks in place of one.
    """
    said = _object_in(answer, has_result)
    return said if isinstance(said, Failed) else _end_of(said) or Done()


def _object_in(text: bytes, has_result: bool) -> dict[str, Any] | Failed:
    """The JSON object that a text is, without what it may not say; empty where it is none."""
    if text.lstrip()[:1] != b"{":
        return {}
    try:
        found: dict[str, Any] = read_exactly(text)  # numbers of contexts and bodies stay whole
        return {name: found[name] for name in found if has_result or name not in _OF_DONE}
    except (Unkeepable, RecursionError) as error:
        return _unusable(str(error))
    except ValueError:
        return {}


def _end_of(answer: dict[str, Any]) -> Outcome | Failed | None:
    """What a JSON answer says of an attempt that went well; ``None`` where it says nothing."""
    says_more = not _OF_DONE.isdisjoint(answer)
    if "stage" not in answer:
        return _done(answer) if says_more else None
    if says_more:
        return _unusable(f"it names a stage, {_ONLY_DONE}")
    if wrong := wrong_stage(answer["stage"]):
        return _unusable(wrong)
    return Advance(answer["stage"], answer.get("context"))


def _done(answer: dict[str, Any]) -> Done | Failed:
    try:
        tasks = _FOLLOW_UPS.validate_python(answer.get("then", []))
        return Done(answer.get("result"), tuple(task.message() for task in tasks))
    except Unroutable as error:
        return _unusable(error.reason)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place, *names = wrong["loc"] or (None,)
        where = "then" if place is None else f"follow-up task {int(place) + 1}"
        return _unusable(f"{where}: {' '.join(str(name) for name in [*names, wrong['msg']])}")


def over_long(number: int = 1) -> Failed:
    """The failure of an answer that isn't read whole: taken for done, it would lose what it says.

    Of a `number` of tasks the first is tried again, and then it is alone.
    """
    what = f"its answer is over {LONGEST_ANSWER} bytes"
    return Failed("Answer", what, is_final=number == 1)


def _unusable(why: str) -> Failed:
    return Failed("ValueError", f"its answer can't be used: {why}", is_final=True)
