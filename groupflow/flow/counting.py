"""What one exchange, or one batch of messages, adds to the daemon's measures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal

import orjson
import structlog

from groupflow.core.measures import IntakeMeasures, PoolMeasures
from groupflow.store.claims import ExchangeReply
from groupflow.store.enqueue import Arrival, Enqueued
from groupflow.store.given import Claim
from groupflow.store.settlements import Advance, Defer, Settlement, one_by_one

log = structlog.get_logger("groupflow.exchange")
intake_log = structlog.get_logger("groupflow.intake")

FULL_TOLD = 10.0  # seconds between two lines of one rule about groups that are full
UNKNOWN_TOLD = 10.0  # the same of one type that no daemon knows
TYPES_TOLD = 1000  # of which that is known: types come from strangers


def count_exchange(
    measures: PoolMeasures, finished: Sequence[Settlement], answer: ExchangeReply
) -> None:
    """Count what was settled, without refusals, and what was claimed, also for runs."""
    refused, claims = answer.refused, answer.claims
    if not finished and not claims:
        return
    accepted = [each for each in finished if each not in refused] if refused else finished
    settled = one_by_one(accepted)
    rests = [claim.run for claim in claims if claim.run]
    given = len(claims) + sum(map(len, rests))
    measures.batches.observe(len(settled) + given)
    measures.claimed += given
    waiting = measures.waiting
    for claim in claims:
        if claim.waited is not None:
            waiting.observe(claim.waited)
    for rest in rests:
        for seconds in rest.waits():
            waiting.observe(seconds)
    types = measures.types
    for settlement in settled:
        is_cut = settlement in answer.cancelled or settlement in answer.replaced
        outcome = "cancel" if is_cut else settlement.outcome
        types.of(settlement.claim.task.type).settled[outcome] += 1


def report_lost(measures: PoolMeasures, claim: Claim) -> None:
    """Count and log a lost claim: another daemon may have its task, and nothing was written."""
    measures.lost += 1
    log.warning(
        "claim.lost",
        task=claim.task.id,
        group=claim.task.group,
        fence=claim.fence,
        slot=claim.slot,
    )


def report_ended(claim: Claim, how: Literal["cancelled", "superseded"]) -> None:
    """Log that a claim's task has ended unfinished: it was cancelled, or a newer one came."""
    task = claim.task
    log.info(f"task.{how}", task=task.id, type=task.type, group=task.group, fence=claim.fence)


def report_drained(claims: Sequence[Claim]) -> None:
    """Log the drains that these claims are the first to tell of, with what each says."""
    for claim in claims:
        if claim.drained and claim.waited is not None and claim.task.body:
            said = orjson.loads(claim.task.body)
            log.info("group.drained", task=claim.task.id, rule=claim.rule, **said)


def report_crowded_out(advance: Advance) -> None:
    """Log that the store had no room for what a stage hands on: its attempt has failed."""
    otherwise = advance.otherwise
    if otherwise is None:
        return
    task = advance.claim.task
    log.warning(
        "task.no_room_to_carry",
        task=task.id,
        type=task.type,
        group=task.group,
        tenant=task.tenant,
        outcome=otherwise.outcome,
        reason=otherwise.errors[-1]["message"],
    )


def report_given_up(defer: Defer) -> None:
    """Log that a task is dead, since no daemon has known its type for too long."""
    task = defer.claim.task
    log.error(
        "task.buried",
        task=task.id,
        type=task.type,
        group=task.group,
        fence=defer.claim.fence,
        reason=defer.otherwise.reason,
    )


class UnknownTypes:
    """Tells the log of types that no living daemon knows: one line a type and `UNKNOWN_TOLD`."""

    def __init__(self) -> None:
        self._told_at = dict[str, float]()  # by type, monotonic

    def tell(self, deferred: Sequence[Defer]) -> None:
        """Log what an exchange met."""
        now = monotonic()
        for each in deferred:
            task = each.claim.task
            if now - self._told_at.get(task.type, -UNKNOWN_TOLD) < UNKNOWN_TOLD:
                continue
            if len(self._told_at) >= TYPES_TOLD:
                self._told_at.clear()
            self._told_at[task.type] = now
            log.warning(
                "type.unknown",
                type=task.type,
                task=task.id,
                group=task.group,
                unknown_for=each.within,
                remedy="start a daemon that has a handler for it: its tasks wait for one, and are "
                "dead letters once no living daemon has known it for workers.unknown_for",
            )


def count_batch(measures: IntakeMeasures, arrivals: Sequence[Arrival], enqueued: Enqueued) -> None:
    """Count a batch that is stored and acked."""
    cancels = len(enqueued.cancels)
    new = enqueued.taken.count(True) - cancels
    measures.messages += len(arrivals)
    measures.duplicates += len(arrivals) - cancels - new
    measures.enqueued += new - count_ends(measures, arrivals, enqueued)
    for verdict in enqueued.cancels.values():
        measures.cancels[verdict] += 1
    measures.batches.observe(len(arrivals))


def count_ends(measures: IntakeMeasures, arrivals: Sequence[Arrival], enqueued: Enqueued) -> int:
    """Count tasks that are dead at once, and those superseded. Returns how many are dead."""
    buried = sum(
        taken and bool(arrival.dead)
        for arrival, taken in zip(arrivals, enqueued.taken, strict=True)
    )
    buried += len(enqueued.crowded_out) + len(enqueued.full)
    measures.buried += buried
    measures.superseded += enqueued.superseded
    for n in enqueued.full:
        measures.group_full[arrivals[n].envelope.rule or ""] += 1
    return buried


@dataclass(slots=True)
class FullGroups:
    """Tells the log of messages that full groups refused: one line a rule and `FULL_TOLD`."""

    _untold: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))  # by rule
    _told_at: dict[str, float] = field(default_factory=dict)  # by rule, monotonic

    def tell(self, arrivals: Sequence[Arrival], enqueued: Enqueued) -> None:
        """Log what a batch met; what is not told now is in the number of the next line."""
        if not enqueued.full:
            return
        newest = dict[str, Arrival]()
        for n in sorted(enqueued.full):
            rule = arrivals[n].envelope.rule or ""
            newest[rule] = arrivals[n]
            self._untold[rule] += 1
        now = monotonic()
        for rule, arrival in newest.items():
            if now - self._told_at.get(rule, -FULL_TOLD) < FULL_TOLD:
                continue
            self._told_at[rule] = now
            intake_log.warning(
                "group.full",
                rule=rule,
                max_queued=arrival.max_queued,
                refused=self._untold.pop(rule),
                group=arrival.envelope.group,
                task=arrival.id,
                remedy="they are dead letters: redrive them once fewer tasks wait in their groups, "
                "or raise max_queued of the rule",
            )
