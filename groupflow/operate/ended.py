"""What the history says of tasks that are over, and which of a group ended lately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import orjson

from groupflow.operate.namespace import Namespace
from groupflow.operate.requests import CancelRequest
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.clock import seconds
from groupflow.store.keys import SEQUENCE_DIGITS

EndName: TypeAlias = Literal["done", "cancelled", "expired", "superseded", "dropped", "swept"]

LATELY = 10  # tasks of a group
KEPT = 10_000  # tasks of groups that ended in a partition, of which its lists have the ids
_LOOK = 250  # of those a script: bounds how long one may block Redis


@dataclass(frozen=True, slots=True)
class Ended:
    """A task of a group that is over, and was no dead letter."""

    id: str
    state: EndName  # how it ended
    type: str
    attempt: int  # the one that ended it
    since: float  # when it ended, Unix seconds
    # the next four only of a task that is done
    enqueued_at: float | None = None  # when it came, Unix seconds
    began_at: float | None = None  # when its last attempt began, Unix seconds
    seconds: float | None = None  # how long that took
    daemon: str | None = None  # on which daemon; of a pool's worker `pool/<pool>/<worker>`


def read_line(line: str) -> dict[str, Any]:
    """What a line of the history says, by the names of `Found`."""
    state, type_, group, attempt, died, *rest = orjson.loads(line[SEQUENCE_DIGITS:])
    crashes, lost_leases = died if isinstance(died, list) else (died, 0)
    facts = {"state": state, "type": type_, "group": group, "attempt": attempt}
    facts |= {"crashes": crashes, "lost_leases": lost_leases, "scope": rest[-1]}
    facts["since"] = since = seconds(line[:SEQUENCE_DIGITS])
    if state == "done" and len(rest) > 1:
        came, took, daemon = rest[0]
        facts |= {"enqueued_at": seconds(came), "began_at": round(since - took, 6)}
        facts |= {"seconds": took, "daemon": daemon}
    elif state in {"superseded", "cancelled"}:
        facts |= CancelRequest.of(rest[0]).facts
    elif state == "expired":
        facts["start_by"] = seconds(rest[0])
    return facts


async def ended_lately(namespace: Namespace, group: str, most: int = LATELY) -> list[Ended]:
    """The last tasks of a group that ended, the newest first, so many at most.

    They are sought among the last `KEPT` of all groups of its partition. Dead letters aren't there.

    Raises:
        StoreUnavailable: its partition is away.
    """
    found: dict[str, Ended] = {}
    passed, looked, as_json = 0, 1, orjson.dumps(group)
    while looked and passed < KEPT and len(found) < most:
        asked = (group, as_json, passed, _LOOK)
        looked, *rows = await namespace.run_at(group, OperatorVerb.LATELY, *asked)
        passed += looked
        for id_, line in zip(rows[::2], rows[1::2], strict=True):
            facts = read_line(line.decode())
            if facts["group"] == group:
                shown = {name: facts[name] for name in Ended.__slots__ if name in facts}
                found.setdefault(id_.decode(), Ended(id_.decode(), **shown))
    return [*found.values()][:most]
