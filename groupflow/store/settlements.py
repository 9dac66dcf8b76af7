"""settle: the six ways in which a claim ends, each as the one script call that writes it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import orjson

from groupflow.core.measures import DURATIONS, OTHER
from groupflow.core.outcome import Scope
from groupflow.core.policy import Standing
from groupflow.store.carrying import CarriedLimits
from groupflow.store.client import Argument, Call
from groupflow.store.clock import MICROSECONDS, microseconds
from groupflow.store.enqueue import REJECTED
from groupflow.store.envelope import Pool
from groupflow.store.given import Claim
from groupflow.store.scripts import Verb

# Bytes of bodies that one exchange frees, about, and of what it brings: Redis frees bodies as its
# script goes, and takes 1 ms for 15 MiB.
FREED = 32 << 20


@dataclass(slots=True)  # a frozen one takes three times as long to make, once a task
class Complete:
    """The task is done."""

    outcome: ClassVar = "complete"
    claim: Claim
    seconds: float = 0.0  # how long its last attempt took
    told: bytes = b""  # its entry for the outbox, empty where its end isn't told
    result: bytes = b""  # what the history keeps beside it (JSON), empty for nothing


@dataclass(frozen=True, slots=True)
class Release:
    """The task goes back unfinished, to its place in its group."""

    outcome: ClassVar = "release"
    claim: Claim


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed, and the task waits for its next one."""

    outcome: ClassVar = "retry"
    claim: Claim
    after: float  # seconds until it is due
    errors: list[dict[str, Any]]  # the history of its attempts
    standing: Standing = "hold"  # whether it holds its group meanwhile or steps aside
    scope: Scope = "task"  # nothing of that starts until then


@dataclass(frozen=True, slots=True)
class Bury:
    """The task becomes a dead letter."""

    outcome: ClassVar = "bury"
    claim: Claim
    reason: str
    errors: list[dict[str, Any]]  # the history of its attempts
    park: bool = False  # whether its group waits behind it
    # what it begins with when it is redriven, a JSON text; None for what it had
    context: bytes | None = None
    rows: tuple[int, int] = (0, 0)  # of a scan: that it has done, and that failed and come again


@dataclass(frozen=True, slots=True)
class Defer:
    """This daemon has no handler of the task's type, and the task waits for one that has."""

    outcome: ClassVar = "defer"
    claim: Claim
    within: float  # seconds that it waits at most since any living daemon last knew the type
    otherwise: Bury  # what is written once that is over


@dataclass(frozen=True, slots=True)
class Advance:
    """The stage is done, and the task waits for its next one."""

    outcome: ClassVar = "advance"
    claim: Claim
    stage: str  # the next stage's name
    context: bytes  # what it is handed, a JSON text
    standing: Standing = "hold"  # whether it stays the head of its group or lines up again
    after: float = 0.0  # seconds until that stage is due
    forgets_crashes: bool = False  # whether the crashes so far no longer count
    # what is written instead where there is no room for what the task would carry; None where it is
    # never refused
    otherwise: Retry | Bury | None = None
    seconds: float = 0.0  # how long its attempt took
    rows: tuple[int, int] = (0, 0)  # as of `Bury`


@dataclass(frozen=True, slots=True)
class Proceed:
    """The first tasks of a run are done, and its slot goes on with the next one, or has ended."""

    outcome: ClassVar = "complete"
    done: Sequence[Complete]  # in order: all whose end the store may not have
    following: Claim | None  # which the slot has begun, or is about to settle

    @property
    def claim(self) -> Claim:
        """The claim of the first one."""
        return self.done[0].claim


Settlement: TypeAlias = Complete | Release | Retry | Advance | Bury | Defer | Proceed


def bytes_of(settlement: Settlement) -> int:
    """The bytes that a script frees for it, and those that it is brought."""
    freed = settlement.claim.apart or settlement.claim.bytes
    if isinstance(settlement, Complete):
        return freed + len(settlement.told) + len(settlement.result)
    return freed + len(settlement.context) if isinstance(settlement, Advance) else freed


