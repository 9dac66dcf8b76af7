"""The verdict on a run: the soak's judge, and what only a simulation knows to the moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson

from groupflow.core.routing import scope_of
from groupflow.store.keys import SEQUENCE_DIGITS, Keys
from groupflow.store.partitions import partition_of
from tests.history.events import Event, State
from tests.history.invariants import Violation
from tests.history.judge import Verdict, judge_events
from tests.history.snapshot import facts_in, read
from tests.history.stored import Stored
from tests.simulation import clock
from tests.simulation.configured import ASIDE, NAMESPACE, TICKS, TICKS_TENANT
from tests.simulation.drains import untrue_drains
from tests.simulation.fleet import Fleet
from tests.simulation.operators import Hold, Known
from tests.simulation.told import THEN, untold_ends

GRAIN = 0.001  # seconds that clocks are read to


def judge(fleet: Fleet, known: Known) -> Verdict:
    """Judge a run that has drained, and whose daemons have left."""
    states = Stored(fleet.raw, fleet.partitions).states
    ids = ids_of(fleet, states)
    # What intake refused has no place in its group, and waits for no delay: once an operator
    # redrives it, it goes first.
    refused = {job.n for job in fleet.plan.jobs if job.shape}
    events = []
    for event in fleet.events:
        id_, at = event.id, event.at
        if event.kind == "published":
            id_, at = ids[event.n], 0.0 if event.n in refused else at
        elif event.kind == "end":
            at = min(at, fleet.watch.ghosts.get((id_, event.fence), at))
        events.append(replace(event, id=id_, at=at))
    events += published_by_themselves(fleet, states)
    # A drop that a server has forgotten lets its task come back behind others.
    for id_, (at, lost) in known.dropped.items():
        events += [Event("redriven", id_, at)] if lost != fleet.calls_lost else []
    delays = {ids[job.n]: job.delay for job in fleet.plan.jobs if job.delay}
    unique = Fences(fleet, events)
    events = [unique.event(event) for event in events]
    verdict = judge_events(
        *(events, fleet.raw, fleet.partitions, fleet.rabbitmq.left),
        resumed=unique.claims(fleet.resumed),
        forgotten=unique.claims(fleet.forgotten),
        raised=fleet.watch.raised,
        aside={event.group for event in events if event.group and event.group.startswith(ASIDE)},
        delayed=delays.keys(),
        lost_ends=fleet.lost_ends,
    )
    verdict.violations += [
        *left_behind(fleet),
        *early_starts(events, delays, known.hurried | {ids[n] for n in refused}),
        *starts_under_holds(fleet, known.holds),
        *starts_of_dropped(fleet, events, states, known),
        *starts_of_cancelled(fleet, events, ids),
        *untrue_drains(fleet),
        *untold_ends(fleet, states, ids),
    ]
    return verdict


def ids_of(fleet: Fleet, states: dict[str, State]) -> dict[int, str]:
    """The id of each message's task, by its number.

    Where several applications or tenants sent one id, the store knows whose is whose.
    """
    ids = {job.n: job.id for job in fleet.plan.jobs}
    scopes = {job.n: scope_of(job.app, job.tenant_name) for job in fleet.plan.jobs}
    sharing: dict[str, list[int]] = defaultdict(list)
    for number, id_ in ids.items():
        sharing[id_].append(number)
    known = {id_: scope for keys in fleet.partitions for id_, scope in _scopes(fleet.raw, keys)}
    for id_, numbers in sharing.items():
        if len(numbers) > 1:
            family = [each for each in states if each == id_ or each.startswith(f"{id_}~")]
            owners = {known[each]: each for each in family if each in known}
            for number in numbers:
                ids[number] = owners.get(scopes[number], f"{id_} of number {number}")
    return ids


def place_of(event: Event, partitions: int) -> int:
    """Where a task lies: one of a derived id where its message would, a tick with its schedule."""
    id_ = event.task if THEN in event.task else event.task.partition("~")[0]
    if id_.startswith("schedule:"):
        id_ = ":".join(id_.split(":", 2)[:2])
    return partition_of(event.group, id_, partitions)


class Fences:
    """Makes fences unique among all partitions, of which each has fences of its own.

    They rise when a namespace is moved, so it may have had other partitions before.
    """

    def __init__(self, fleet: Fleet, events: list[Event]) -> None:
        self._layouts = fleet.layouts
        self._width = max(number for _, number in fleet.layouts)
        starts = (event for event in events if event.kind == "start")
        self._places = {event.claim: self._place(event) for event in starts}

    def _place(self, event: Event) -> int:
        number = next(n for since, n in reversed(self._layouts) if since <= event.at)
        return place_of(event, number)

    def event(self, event: Event) -> Event:
        """The same, its fence unique."""
        place = self._places.get(event.claim, 0)
        return replace(event, fence=event.fence * self._width + place)

    def claims(self, claims: set[tuple[str, int]]) -> set[tuple[str, int]]:
        """The same of claims, each a task and a fence."""
        return {
            (id_, fence * self._width + self._places.get((id_, fence), 0)) for id_, fence in claims
        }


def left_behind(fleet: Fleet) -> Iterator[Violation]:
    """Partitions that are none any more have nothing but what is common to all."""
    raw: Any = fleet.raw
    fronts = [f"{keys.tag}:" for keys in fleet.partitions]
    notes = tuple(f":{kind}" for kind in ("partitions", "scans"))  # what stays of any
    for key in sorted(each.decode() for each in raw.scan_iter(match=f"{{{NAMESPACE}*")):
        if not key.startswith(tuple(fronts)) and not key.endswith(notes):
            yield Violation("L7", f"left behind: {key}")


def _scopes(raw: Any, keys: Keys) -> Iterator[tuple[str, str]]:
    """The scope of each task that a partition knows."""
    found = read(raw, keys)
    for id_, line in found.finished.items():
        yield id_, orjson.loads(line[SEQUENCE_DIGITS:])[-1]
    for id_, packed in found.tasks.items():
        yield id_, facts_in(packed)[5]


def published_by_themselves(fleet: Fleet, states: dict[str, State]) -> Iterator[Event]:
    """The tasks that no message made, as if published: ticks, shards, rows, follow-up tasks."""
    grouped = {timer.name: timer.is_grouped for timer in fleet.plan.timers}
    for id_ in sorted(states):
        kind, _, rest = id_.partition(":")
        if kind == "schedule" and THEN not in id_:
            name, _, text = rest.partition(":")
            at = clock.BEGIN + datetime.fromisoformat(text).timestamp() - clock.EPOCH
            group = f"g-{name}:{TICKS_TENANT}" if grouped[name] else None
            number = TICKS + [*grouped].index(name)
            yield Event("published", id_, at, group=group, tenant=str(TICKS_TENANT), n=number)
        elif kind == "scan" or THEN in id_:
            yield Event("published", id_, clock.BEGIN)


def early_starts(
    events: list[Event], delays: dict[str, float], hurried: set[str]
) -> Iterator[Violation]:
    """Nothing starts before its delay is over, unless an operator says so."""
    for event in events:
        delay = delays.get(event.id)
        if event.kind != "start" or delay is None or not event.enqueued_at:
            continue
        early = event.enqueued_at + delay - event.wall
        if early > GRAIN and event.id not in hurried:
            yield Violation("L8", f"{event.id} began {early:.3f} s before its delay was over")


def starts_under_holds(fleet: Fleet, holds: list[Hold]) -> Iterator[Violation]:
    """Nothing of what is paused is claimed."""
    for hold in holds:
        if any(hold.since - 1 < moved < hold.until for moved, _ in fleet.layouts[1:]):
            continue  # fences are others behind a move
        for event in fleet.events:
            if event.kind != "start" or hold.group not in ("", event.group):
                continue
            place = place_of(event, len(hold.fences))
            if hold.since < event.at < hold.until and event.fence > hold.fences[place]:
                paused = f"{hold.group or 'everything'} was paused"
                times = f"from {hold.since:.3f} to {hold.until:.3f}"
                text = f"{event.id} was claimed ({event.fence}) and began at {event.at:.3f}"
                yield Violation("P1", f"{text}, while {paused} {times}")


def begun(events: list[Event]) -> list[Event]:
    """The starts, but for those of a puller that stood while its claim's answer came.

    It gives the tasks up in the moment it goes on.
    """
    given_up = {(each.id, each.fence, each.at) for each in events if each.how == "cut"}
    starts = [each for each in events if each.kind == "start"]
    return [each for each in starts if (each.id, each.fence, each.at) not in given_up]


def starts_of_dropped(
    fleet: Fleet, events: list[Event], states: dict[str, State], known: Known
) -> Iterator[Violation]:
    """What an operator dropped is over, unless a server has forgotten that."""
    for id_, (at, lost) in known.dropped.items():
        if lost != fleet.calls_lost:
            continue
        if states.get(id_) != "dropped":
            yield Violation("P2", f"{id_} was dropped, and is {states.get(id_)}")
        for event in begun(events):
            if event.at > at and event.task == id_:
                yield Violation("P2", f"{id_} was dropped at {at:.3f}, and began at {event.at:.3f}")


def starts_of_cancelled(
    fleet: Fleet, events: list[Event], ids: dict[int, str]
) -> Iterator[Violation]:
    """What a message has cancelled doesn't begin, once all daemons know it by their renewals."""
    redriven = {event.task for event in events if event.kind == "redriven"}
    since = {
        ids[number]: at + fleet.plan.lease
        for number, (at, lost) in fleet.cancelled.items()
        if lost == fleet.calls_lost and ids[number] not in redriven
    }
    for event in begun(events):
        if event.at > since.get(event.task, event.at):
            began = f"began at {event.at:.3f} ({event.fence})"
            yield Violation("P2", f"{event.id} was cancelled by a message, and {began}")


def left_by(fleet: Fleet) -> Iterator[Violation]:
    """Daemons that have stopped in order, at peace, leave no session of their own behind."""
    raw: Any = fleet.raw
    pids = {process.name: process.pid for process in fleet.running}
    for keys in fleet.partitions:
        for name in raw.zrange(keys("daemons"), 0, -1):
            info = raw.hget(keys("daemon", name.decode()), "info") or b"{}"
            if orjson.loads(info).get("pid") == pids.get(name.decode(), 0):
                yield Violation("L7", f"{name!r} has stopped, and has a session in {keys.tag}")
