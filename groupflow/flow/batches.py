"""A batch: tasks of one group under one claim, which one call of a handler takes.

It is a run (`slots.py`) that the handler gets at once. The first task that isn't done ends it: the
tasks in front are settled as done, that one as usual, and those behind never left their lane.
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
from groupflow.flow.slots import GroupRun
from groupflow.store.given import Claim


class Together(ABC):
    """A runner that runs several tasks of a type in one call."""

    size: int  # most tasks of a call

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
        outcome = answer if isinstance(answer, Failed) else checked(answer)
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
