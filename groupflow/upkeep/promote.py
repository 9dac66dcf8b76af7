"""promote: makes delayed tasks claimable once they are due. Sleeps until then, never polls."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import orjson
import structlog

from groupflow.core.measures import UpkeepMeasures
from groupflow.crashpoints import crash_point
from groupflow.store.client import StoreClient
from groupflow.store.clock import seconds
from groupflow.store.scripts import Verb
from groupflow.upkeep.expire import Expirer

log = structlog.get_logger("groupflow.promote")

AT_ONCE = 200  # tasks, and groups, a script: bounds how long one may block Redis
_KINDS = {"g": "group", "t": "tenant", "y": "type"}
LONGEST = 30.0  # seconds; a wake tells of an earlier due time, unless it was lost


async def promote(client: StoreClient, measures: UpkeepMeasures, expirer: Expirer) -> float:
    """Promote what is due, and end what expires. Returns the seconds until more will be."""
    crash_point("before_promote")
    promoted, wait, *news = await client.run(Verb.PROMOTE, AT_ONCE, "tell")
    crash_point("after_promote", promoted)
    if promoted:
        measures.promoted += promoted
        log.debug("task.promoted", count=promoted)
    _tell_of_limits(news[0] if news else [], is_first=not client.keys.partition)
    if wait == 0:  # what is due still may be tasks that expire
        await expirer.run_once()
    longest = min(LONGEST, expirer.tell())
    if wait < 0:
        return longest
    # A millisecond late rather than a microsecond early, which would be one more call.
    return min(longest, seconds(wait) + 0.001)


def _tell_of_limits(news: Sequence[bytes], *, is_first: bool) -> None:
    """Log limits that people set by hand, and their ends: the script tells one daemon, once.

    All partitions know the limits of a tenant or a type: only the first one's is logged.
    """
    for each in news:
        what, whose, until, concurrency, rate, by = orjson.loads(each)
        if whose[0] != "g" and not is_first:
            continue
        log.info(
            f"limit.{what}",
            **{_KINDS[whose[0]]: whose[1:]},
            concurrency=None if concurrency == "-" else int(concurrency),
            rate=rate or None,
            until=datetime.fromtimestamp(seconds(until), UTC).isoformat(timespec="seconds"),
            by=by or None,  # None: its time was over
        )
