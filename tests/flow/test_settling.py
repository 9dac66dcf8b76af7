"""settle: each answer of a handler leads to one settlement, which the store can write."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, cast

import orjson
import pytest

from groupflow.broker.publisher import Message
from groupflow.core.events import Told
from groupflow.core.outcome import Advance, Dead, Done, Outcome, Retry, Turn
from groupflow.core.policy import Policy, RetryPolicy
from groupflow.flow.handling import MESSAGE_CHARS, Failed, failed
from groupflow.flow.settling import CONTEXT_BYTES, EARLIER_CHARS, ERRORS_KEPT, Ran, settlement_of
from groupflow.settings.types import YEAR
from groupflow.store import settlements
from groupflow.store.settlements import Settlement, calls_of
from tests.flow.tasks import claim, task


def policy(attempts: int = 3, interval: float = -10, jitter: float = 0.0, **facts: Any) -> Policy:
    usual = {"on_retry": "hold", "parks": False, "stage_order": "hold"}
    return Policy(RetryPolicy(attempts, interval, jitter), **{**usual, **facts})


RAN = Ran(at=1_700_000_000.1234, seconds=0.25, daemon="d1")


def settle(outcome: Any, policy: Policy, attempt: int = 1, errors: Any = None) -> Any:
    given = claim(task(attempt=attempt, stage="s"), errors=errors)
    return settlement_of(given, outcome, policy, RAN, lambda: 0.5)


def shape(settlement: Settlement) -> tuple[Any, ...]:
    """What a settlement says beside its claim and its errors."""
    match settlement:
        case settlements.Retry(after=after, standing=standing, scope=scope):
            return ("retry", after, standing, *([] if scope == "task" else [scope]))
        case settlements.Advance(stage=stage, context=context, standing=standing):
            return ("advance", stage, context, standing)
        case settlements.Bury(reason=reason, park=park):
            return ("bury", reason, "park" if park else "skip")
    return (type(settlement).__name__.lower(),)


ODD = ["x", 10**400, []]
FAILED = Failed("KeyError", "'name'")
FOLLOWING, NO_MESSAGE = "follow-up task 1", "groupflow.Message, but int"
NO_OBJECT = "the body is not a JSON object but a list of 0"
NO_TEXT = f"{FOLLOWING}: the type has to be a text of 1 to 255 bytes"
NAN, NO_NUMBER = Decimal("NaN"), f"{FOLLOWING}: [<class 'decimal.InvalidOperation'>]"
CONTROLS = "the stage has control characters, or half a character: "
TOO_LONG = "the stage has 1025 characters, over 1024"
FINAL = Failed("KeyError", "'name'", is_final=True)


SETTLEMENTS: list[Any] = [
    (Done(), policy(), 1, ("complete",)),
    (Done(then=[cast(Any, 7)]), policy(), 1, ("bury", f"{FOLLOWING} is no {NO_MESSAGE}", "skip")),
    (Done(then=[Message("[]")]), policy(), 1, ("bury", f"{FOLLOWING}: {NO_OBJECT}", "skip")),
    (Done(then=[Message({}, type=cast(Any, 7))]), policy(), 1, ("bury", NO_TEXT, "skip")),
    (Done(then=[Message({}, delay=cast(Any, NAN))]), policy(), 1, ("bury", NO_NUMBER, "skip")),
    # A failure waits as the policy says, by the rule's standing, until the attempts are up.
    (FAILED, policy(), 1, ("retry", 10, "hold")),
    (FAILED, policy(on_retry="step-aside"), 2, ("retry", 10, "step-aside")),
    (FAILED, policy(jitter=0.4), 1, ("retry", 8, "hold")),
    (FAILED, policy(), 3, ("bury", "KeyError: 'name'", "skip")),
    (FAILED, policy(parks=True), 3, ("bury", "KeyError: 'name'", "park")),
    (Failed("KeyError", ""), policy(attempts=1), 1, ("bury", "KeyError", "skip")),
    # A final one does not wait.
    (FINAL, policy(parks=True), 1, ("bury", "KeyError: 'name'", "park")),
    # A Retry counts as an attempt, with or without a delay.
    (Retry(), policy(), 1, ("retry", 10, "hold")),
    (Retry(after=2.5), policy(), 1, ("retry", 2.5, "hold")),
    (Retry(after=0), policy(on_retry="step-aside"), 1, ("retry", 0, "step-aside")),
    (Retry(after=-3), policy(), 1, ("retry", 0, "hold")),
    # A delay is one that can be kept; where it is none at all, the policy's own holds.
    (Retry(after=float("nan")), policy(), 1, ("retry", 0, "hold")),
    (Retry(after=YEAR + 1.0), policy(), 1, ("retry", YEAR, "hold")),
    *((Retry(after=cast(Any, odd)), policy(), 1, ("retry", 10, "hold")) for odd in ODD),
    (Retry(after=2.5, reason="busy"), policy(), 3, ("bury", "busy", "skip")),
    (Retry(), policy(), 3, ("bury", "Retry", "skip")),
    (Retry(after=3, scope="group"), policy(), 1, ("retry", 3, "hold", "group")),
    # An Advance never uses an attempt up.
    (Advance("two"), policy(), 1, ("advance", "two", b"null", "hold")),
    (Advance("two", {"a": 1}), policy(), 3, ("advance", "two", b'{"a":1}', "hold")),
    (
        Advance("b", [1]),
        policy(stage_order="step-aside"),
        1,
        ("advance", "b", b"[1]", "step-aside"),
    ),
    # A stage that no command could be given ends it.
    (Advance("a\0b"), policy(), 1, ("bury", f"{CONTROLS}'a\\x00b'", "skip")),
    (Advance("\ud800"), policy(), 1, ("bury", f"{CONTROLS}'\\ud800'", "skip")),
    (Advance(""), policy(), 1, ("bury", "the stage is no text: ''", "skip")),
    (Advance("x" * 1025), policy(), 1, ("bury", TOO_LONG, "skip")),
    (Advance("x" * 1024), policy(), 1, ("advance", "x" * 1024, b"null", "hold")),
    # A Dead uses up all of them.
    (Dead("no such tenant"), policy(parks=True), 1, ("bury", "no such tenant", "park")),
    (Dead(""), policy(), 1, ("bury", "Dead", "skip")),
]


@pytest.mark.parametrize(("outcome", "policy", "attempt", "expected"), SETTLEMENTS)
def test_an_outcome_is_one_settlement(
    outcome: Outcome | Failed, policy: Policy, attempt: int, expected: tuple[Any, ...]
) -> None:
    assert shape(settle(outcome, policy, attempt)) == expected


WHERE = {"at": 1_700_000_000.123, "seconds": 0.25, "daemon": "d1"}


def test_a_failure_is_remembered_with_its_attempt_stage_fence_time_and_place() -> None:
    settlement = settle(FAILED, policy(), attempt=2)
    noted = {"attempt": 2, "stage": "s", "fence": 7, "error": "KeyError", "message": "'name'"}
    assert settlement.errors == [{**noted, **WHERE}]


def test_the_last_failure_keeps_its_traceback_and_those_before_it_a_short_line() -> None:
    raised = Failed("KeyError", "x" * 900, traceback="Traceback …")
    first = settle(raised, policy())
    assert first.errors[-1]["traceback"] == "Traceback …"
    second = settle(raised, policy(), errors=first.errors)
    assert [error.get("traceback") for error in second.errors] == [None, "Traceback …"]
    assert [len(error["message"]) for error in second.errors] == [EARLIER_CHARS, 900]
    assert second.errors[0].keys() >= WHERE.keys()
    assert first.errors[-1]["traceback"], "the claim's own errors are left as they were"


@pytest.mark.parametrize("outcome", [FAILED, FINAL, Retry(), Dead("no")])
def test_only_the_latest_failures_are_kept(outcome: Outcome | Failed) -> None:
    before = [{"attempt": n, "error": "E", "message": ""} for n in range(ERRORS_KEPT)]
    kept = settle(outcome, policy(), errors=before).errors
    assert (len(kept), kept[:-1]) == (ERRORS_KEPT, before[1:])
    assert len(before) == ERRORS_KEPT


UNFIT: list[Any] = [
    (object(), "no JSON"),
    ({1: 2}, "no JSON"),
    (2**70, "no JSON"),
    ("\ud800", "no JSON"),
    ("x" * CONTEXT_BYTES, f"over {CONTEXT_BYTES}"),
]


@pytest.mark.parametrize(("context", "said"), UNFIT)
def test_a_context_that_cant_be_carried_is_a_dead_letter(context: Any, said: str) -> None:
    settlement = settle(Advance("two", context), policy(parks=True))
    assert (shape(settlement)[0], settlement.park) == ("bury", True)
    assert said in settlement.reason


def test_a_turn_goes_on_with_all_rows_that_wait() -> None:
    """The first one after a change of `shards` has those of all shards before."""
    settlement = settle(Turn("page", {"deferred": "x" * CONTEXT_BYTES}), policy(parks=True))
    assert shape(settlement)[0] == "advance"


@pytest.mark.parametrize("deep", [245, 246, 247, 253, 254, 255])
def test_each_result_that_is_kept_can_be_told(deep: int) -> None:
    """With others around it, or the relay would stand at it for good."""
    settlement = settle(Done(orjson.loads(b"[" * deep + b"]" * deep)), policy())
    told = orjson.loads(Told.of(b"%016d" % 1 + settlement.told).body)
    assert (told["result"] is None) == ("result_error" in told) == (deep > 246)


# Handlers are strangers' code: all that they put into an outcome must become a call that can be
# sent, or the daemon that sends it falls over its own settlement, and the next daemon after it.


STRANGE: list[Any] = [
    Retry(after=float("nan")),
    Retry(after=10.0**30),
    Retry(after="soon"),  # type: ignore[arg-type]
    Retry(reason="a file named \udcff"),
    Retry(reason=None),  # type: ignore[arg-type]
    Retry(reason=KeyError("x")),  # type: ignore[arg-type]
    Advance("two\udcff", {}),
    Advance(2, {}),  # type: ignore[arg-type]
    Dead("a file named \udcff"),
    Dead(ValueError("no")),  # type: ignore[arg-type]
    Dead(None),  # type: ignore[arg-type]
    Failed("FileNotFoundError", "[Errno 2] No such file: 'a\udcff'"),
]


@pytest.mark.parametrize("outcome", STRANGE)
@pytest.mark.parametrize("attempts", [1, 3])
def test_each_settlement_can_be_sent(outcome: Outcome | Failed, attempts: int) -> None:
    settlement = settle(outcome, policy(attempts=attempts))
    _, [(_, arguments)] = calls_of(["daemon", "1"], "plain", [settlement], [])
    for argument in arguments:
        assert isinstance(argument, (str, bytes, int))
        if isinstance(argument, str):
            argument.encode()
        if isinstance(argument, int):
            assert abs(argument) < 2**53  # what a Lua number holds exactly


SECRET: list[Any] = [
    Dead("can't get https://T0KEN@h/x?access_token=T0KEN"),
    Retry(reason="can't get https://T0KEN@h/x?access_token=T0KEN"),
    failed(ValueError("x" * (MESSAGE_CHARS - 12) + " https://T0KEN@h/x")),
]


@pytest.mark.parametrize("outcome", SECRET)
@pytest.mark.parametrize("attempt", [1, 3])
def test_passwords_of_urls_are_in_no_reason(outcome: Outcome | Failed, attempt: int) -> None:
    """An error names the URL that failed, and a dead letter shows it to all who may look."""
    settlement = settle(outcome, policy(), attempt=attempt)
    assert "T0K" not in str(calls_of([], "plain", [settlement], [])[1])
    assert "https://" in settlement.errors[-1]["message"]


@pytest.mark.parametrize("attempts", [3, 1])
def test_an_advance_without_room_is_a_failed_attempt_by_the_policy(attempts: int) -> None:
    settlement = settle(Advance("two", {"rows": 3}), policy(attempts=attempts, parks=True))
    assert shape(settlement)[0] == "advance"
    otherwise = settlement.otherwise
    assert shape(otherwise)[0] == ("retry" if attempts > 1 else "bury")
    error = otherwise.errors[-1]
    assert (error["attempt"], error["error"], error["daemon"]) == (1, "Advance", "d1")
    assert "no room for the 10 bytes" in error["message"]
    assert "redis.carried_memory" in error["message"]
    if attempts == 1:
        assert (otherwise.reason, otherwise.park) == (error["message"], True)
    turn = settle(Turn("page", {}), policy())
    assert turn.otherwise is None, "a shard's turn is never refused"


def test_the_errors_of_a_task_are_bounded_with_any_text() -> None:
    """They stay in Redis with the task, and are never refused."""
    nasty, errors = "\x00" * 10 * MESSAGE_CHARS, list[dict[str, Any]]()
    for attempt in range(1, 40):
        given = claim(task(attempt=attempt, stage=nasty[:MESSAGE_CHARS]), errors=errors)
        settlement = settlement_of(given, Failed(nasty, nasty), policy(attempts=50), RAN)
        errors = cast(settlements.Retry, settlement).errors
    _, [(_, arguments)] = calls_of([], "plain", [settlement], [])
    assert max(len(each) for each in arguments if isinstance(each, bytes)) < 150_000
