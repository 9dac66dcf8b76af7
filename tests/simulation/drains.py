"""What tasks say that tell of drained groups, beside what the store knows of how tasks ended."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import orjson

from groupflow.store.keys import SEQUENCE_DIGITS
from tests.history.drains import ENDS
from tests.history.invariants import Violation
from tests.history.snapshot import read
from tests.simulation.fleet import Fleet

_ONCE = ("done", "cancelled", "expired", "superseded")  # ends that a task has once
FRONT = "drained:"  # how the ids of these tasks begin
SHARDS = "scan:"  # and groups of no rule


def untrue_drains(fleet: Fleet) -> Iterator[Violation]:
    """Each end of a group's tasks is counted by one drain, unless Redis has lost writes.

    Some of the tasks that tell may have ended before they ran: then fewer ends were heard of.
    """
    if "drains" not in fleet.plan.features or fleet.calls_lost:
        return
    ended, untold = defaultdict[str, Counter[str]](Counter), set[str]()
    for keys in fleet.partitions:
        found = read(fleet.raw, keys)
        for id_, line in found.finished.items():
            how, _, group, *_ = orjson.loads(line[SEQUENCE_DIGITS:])
            if group and not id_.startswith(FRONT):
                ended[group][how] += 1
            elif group and id_ not in fleet.drained:
                untold.add(group)
        for id_ in found.names("dead"):
            group = found.lives[id_].get(b"group", b"").decode()
            if id_.startswith(FRONT) and id_ not in fleet.drained:
                untold.add(group)
    heard = defaultdict[str, Counter[str]](Counter)
    for id_, said in fleet.drained.items():
        counts = Counter({how: said[how] for how in ENDS if said[how]})
        if not counts:
            yield Violation("S14", f"{id_} tells of a drain, and of no end: {said}")
        heard[said["group"]].update(counts)
    for group, hows in ended.items():
        for how in _ONCE if not group.startswith(SHARDS) else ():
            number, told = hows[how], heard[group][how]
            if told > number or (told < number and group not in untold):
                text = f"{number} tasks of {group} ended as {how}, and drains told of {told}"
                yield Violation("S14", text)
