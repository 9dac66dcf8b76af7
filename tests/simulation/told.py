"""What RabbitMQ was told of ends, beside what the store knows of how tasks ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import orjson

from tests.history.events import State
from tests.history.invariants import Violation
from tests.history.outbox import ended_in, out_of_order, untold, waiting_in
from tests.history.snapshot import Snapshot, read
from tests.simulation.configured import EXCHANGE
from tests.simulation.fleet import Fleet
from tests.simulation.jobs import ANSWERS, FOLLOWED

THEN = "/then/"  # in the ids of follow-up tasks


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
        # By fence: who stood may begin what was taken from it, for as long as it hears nothing.
        starts = (event for event in fleet.events if event.kind == "start")
        last = {event.task: event.wall for event in sorted(starts, key=lambda each: each.fence)}
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
    yield from untold(found, told)
    yield from _missing(fleet, found, ids)
    if len(fleet.layouts) == 1:
        yield from out_of_order(told)


def _missing(fleet: Fleet, found: list[Snapshot], ids: Mapping[int, str]) -> Iterator[Violation]:
    answered = {e.correlation_id for e in fleet.rabbitmq.told if e.routing_key == ANSWERS}
    answered |= {each.facts.get("correlation_id") for each in waiting_in(found)}
    ended = ended_in(found)
    for id_, (how, type_) in ended.items():
        if how == "done" and type_ == FOLLOWED and f"{id_}{THEN}1" not in ended:
            yield Violation("S14", f"{id_} is done, and its follow-up task is not there")
    for job in fleet.plan.jobs:
        if job.asks and ids[job.n] in ended and f"c{job.n}" not in answered:
            yield Violation("S14", f"what asked for {ids[job.n]} was not answered")
