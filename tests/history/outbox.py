"""What waits to be told lies in order, is counted, and tells only of what has ended."""

from __future__ import annotations

from collections.abc import Iterator

from groupflow.core.events import Told
from tests.history.invariants import Violation
from tests.history.snapshot import Snapshot


def outbox_of(found: Snapshot) -> Iterator[Violation]:
    """Numbers rise, the bytes are right, and a task that is told of is over."""
    entries = found.lists.get("outbox", [])
    told = [Told.of(entry) for entry in entries]
    numbers = [each.number for each in told]
    if numbers != sorted(set(numbers)) or (numbers and numbers[-1] > found.count("told")):
        yield Violation("S14", f"the numbers of what is to be told don't rise: {numbers}")
    if sum(map(len, entries)) != found.count("outbox_bytes"):
        text = f"{sum(map(len, entries))} bytes are to be told, and {found.count('outbox_bytes')}"
        yield Violation("S14", f"{text} are counted")
    for each in told:
        lives = each.facts["id"] in found.tasks
        is_over = each.event in ("drained", "dead") or each.facts.get("redriven") or not lives
        if not is_over:
            yield Violation("S14", f"{each.facts['id']} is told to be {each.event}, and lives")
    if results := set(found.fields("results_new")) & found.tasks.keys():
        yield Violation("S14", f"{sorted(results)} have results, and aren't done")
