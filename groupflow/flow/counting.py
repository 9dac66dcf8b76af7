"""What one exchange, or one batch of messages, adds to the daemon's measures."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from groupflow.core.measures import IntakeMeasures, PoolMeasures
from groupflow.store.enqueue import Arrival, Enqueued
from groupflow.store.given import Claim
from groupflow.store.settlements import Advance, Settlement, one_by_one

log = structlog.get_logger("groupflow.exchange")


def count_exchange(
    measures: PoolMeasures,
    finished: Sequence[Settlement],
    refused: Sequence[Settlement],
    claims: Sequence[Claim],
) -> None:
    """Count what was settled, without refusals, and what was claimed, also for runs."""
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
        types.of(settlement.claim.task.type).settled[settlement.outcome] += 1


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


def count_batch(measures: IntakeMeasures, arrivals: Sequence[Arrival], enqueued: Enqueued) -> None:
    """Count a batch that is stored and acked."""
    new = enqueued.taken.count(True)
    buried = sum(
        taken and bool(arrival.dead)
        for arrival, taken in zip(arrivals, enqueued.taken, strict=True)
    ) + len(enqueued.crowded_out)
    measures.messages += len(arrivals)
    measures.duplicates += len(arrivals) - new
    measures.buried += buried
    measures.enqueued += new - buried
    measures.superseded += enqueued.superseded
    measures.batches.observe(len(arrivals))
