"""settle: turns an outcome into exactly one settlement. Pure; the store writes it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from groupflow.broker.publisher import Message, Outgoing
from groupflow.core.errors import Unroutable
from groupflow.core.events import (
    FOLLOWING_BYTES,
    MOST_FOLLOWING,
    Following,
    entry_of_done,
    packed_result,
)
from groupflow.core.outcome import (
    Advance,
    Dead,
    Done,
    FollowUp,
    Halt,
    Outcome,
    Retry,
    Turn,
    wrong_stage,
)
from groupflow.core.policy import Policy
from groupflow.core.tracing import CARRIED
from groupflow.flow.handling import Failed, message_of, text_of
from groupflow.settings.types import YEAR
from groupflow.store import settlements
from groupflow.store.given import Claim
from groupflow.store.settlements import Settlement

ERRORS_KEPT = 20  # of a task's failed attempts; the oldest are dropped first
EARLIER_CHARS = 300  # of an error's text once another has followed; its traceback is dropped
CONTEXT_BYTES = 1024 * 1024  # of a stage's context: it is carried with every claim


@dataclass(frozen=True, slots=True)
class Ran:
    """When and where an attempt ran: kept with a failed one."""

    at: float  # when it began, Unix seconds by its daemon's clock
    seconds: float  # how long it took
    daemon: str  # the daemon that ran it
    tells: bool = False  # whether all are told that it is done


def settlement_of(
    claim: Claim,
    outcome: Outcome | Failed,
    policy: Policy,
    ran: Ran,
    chance: Callable[[], float] = random.random,
) -> Settlement:
    """The one settlement that an outcome leads to.

    `chance` gives a random number from 0 to 1, for the jitter of a delay.
    """
    if isinstance(outcome, Done):
        settlement = _completed(claim, outcome, policy, ran)
    else:
        settlement = _settlement_of(claim, outcome, policy, chance)
    failed: Settlement | None = settlement
    if isinstance(settlement, settlements.Advance):
        rows = outcome.rows if isinstance(outcome, Turn) else (0, 0)
        settlement = replace(settlement, seconds=ran.seconds, rows=rows)
        failed = settlement.otherwise
    if isinstance(failed, (settlements.Retry, settlements.Bury)):
        facts = {"at": round(ran.at, 3), "seconds": round(ran.seconds, 6), "daemon": ran.daemon}
        if isinstance(outcome, Failed) and outcome.traceback:
            facts["traceback"] = outcome.traceback
        failed.errors[-1].update(facts)
    return settlement


def deferred(claim: Claim, within: float, policy: Policy, ran: Ran) -> settlements.Defer:
    """The settlement of a task whose type has no handler here.

    It is dead once no living daemon has known the type for `within` seconds.
    """
    reason = f"no daemon has known its type {claim.task.type!r} for {within:g} s"
    buried = settlement_of(claim, Dead(reason), policy, ran)
    assert isinstance(buried, settlements.Bury)  # noqa: S101  as of every `Dead`
    return settlements.Defer(claim, within, buried)


def _completed(claim: Claim, done: Done, policy: Policy, ran: Ran) -> Settlement:
    """A task is done, unless it asks for follow-up tasks that can't be: then it is dead."""
    if not (ran.tells or done.says_more or "reply_to" in (claim.origin or ())):
        return settlements.Complete(claim, ran.seconds)
    try:
        then = following_of(done.then)
    except Unroutable as error:
        return _bury(claim, "Done", error.reason, policy)
    result, wrong = (b"", "") if done.result is None else packed_result(done.result)
    facts = (claim.task, claim.origin, claim.redriven, ran.seconds, ran.daemon)
    told = entry_of_done(*facts, result, wrong, then, CARRIED.get())
    kept = b'{"result":%b}' % result if result else b""
    if wrong:
        kept = orjson.dumps({"result_error": wrong})
    return settlements.Complete(claim, ran.seconds, told, kept)


def following_of(
    messages: Sequence[FollowUp], check: Callable[[Message], Outgoing] = Message.checked
) -> list[Following]:
    """The follow-up tasks that a handler asks for, each as `check` lets it go out.

    Raises:
        Unroutable: one can't be a task; or they are too many, or too large together.
    """
    if not isinstance(messages, (list, tuple)) or len(messages) > MOST_FOLLOWING:
        raise Unroutable(f"then has to be a list of at most {MOST_FOLLOWING} messages")
    found, size = list[Following](), 0
    for place, message in enumerate(messages, 1):
        if not isinstance(message, Message):
            what = type(message).__name__
            raise Unroutable(f"follow-up task {place} is no groupflow.Message, but {what}")
        try:
            outgoing = check(message)
            body = outgoing.body.decode()
            size += len(outgoing.body) + len(orjson.dumps(outgoing.headers))
        except (Unroutable, TypeError, ValueError, ArithmeticError) as error:
            raise Unroutable(f"follow-up task {place}: {error}") from None
        found.append(Following(outgoing.type, body, outgoing.headers))
    if size > FOLLOWING_BYTES:
        raise Unroutable(f"the follow-up tasks have {size} bytes, over {FOLLOWING_BYTES}")
    return found


