"""What a deploy brings: nothing of a type is dead for want of a daemon that there was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from groupflow.store.partitions import partition_of

if TYPE_CHECKING:
    from tests.simulation.fleet import Fleet

REASON = "no daemon has known its type"


def died_unknown(fleet: Fleet, event: Mapping[str, Any]) -> Iterator[str]:
    """Daemons that had told the type of a dead task before its last claim, and still do.

    Sessions have their numbers from the counter of fences. A server that has lost writes may have
    lost the end of a session.
    """
    if not event["reason"].startswith(REASON) or fleet.calls_lost:
        return
    raw: Any = fleet.raw
    id_, type_, fence = event["task"], event["type"], event["fence"]
    place = partition_of(event["group"], id_.partition("~")[0], len(fleet.partitions))
    keys = fleet.partitions[place]
    for name in (each.decode() for each in raw.zrange(keys("daemons"), 0, -1)):
        session = raw.hget(keys("daemon", name), "session")
        if raw.hexists(keys("types", name), type_) and int(session) < fence:
            yield f"{id_} is dead, though {name} knew its type {type_!r} when it was claimed"