def one_by_one(written: Sequence[Settlement]) -> list[Settlement]:
    """The settlements of single tasks."""
    found: list[Settlement] = []
    for each in written:
        found += each.done if isinstance(each, Proceed) else (each,)
    return found


def calls_of(
    front: list[Argument],
    pool: Pool,
    settlements: Sequence[Settlement],
    slots: Sequence[str],
    *,
    runs: bytes = b"",
    room: CarriedLimits = CarriedLimits(),  # noqa: B008  it never changes
    beyond: int = 0,
    types: Container[str] = (),
) -> tuple[list[Settlement], list[Call]]:
    """The script calls that write some settlements, then claim for some slots.

    What is done, what is handed back and what runs have done goes with the claims, in one call
    behind the rare others. If there are others, runs go first, as one of those may end a run.

    Args:
        front: the daemon and its session.
        pool: of which workers.
        settlements: what to write.
        slots: for which to claim.
        runs: by rule, how many tasks of a group may be run under one claim (JSON).
        room: what tasks may carry from stage to stage.
        beyond: for how many of the slots no worker waits.
        types: those that are counted by name.

    Returns:
        The settlements in the order of the verdicts that the calls will answer, and the calls.
    """
    proceeds: list[Proceed] = []
    done: list[Complete] = []
    back: list[Release] = []
    rest: list[Retry | Advance | Bury | Defer] = []
    for each in settlements:
        match each:
            case Complete():
                done.append(each)
            case Proceed():
                proceeds.append(each)
            case Release():
                back.append(each)
            case _:
                rest.append(each)
    calls: list[Call] = []
    if rest and proceeds:
        calls.append(_exchange(front, pool, runs, proceeds, [], [], [], 0, types))
    for single in rest:
        verb, arguments = _single(single, room, types)
        calls.append((verb, [*front, *_proof(single.claim), *arguments]))
    told = [] if rest else proceeds
    if told or done or back or slots:
        calls.append(_exchange(front, pool, runs, told, done, back, slots, beyond, types))
    return [*proceeds, *rest, *done, *back], calls


def _exchange(  # noqa: PLR0917  what the script takes, in its order
    front: list[Argument],
    pool: Pool,
    runs: bytes,
    told: Sequence[Proceed],
    done: Sequence[Complete],
    back: Sequence[Release],
    slots: Sequence[str],
    beyond: int,
    types: Container[str],
) -> Call:
    arguments = [*front, pool, len(done), len(back), runs, len(told), beyond]
    every = [*(each for run in told for each in run.done), *done] if told else done
    is_told = any(each.told or each.result for each in every)
    arguments += ("told" if is_told else "", *_tally(every, types))
    daemon = str(front[0])
    for run in told:
        arguments += _run(run, daemon, is_told=is_told)
    for complete in done:
        arguments += (*_proof(complete.claim), *_ending(complete, daemon, is_told=is_told))
    for release in back:
        arguments += _proof(release.claim)
    return Verb.EXCHANGE, [*arguments, *slots]


def _tally(done: Sequence[Complete], types: Container[str]) -> list[Argument]:
    """The kind of each task that is done, then the kinds and how many there are of each."""
    keys = [(each.claim.task.type, bisect_left(DURATIONS, each.seconds)) for each in done]
    kinds = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    if len(kinds) > 1:
        places = (kinds[key] for key in keys)
        order = bytes(part for place in places for part in (place >> 7, place & 127))
    else:  # nearly always
        order = bytes(2 * len(keys))
    found: list[Argument] = [order, len(kinds)]
    for key in kinds:
        type_, bucket = key
        found += (_kind("d", type_, types, f"{bucket:02}"), keys.count(key))
    return found


def _kind(end: str, type_: str, types: Container[str], bucket: str) -> str:
    """What an attempt is counted as: how it ended, the bucket of its duration, and its type."""
    return f"{end}{bucket}{type_ if type_ in types else OTHER}"


def _bucket_of(errors: Sequence[dict[str, Any]]) -> str:
    """The bucket of the last failed attempt, where there was one."""
    took = errors[-1].get("seconds") if errors else None
    return "--" if took is None else f"{bisect_left(DURATIONS, took):02}"


