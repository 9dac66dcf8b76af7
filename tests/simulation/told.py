"""What RabbitMQ was told of ends, beside what the store knows of how tasks ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from groupflow.core.events import Told
from groupflow.store.keys import SEQUENCE_DIGITS
from tests.history.events import State
from tests.history.invariants import Violation
from tests.history.snapshot import Snapshot, read
from tests.simulation.configured import EXCHANGE
from tests.simulation.fleet import Fleet
from tests.simulation.jobs import ANSWERS, FOLLOWED

THEN = "/then/"  # in the ids of follow-up tasks
_OWN = ("scan:",)  # how ids begin of what no application hears of


def untold_ends(
    fleet: Fleet, states: Mapping[str, State], ids: Mapping[int, str]
) -> Iterator[Violation]:
    """Each end is told once at least, to all and to what asked; and each follow-up task is there.

    Where replicas hold what is told, nothing is told that is not so, even if Redis loses writes.
    """
    if not fleet.tells:
        return
    told = [orjson.loads(each.body) for each in fleet.rabbitmq.told if each.exchange == EXCHANGE]
    found = [read(fleet.raw, keys) for keys in fleet.partitions]
    is_whole = not fleet.calls_lost
    if is_whole or fleet.plan.replicas:
        last = {event.task: event.wall for event in fleet.events if event.kind == "start"}
        for event in told:
            if event["event"] != "done":
                continue
            if states.get(event["id"]) != "done":
                text = f"{event['id']} was told to be done, and is {states.get(event['id'])}"
                yield Violation("S14", text)
            if last.get(event["id"], 0.0) > event["at"]:
                yield Violation("S14", f"{event['id']} began again though it was told to be done")
    if not is_whole:
        return
    yield from _missing(fleet, found, told, ids)
    if len(fleet.layouts) == 1:
        yield from _out_of_order(told)


def _missing(
    fleet: Fleet,
    found: list[Snapshot],
    told: list[dict[str, Any]],
    ids: Mapping[int, str],
) -> Iterator[Violation]:
    known = {(event["id"], event["event"]) for event in told}
    waiting = [Told.of(entry) for each in found for entry in each.lists.get("outbox", [])]
    known |= {(each.facts["id"], each.event) for each in waiting}
    answered = {e.correlation_id for e in fleet.rabbitmq.told if e.routing_key == ANSWERS}
    answered |= {each.facts.get("correlation_id") for each in waiting}
    ended = dict[str, tuple[str, str]]()
    for each in found:
        for id_, line in each.finished.items():
            how, type_, *_ = orjson.loads(line[SEQUENCE_DIGITS:])
            ended[id_] = how, type_
        for id_ in each.names("dead"):
            ended[id_] = "dead", ""
    for id_, (how, type_) in ended.items():
        if id_.startswith(_OWN) or how in ("moved", "swept"):
            continue
        if (id_, how) not in known and not (how == "dropped" and (id_, "dead") in known):
            yield Violation("S14", f"{id_} is {how}, and nothing was told")
        if how == "done" and type_ == FOLLOWED and f"{id_}{THEN}1" not in ended:
            yield Violation("S14", f"{id_} is done, and its follow-up task is not there")
    for job in fleet.plan.jobs:
        if job.asks and ids[job.n] in ended and f"c{job.n}" not in answered:
            yield Violation("S14", f"what asked for {ids[job.n]} was not answered")


def _out_of_order(told: list[dict[str, Any]]) -> Iterator[Violation]:
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