def _settlement_of(
    claim: Claim,
    outcome: Retry | Advance | Dead | Failed,
    policy: Policy,
    chance: Callable[[], float],
) -> Settlement:
    match outcome:
        case Dead(reason):
            buried = _bury(claim, "Dead", reason, policy)
            if isinstance(outcome, Halt):
                context = orjson.dumps(outcome.context)
                buried = replace(buried, context=context, rows=outcome.rows)
            return buried
        case Advance():
            return _advance(claim, outcome, policy, chance)
        case Failed(error, message, is_final):
            if is_final:
                return _bury(claim, error, message, policy)
            return _retry(claim, error, message, Retry(), policy, chance)
        case Retry(_, reason):
            return _retry(claim, "Retry", reason, outcome, policy, chance)


def _retry(  # noqa: PLR0917  private, and called twice
    claim: Claim,
    error: str,
    message: str,
    asked: Retry,
    policy: Policy,
    chance: Callable[[], float],
) -> settlements.Retry | settlements.Bury:
    delay = policy.retry.delay_after(claim.task.attempt, chance())
    if delay is None:
        return _bury(claim, error, message, policy)
    return settlements.Retry(
        claim,
        after=_seconds(delay if asked.after is None else asked.after, otherwise=delay),
        errors=_errors(claim, error, message),
        standing=policy.on_retry,
        scope=asked.scope,
    )


def _seconds(after: Any, *, otherwise: float) -> float:
    """A delay that the store can keep; a handler may have answered anything."""
    try:
        seconds = float(after)
    except (TypeError, ValueError, OverflowError):
        seconds = otherwise
    return 0.0 if math.isnan(seconds) else min(max(0.0, seconds), YEAR)


def _advance(
    claim: Claim, outcome: Advance, policy: Policy, chance: Callable[[], float]
) -> Settlement:
    stage, context = outcome.stage, outcome.context
    if wrong := wrong_stage(stage if isinstance(stage, str) else text_of(stage)):
        return _bury(claim, "Advance", wrong, policy)
    try:
        packed = orjson.dumps(context)
    except (TypeError, ValueError) as error:
        return _bury(
            claim, "Advance", f"the context of stage {stage!r} is no JSON: {error}", policy
        )
    # A `Turn`'s task never ends. Its context replaces the last one; it can't go on without it.
    is_turn = isinstance(outcome, Turn)
    if len(packed) > CONTEXT_BYTES and not is_turn:
        message = f"the context of stage {stage!r} has {len(packed)} bytes, over {CONTEXT_BYTES}"
        return _bury(claim, "Advance", message, policy)
    after = _seconds(outcome.after, otherwise=0.0)
    forgets_crashes = isinstance(outcome, Turn) and not outcome.crashed
    otherwise = None
    if not is_turn:
        message = no_room_to_carry(text_of(stage), len(packed))
        otherwise = _retry(claim, "Advance", message, Retry(), policy, chance)
    return settlements.Advance(
        claim, text_of(stage), packed, policy.stage_order, after, forgets_crashes, otherwise
    )


def no_room_to_carry(stage: str, size: int) -> str:
    """Why an advance with a context of so many bytes is a failed attempt."""
    return (
        f"there is no room for the {size} bytes that it hands on to stage {stage[:100]!r}: what "
        "tasks carry from stage to stage, those of its tenant or all, is as much as "
        "redis.carried_memory and redis.tenant_share let it be"
    )


def _bury(claim: Claim, error: str, message: str, policy: Policy) -> settlements.Bury:
    message = message_of(message)
    named = error in ("Done", "Dead", "Retry", "Advance")
    reason = message if named and message else f"{error}: {message}" if message else error
    return settlements.Bury(claim, reason, _errors(claim, error, message), policy.parks)


def _errors(claim: Claim, error: str, message: str) -> list[dict[str, Any]]:
    entry = {
        "attempt": claim.task.attempt,
        "stage": claim.task.stage and claim.task.stage[:EARLIER_CHARS],
        "fence": claim.fence,
        "error": error[:EARLIER_CHARS],
        "message": message_of(message),
    }
    earlier = [earlier_error(error) for error in claim.errors[1 - ERRORS_KEPT :]]
    return [*earlier, entry]


def earlier_error(error: dict[str, Any]) -> dict[str, Any]:
    """An error as kept once another has followed, so that twenty of them stay small."""
    short = {name: fact for name, fact in error.items() if name != "traceback"}
    return {**short, "message": error["message"][:EARLIER_CHARS]}