def _single(
    settlement: Retry | Advance | Bury | Defer, room: CarriedLimits, types: Container[str]
) -> tuple[Verb, list[Argument]]:
    match settlement:
        case Defer(claim, within, otherwise):
            _, arguments = _single(otherwise, room, types)
            return Verb.DEFER, [claim.task.type, microseconds(within), *arguments]
        case Retry(claim, after, errors, standing, scope):
            attempt, delay = claim.task.attempt + 1, microseconds(after)
            facts = [attempt, delay, standing, orjson.dumps(errors), scope]
            kind = _kind("f", claim.task.type, types, _bucket_of(errors))
            return Verb.RETRY, [*facts, *_tenant(claim), kind]
        case Advance(claim, stage, context, standing, after, forgets_crashes, otherwise):
            told: list[Argument] = [stage, context, standing, microseconds(after)]
            told += ("forget-crashes" if forgets_crashes else "", *_tenant(claim))
            bucket = f"{bisect_left(DURATIONS, settlement.seconds):02}"
            told += (_kind("s", claim.task.type, types, bucket), *settlement.rows)
            if otherwise is None:
                return Verb.ADVANCE, [*told, ""]
            verb, arguments = _single(otherwise, room, types)
            return Verb.ADVANCE, [*told, verb, room.every, room.tenant, *arguments]
        case Bury(claim, reason, errors, park, context, rows):
            # Only so many errors are kept, and what a message died of at the door was no attempt.
            attempts = max(claim.task.attempt, sum(is_attempt(error) for error in errors))
            return Verb.BURY, [
                *(reason, orjson.dumps(errors), "park" if park else "skip"),
                *(attempts, claim.task.type, claim.task.tenant or ""),
                errors[-1]["error"] if errors else "",
                claim.scope,
                *(_kind("x", claim.task.type, types, _bucket_of(errors)), *rows),
                *(() if context is None else (context,)),
            ]


def _tenant(claim: Claim) -> tuple[Argument, ...]:
    """The tenant and the scope of a task."""
    return claim.task.tenant or "", claim.scope


def is_attempt(error: dict[str, Any]) -> bool:
    """Whether an entry of a task's errors is of an attempt, not of its way in."""
    return error.get("error") != REJECTED


def _run(run: Proceed, daemon: str, *, is_told: bool) -> list[Argument]:
    claim, following = run.claim, run.following
    arguments: list[Argument] = [claim.slot, claim.task.group or ""]
    arguments += (b"%016d" % following.fence, following.entry) if following else ("", "")
    arguments.append(len(run.done))
    for done in run.done:
        arguments += (b"%016d" % done.claim.fence, done.claim.entry)
        arguments += _ending(done, daemon, is_told=is_told)
    return arguments


def _proof(claim: Claim) -> tuple[Argument, ...]:
    return claim.slot, b"%016d" % claim.fence, claim.entry, claim.task.group or ""


def _ending(done: Complete, daemon: str, *, is_told: bool) -> tuple[bytes, ...]:
    """The line of a task for the history, and what is told of it."""
    task, scope = done.claim.task, done.claim.scope
    lost = task.lost_leases
    # `round` takes as long as all the rest of this.
    came, ran_for = int(task.enqueued_at * MICROSECONDS + 0.5), int(done.seconds * MICROSECONDS)
    ran = [came, ran_for / MICROSECONDS, daemon]
    died = [task.crashes - lost, lost] if lost else task.crashes
    line = orjson.dumps(["done", task.type, task.group, task.attempt, died, ran, scope])
    return (line, done.told, done.result) if is_told else (line,)


def history_line(  # noqa: PLR0917  what the line has, in its order
    outcome: str, type_: str, group: str | None, attempt: int = 0, crashes: int = 0, lost: int = 0
) -> bytes:
    """What the history says of a task behind the time of its end, without its scope.

    A task that lost leases has them with its crashes, as a pair. What stands between these and its
    scope says more: of a task that is done when it came (µs), how many seconds its last attempt
    took, and on which daemon; of one that was cancelled or superseded by whom.
    """
    return orjson.dumps([outcome, type_, group, attempt, [crashes, lost] if lost else crashes])
