"""A batch: tasks of one group under one claim, which one call of a handler takes.

It is a run (`run.py`) that is handed over at once. The first task that isn't done ends it: those in
front are told as done, it is settled as ever, and those behind it never left their lane.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import islice
from typing import Any

from groupflow.core.outcome import Done, Outcome
from groupflow.core.policy import Policy
from groupflow.core.task import Task
from groupflow.flow.handling import Failed, Runner, checked
from groupflow.flow.run import Run
from groupflow.store.given import Claim


class Together(ABC):
    """What runs several tasks of a type in one call."""

    size: int  # most tasks of a call

    @abstractmethod
    async def handle_all(self, tasks: Sequence[Task]) -> list[Outcome | Failed]:
        """One attempt at all of them, in order.

        Returns:
            What became of the first ones, one or more: all in front of the last one are done.
            Those of which nothing is said weren't tried.
        """


def together(claim: Claim, run: Run, runner: Runner, policy: Policy) -> Sequence[Task]:
    """The tasks that one call is given; none where it is given the claim's own alone."""
    if policy.batch == 1:
        return ()
    run.is_ending = True  # what stands behind was claimed to be handed over, not to be run
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
        outcome = answer if isinstance(answer, Failed) else checked(answer)
        return [outcome] * number if isinstance(outcome, Done) else [outcome]
    if len(answer) != number:
        what = f"a batch handler answers for each of its {number} tasks, and not for {len(answer)}"
        return [Failed("ValueError", what, is_final=True)]
    return until_one_is_not_done([checked(each) for each in answer])


def until_one_is_not_done(outcomes: Sequence[Outcome | Failed]) -> list[Outcome | Failed]:
    """The first ones, up to the one that ends the batch."""
    for place, outcome in enumerate(outcomes):
        if not isinstance(outcome, Done):
            return list(outcomes[: place + 1])
    return list(outcomes)
