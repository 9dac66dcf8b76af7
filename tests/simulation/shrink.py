"""Makes a failing run smaller before it is shown: as few faults and messages as still break it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tests.simulation.plan import Plan

Breaks: TypeAlias = Callable[[Plan], bool]

TRIES = 120  # runs that shrinking may take


def shrunk(plan: Plan, breaks: Breaks, tries: int = TRIES) -> Plan:
    """A plan with parts left out that breaks the same promise.

    Args:
        plan: one that breaks it.
        breaks: runs a plan, and says whether it does too.
        tries: how many runs that may take.
    """
    left = tries
    for kind in Plan.PARTS:
        size = max(1, len(plan.parts(kind)) // 2)
        while size and left:
            at = 0
            while at < len(plan.parts(kind)) and left:
                smaller = plan.without(kind, at, at + size)
                left -= 1
                if breaks(smaller):
                    plan = smaller
                else:
                    at += size
            size //= 2
    return plan
