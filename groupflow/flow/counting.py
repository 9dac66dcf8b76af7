"""What one exchange, or one batch of messages, adds to the daemon's measures."""

from __future__ import annotations

from collections.abc import Sequence

from groupflow.core.measures import IntakeMeasures, PoolMeasures
from groupflow.store.enqueue import Arrival, Enqueued
from groupflow.store.settlements import Claim, Settlement


def count_exchange(
    measures: PoolMeasures,
    finished: Sequence[Settlement],
    refused: Sequence[Settlement],
    claims: Sequence[Claim],
) -> None:
    """Count what was settled, but for what was refused, and what was claimed."""
    if not finished and not claims:
        return
    measures.batches.observe(len(finished) + len(claims))
    measures.claimed += len(claims)
    waiting = measures.waiting
    for claim in claims:
        if claim.waited is not None:
            waiting.observe(claim.waited)
    types = measures.types
    for settlement in finished:
        if not refused or settlement not in refused:
            types.of(settlement.claim.task.type).settled[settlement.outcome] += 1


def count_batch(measures: IntakeMeasures, arrivals: Sequence[Arrival], enqueued: Enqueued) -> None:
    """Count a batch that is in the store, and acked."""
    new = enqueued.taken.count(True)
    buried = sum(
        taken and bool(arrival.dead)
        for arrival, taken in zip(arrivals, enqueued.taken, strict=True)
    ) + len(enqueued.crowded_out)
    measures.messages += len(arrivals)
    measures.duplicates += len(arrivals) - new
    measures.buried += buried
    measures.enqueued += new - buried
    measures.batches.observe(len(arrivals))
