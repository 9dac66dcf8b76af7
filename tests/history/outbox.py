"""What waits to be told, and what RabbitMQ was told, beside how tasks have ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import orjson

from groupflow.core.events import Told
from groupflow.store.keys import SEQUENCE_DIGITS
from tests.history.invariants import Violation
from tests.history.snapshot import Snapshot

Event: TypeAlias = dict[str, Any]  # as it was published

OWN = ("scan:",)  # how ids begin of what no application hears of


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


def waiting_in(found: Sequence[Snapshot]) -> list[Told]:
    """What RabbitMQ is still to be told."""
    return [Told.of(entry) for each in found for entry in each.lists.get("outbox", [])]


def ended_in(found: Sequence[Snapshot]) -> dict[str, tuple[str, str]]:
    """How tasks have ended, by their ids, and their types; of dead letters without one."""
    ended = dict[str, tuple[str, str]]()
    for each in found:
        for id_, line in each.finished.items():
            how, type_, *_ = orjson.loads(line[SEQUENCE_DIGITS:])
            ended[id_] = how, type_
        for id_ in each.names("dead"):
            ended[id_] = "dead", ""
    return {id_: end for id_, end in ended.items() if not id_.startswith(OWN)}


def untold(found: Sequence[Snapshot], told: Sequence[Event]) -> Iterator[Violation]:
    """All that has ended was told, or is still to be."""
    known = {(event["id"], event["event"]) for event in told}
    known |= {(each.facts["id"], each.event) for each in waiting_in(found)}
    for id_, (how, _) in ended_in(found).items():
        if how in ("moved", "swept") or (how == "dropped" and (id_, "dead") in known):
            continue
        if (id_, how) not in known:
            yield Violation("S14", f"{id_} is {how}, and nothing was told")


def out_of_order(told: Sequence[Event]) -> Iterator[Violation]:
    """First copies of a group's events come in the order of its ends."""
    seen, last = set[tuple[str, int]](), defaultdict[str, int](int)
    for event in told:
        group, number = event["group"], event["seq"]
        if group is None or (group, number) in seen:
            continue
        seen.add((group, number))
        if number < last[group]:
            text = f"{event['id']} of {group} was told ({number}) behind {last[group]}"
            yield Violation("S14", text)
        last[group] = number
