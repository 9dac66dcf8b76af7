"""settle: turn an outcome into exactly one settlement. Pure; the store writes it."""

from __future__ import annotations

from typing import Any

from groupflow.core.outcome import Advance, Dead, Done, Outcome, Retry
from groupflow.flow.handling import Failed
from groupflow.store.claims import Bury, Claim, Complete, Settlement

ERRORS_KEPT = 20  # of a task's failed attempts; the oldest go first


def settlement_of(claim: Claim, outcome: Outcome | Failed) -> Settlement:
    """The one settlement that an outcome leads to."""
    match outcome:
        case Done():
            return Complete(claim)
        case Dead(reason):
            return _bury(claim, "dead", reason)
        case Failed(error, message):
            return _bury(claim, error, f"{error}: {message}")
        case Retry(reason=reason):
            return _bury(claim, "retry", reason or "the handler asked for a retry")
        case Advance():
            return _bury(claim, "advance", "stages are not supported yet")


def _bury(claim: Claim, error: str, reason: str) -> Bury:
    return Bury(claim, reason, [*claim.errors, attempt_error(claim, error, reason)][-ERRORS_KEPT:])


def attempt_error(claim: Claim, error: str, message: str) -> dict[str, Any]:
    """One entry in a task's history of attempts."""
    return {
        "attempt": claim.task.attempt,
        "stage": claim.task.stage,
        "fence": claim.fence,
        "error": error,
        "message": message,
    }
