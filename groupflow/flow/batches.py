"""A batch: tasks of one group under one claim, which one call of a handler takes.

It is a run (`slots.py`) that the handler gets at once. The first task that isn't done ends it: the
tasks in front are settled as done, that one as usual, and those behind never left their lane.

A handler that isn't Python gets a line of JSON a task. Its answer may have a line a task, which
says what became of the next one: ``{"outcome": "done"}``, ``retry`` (with ``after`` and ``scope``),
``dead`` (both with a ``reason``), or ``{"stage": …, "context": …}``. Other lines are plain output,
and say nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Sequence
from itertools import islice
from typing import Any

import orjson

from groupflow.core.outcome import SCOPES, Advance, Dead, Done, Outcome, Retry, wrong_stage
from groupflow.core.policy import Policy
from groupflow.core.task import Task, facts_of
from groupflow.flow.handling import Failed, Runner, checked, text_of
from groupflow.flow.slots import GroupRun
from groupflow.store.given import Claim

_ON_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
_OUTCOMES = ("done", "retry", "dead")


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


def outcomes_in(answer: bytes, number: int, end: Outcome | Failed) -> list[Outcome | Failed]:
    """The outcomes of a batch's tasks, up to the first that isn't done.

    Args:
        answer: what the handler wrote.
        number: how many tasks it was given.
        end: how the call ended. If it isn't `Done`, the first task without a line gets it; if it
            is and there are no lines at all, every task is done.
    """
    said: list[Outcome | Failed] = []
    for line in answer.splitlines():
        outcome = _outcome_in(line)
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


def _outcome_in(line: bytes) -> Outcome | Failed | None:
    try:
        answer = orjson.loads(line) if line.lstrip().startswith(b"{") else {}
    except orjson.JSONDecodeError:
        answer = {}
    reason = text_of(answer.get("reason"))
    said = answer.get("outcome")
    if said == "dead":
        return Dead(reason or "its handler says so")
    if said == "retry":
        return _retry(answer.get("after"), answer.get("scope", "task"), reason)
    if said is None or said == "done":
        return Done() if said else _advance_in(answer)
    what = f"its line says outcome = {text_of(said)!r}: one of {', '.join(_OUTCOMES)}"
    return Failed("Answer", what, is_final=True)


def _retry(after: Any, scope: Any, reason: str) -> Outcome | Failed:
    if scope in SCOPES and (after is None or isinstance(after, (int, float))):
        return Retry(after, reason, scope)
    what = f"it asks for a retry with after = {text_of(after)!r}, scope = {text_of(scope)!r}"
    return Failed("Answer", f"{what}: seconds, and one of {', '.join(SCOPES)}", is_final=True)


def end_in(answer: bytes) -> Outcome | Failed:
    """How an attempt ends that went well: a JSON answer may name its next stage."""
    try:
        return _advance_in(orjson.loads(answer)) or Done()
    except orjson.JSONDecodeError:
        return Done()


def _advance_in(answer: Any) -> Outcome | Failed | None:
    """The next stage that a JSON answer names, ``None`` where it names none."""
    if not isinstance(answer, dict) or "stage" not in answer:
        return None
    if wrong := wrong_stage(answer["stage"]):
        return Failed("ValueError", f"its answer can't be used: {wrong}", is_final=True)
    return Advance(answer["stage"], answer.get("context"))
