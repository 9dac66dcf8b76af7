"""How a scan's shards end, where another number of them is wanted."""

from __future__ import annotations

import structlog

from groupflow.core.outcome import Done, Outcome, Turn
from groupflow.scans.state import merged
from groupflow.scans.turn import REST, ClaimedShard, ShardTurn
from groupflow.store.scans import Record, ScanRecords

log = structlog.get_logger("groupflow.scans")

CLOSING = 0.5  # seconds between two looks whether the other shards have stopped


async def close(
    records: ScanRecords, held: ClaimedShard, turn: ShardTurn, *, keeps_place: bool
) -> tuple[Outcome, bool]:
    """One shard's turn in a generation that ends, since another number of shards is wanted.

    Old shards end before new ones start. If a scan keeps a place, each shard first stops and
    reports its place; then all go on up to the farthest of these. So all rows of all slices up to
    there are done, and new shards go on from there: no row is missed, and none comes twice.

    Returns:
        What becomes of the shard's task, and whether the next generation has begun.

    Raises:
        StoreUnavailable: no answer; the turn may be taken again.
    """
    record, state = held.record, turn.state
    if keeps_place and held.index not in record.ended:
        told = await records.report(record, "closed", held.index, state.after)
        if told is None or told.generation != record.generation:
            return Done(), False
        if len(told.closed) < told.count:
            return Turn(REST, state.as_json(), CLOSING), False
        place = _farthest(told)
        if place is not None and state.after != place:
            outcome = await turn.run(until=place)
            if not isinstance(outcome, Done):
                return outcome, False
    told = await records.report(record, "ended", held.index, state.left())
    if told is None or told.generation != record.generation or len(told.ended) < told.count:
        return Done(), False
    await begin_next(records, told)
    return Done(), True


async def begin_next(records: ScanRecords, record: Record) -> None:
    """Begin the next generation, since all shards of this one have ended; later calls do nothing.

    Raises:
        StoreUnavailable: no answer; it may have begun.
    """
    done = record.done + sum(each["done"] for each in record.ended.values())
    carried = merged(record.ended.values())
    if await records.begin_next(record, _farthest(record), carried, done):
        log.info("scan.shards_changed", scan=record.name, old=record.count, new=record.wanted)


def _farthest(record: Record) -> object:
    """The farthest place at which a shard stopped; ``None`` for none."""
    places = [place for place in record.closed.values() if place is not None]
    return max(places, default=None)
