"""The one checker of histories: S1 to S6, S9, S12 and S13, as far as a history can show them.

Totals (S7) and groups that wait for nothing (S8) are the auditor's.

A group's attempts may overlap in one case only: where a daemon lost its lease, its handler may
still run when the same task starts again under a higher fence and one crash richer. From that start
on the older attempt is a ghost: nothing that it does is accepted, so it ends there.

A server that is replaced may forget what it was told last, claims and settles. What it may have
forgotten (`History.undone`) may be run again, under a fence that it has had, and its group goes on
from there once more, in order and one at a time.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tests.history.events import Event, History, in_order


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise.

    Attributes:
        invariant: its name, ``S1`` to ``S9``, or ``L7`` for what is left behind.
        text: what was seen.
    """

    invariant: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


@dataclass(slots=True)
class Attempt:
    """One run of a handler; `end` is ``None`` where nothing showed it, else maybe its daemon's."""

    start: Event
    end: Event | None = None

    @property
    def was_cut(self) -> bool:
        """Whether it was cancelled before it came to an end of its own."""
        return self.end is not None and self.end.how == "cut"


def check(history: History) -> list[Violation]:
    """Every violation in a history, by invariant."""
    events = in_order(history.events)
    first: dict[str, Event] = {}  # confirmed publish of each id
    for event in events:
        if event.kind == "published":
            first.setdefault(event.id, event)
    ordered, attempts = [*first.values()], pair(events)
    found = (
        *(_s1(history, ordered), _s1_of_done(history, attempts), _s2(history, ordered)),
        *(_s3(events, attempts), _s4(history, ordered, attempts)),
        *(_s5(history, attempts, ordered), _s6(history, events, ordered)),
        *(_s9(events, ordered), _s12(history, ordered), _s13(history, attempts)),
    )
    return [violation for each in found for violation in each]


def pair(events: Iterable[Event]) -> list[Attempt]:
    """The attempts, each with its end, in the order of their starts."""
    attempts: list[Attempt] = []
    running: dict[tuple[str, int], Attempt] = {}
    for event in events:
        if event.kind == "start":
            attempt = Attempt(event)
            attempts.append(attempt)
            running[event.id, event.fence] = attempt
        elif event.kind == "end" and (event.id, event.fence) in running:
            running.pop((event.id, event.fence)).end = event
        elif event.kind == "killed":
            for key in [key for key, each in running.items() if each.start.pid == event.pid]:
                running.pop(key).end = event
    return attempts


def _by_task(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    by_task: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_task[attempt.start.id].append(attempt)
    return by_task


def _by_group(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    """Those that have a group."""
    by_group: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        if attempt.start.group is not None:
            by_group[attempt.start.group].append(attempt)
    return by_group


def _s1(history: History, ordered: list[Event]) -> Iterator[Violation]:
    """Every confirmed publish ends done or dead, or so ends what replaced it."""
    for event in ordered:
        id_ = _last_of(event.id, history.superseded)
        state = history.states.get(id_, "lost")
        if state not in ("done", "dead", "dropped", "expired"):
            by = "" if id_ == event.id else f" superseded by {id_}, which is"
            yield Violation("S1", f"{event.id} was confirmed and is{by} {state}")


def _s1_of_done(history: History, attempts: list[Attempt]) -> Iterator[Violation]:
    """What is done was done: an attempt ended well, or a worker said so of one that was cut.

    (Some histories don't tell how attempts end.)
    """
    said = {event.id for event in history.events if event.kind == "settle" and event.how == "said"}
    for id_, runs in _by_task(attempts).items():
        ends = [run.end.how for run in runs if run.end is not None and run.end.kind == "end"]
        # Where all were forgotten, it may have begun again, and ended, at an earlier stage.
        is_known = id_ not in said and any(run.start not in history.undone for run in runs)
        if is_known and history.states.get(id_) == "done" and not {"done", ""} & {*ends}:
            yield Violation("S1", f"{id_} is done, and its attempts ended otherwise: {ends}")


def _last_of(id_: str, superseded: Mapping[str, str]) -> str:
    """What a task was replaced by, and that by; itself where it wasn't."""
    seen = set[str]()
    while id_ in superseded and id_ not in seen:
        seen.add(id_)
        id_ = superseded[id_]
    return id_


def _s2(history: History, ordered: list[Event]) -> Iterator[Violation]:
    """What the broker has let go of (it was acked) is in the store."""
    unknown = [event.id for event in ordered if event.id not in history.states]
    if len(unknown) > history.left_in_queue:
        held = f"RabbitMQ holds {history.left_in_queue} messages"
        yield Violation("S2", f"{held}, yet the store does not know {', '.join(unknown)}")


def _s3(events: list[Event], attempts: list[Attempt]) -> Iterator[Violation]:
    """One accepted settle a claim; none under a fence that a later claim has made stale."""
    accepted: set[tuple[str, int]] = set()
    newest: dict[str, int] = {}
    for event in events:
        if event.kind == "start":
            newest[event.id] = max(event.fence, newest.get(event.id, 0))
        elif event.kind == "settle" and event.how == "accepted":
            if (event.id, event.fence) in accepted:
                yield Violation("S3", f"the claim {event.fence} of {event.id} was settled twice")
            if event.fence < newest.get(event.id, 0):
                yield Violation("S3", f"a stale fence {event.fence} could settle {event.id}")
            accepted.add((event.id, event.fence))
    holders: dict[int, Event] = {}
    for attempt in attempts:
        start = attempt.start
        if held := holders.get(start.fence):
            yield Violation("S3", f"{held.id} and {start.id} ran under one fence {start.fence}")
        holders[start.fence] = start
    for id_, runs in _by_task(attempts).items():
        for before, after in pairwise(runs):
            if after.start.fence <= before.start.fence:
                yield Violation("S3", f"the fences of {id_} do not rise")


def _s4(history: History, ordered: list[Event], attempts: list[Attempt]) -> Iterator[Violation]:
    """The order of a group is the order of publishing; k+1 never starts before k is settled.

    Where several may run at once, it is the order of first claims, and no more run than may. What
    was handed back before it began left no trace here: there the order is the model's to check.

    In a run "settled" is "ended well in its process": a crash goes back in it, to the first of its
    tasks that was not settled, which counts the crash.
    """
    place = {event.id: number for number, event in enumerate(ordered)}
    for group, runs in _by_group(attempts).items():
        most = history.concurrency.get(group, 1)
        back = goes_back(history, runs) if history.run_of(group) > 1 else set()
        ends = _ends(history, runs, back, place)
        undone: set[str] = set()
        in_turn = runs if most == 1 else () if history.hands_back else _first(runs)
        for number, (before, after) in enumerate(pairwise(in_turn), 1):
            one, two = before.start, after.start
            if one in history.undone:
                undone.add(one.id)
            is_late = two.id in place and place[two.id] < place.get(one.id, 0)
            if not is_late:
                continue
            is_repeat = number in back and _between(runs, place, two.id, one.id) < history.run_of(
                group
            )
            # It may have ended without an attempt, in front of what a server forgot with that.
            had_ended = two.task in history.lost_ends and one in history.undone
            if not (is_repeat or had_ended or two.id in undone or _was_passed(history, two)):
                yield Violation("S4", f"in {group}, {two.id} ran after {one.id}: out of order")
        running: list[tuple[float, str]] = []
        for run, end in zip(runs, ends, strict=True):
            while running and running[0][0] <= run.start.at:
                heapq.heappop(running)
            if len(running) >= most:
                text = f"in {group}, {run.start.id} started while {running[-1][1]} ran"
                yield Violation("S4", text)
            heapq.heappush(running, (end, run.start.id))


def _was_passed(history: History, start: Event) -> bool:
    """Whether others may have passed a task: while it waited, or was a dead letter."""
    if history.was_redriven(start.id, 0.0, start.at):
        return True
    id_, _, stage = start.id.partition("#")
    stepped_aside = bool(stage) or start.attempt > 1 or id_ in history.delayed
    return start.group in history.aside and stepped_aside


def _first(runs: list[Attempt]) -> list[Attempt]:
    """The first attempt of each task, in the order of their claims.

    Where several run at once, on several daemons, handlers may begin in another one.
    """
    seen: dict[str, Attempt] = {}
    for run in sorted(runs, key=lambda each: each.start.fence):
        seen.setdefault(run.start.id, run)
    return list(seen.values())


def goes_back(history: History, runs: list[Attempt]) -> set[int]:
    """Which attempts of a group, by place, begin a run again.

    Of a task one crash richer, or one whose claim was given back or forgotten with all behind it.
    """
    last: dict[str, Event] = {}
    back: set[int] = set()
    for number, each in enumerate(runs):
        before = last.get(each.start.id, each.start)
        is_richer = each.start.crashes > before.crashes
        if is_richer or before in history.given_back or before in history.undone:
            back.add(number)
        last[each.start.id] = each.start
    return back


def _between(runs: list[Attempt], place: dict[str, int], first: str, last: str) -> int:
    """How many tasks of a group were published behind one, up to another."""
    ids = {each.start.id for each in runs}
    return sum(place[first] < place.get(id_, -1) <= place[last] for id_ in ids)


def _ends(
    history: History, runs: list[Attempt], back: set[int], place: dict[str, int]
) -> list[float]:
    """When each attempt of a group ended or became a ghost; never, where nothing shows it.

    Its claim was lost before its task starts again, one crash richer. What it had passed, since
    that stepped aside or was redriven, may be the first to start behind that. So is it where its
    task was dropped, which a task that runs is not, or superseded, once its claim was taken over.
    """
    ends: list[float] = []
    for number, run in enumerate(runs):
        end = run.end.at if run.end is not None else float("inf")
        passed = float("inf")
        for further, later in enumerate(runs[number + 1 :], number + 1):
            start = later.start
            if start.fence <= run.start.fence:
                continue
            is_older = place.get(start.id, 0) <= place.get(run.start.id, 0)
            is_same = start.id == run.start.id and start.crashes > run.start.crashes
            if is_same or (further in back and is_older):
                end = min(end, start.at, passed)
                break
            if is_older and _was_passed(history, start):
                passed = min(passed, start.at)
        else:
            has_ended = run.end is not None and run.end.kind == "end"
            if not has_ended and history.states.get(run.start.task) in ("dropped", "superseded"):
                # Its claim was taken away, and it was to be cancelled: then it starts no more.
                behind = [each.start for each in runs[number + 1 :]]
                later_ones = [each.at for each in behind if each.fence > run.start.fence]
                end = min([end, *later_ones])
        ends.append(end)
    return ends


def _repeats_of_runs(
    history: History, attempts: list[Attempt], ordered: list[Event]
) -> set[tuple[str, int]]:
    """Attempts, by task and fence, that repeat what a run had done in front of a crash."""
    place = {event.id: number for number, event in enumerate(ordered)}
    found: set[tuple[str, int]] = set()
    for group, runs in _by_group(attempts).items():
        run = history.run_of(group)
        for number in goes_back(history, runs) if run > 1 else ():
            first, seen = runs[number].start.id, set[str]()
            for later in runs[number + 1 :]:
                id_ = later.start.id
                # What no message brought (it tells of a drain) is in no run.
                if (
                    id_ in seen
                    or not {id_, first} <= place.keys()
                    or _between(runs, place, first, id_) >= run
                ):
                    break  # it runs again for a reason of its own, or was in no such run
                seen.add(id_)
                found.add((id_, later.start.fence))
    return found


def _s5(history: History, attempts: list[Attempt], ordered: list[Event]) -> Iterator[Violation]:
    """A task runs again only for a reason: a crash or lost lease, a retry, or a hand-back."""
    excused = _repeats_of_runs(history, attempts, ordered)
    for id_, runs in _by_task(attempts).items():
        if not history.with_faults and runs[-1].start.crashes > 0:
            yield Violation("S5", f"{id_} counts {runs[-1].start.crashes} crashes without any")
        for before, after in pairwise(runs):
            one, two = before.start, after.start
            if two.crashes > one.crashes or two.attempt > one.attempt or before.was_cut:
                continue
            if one in history.undone or one in history.given_back or (id_, two.fence) in excused:
                continue
            if history.was_redriven(id_, one.at, two.at):
                continue
            yield Violation("S5", f"{id_} ran again as attempt {two.attempt} for no reason")


def _s6(history: History, events: list[Event], ordered: list[Event]) -> Iterator[Violation]:
    """One message id is one task."""
    taken_at: dict[str, set[float]] = defaultdict(set)
    for event in events:
        if event.kind == "start" and event not in history.undone:
            taken_at[event.id].add(event.enqueued_at)
    for id_, times in taken_at.items():
        if len(times) > 1:
            yield Violation("S6", f"{id_} was taken in {len(times)} times")
    ids = [event.id for event in ordered if "#" not in event.id]  # a later stage is no task
    if ids and history.taken is not None and history.taken > len(ids):
        yield Violation("S6", f"{len(ids)} ids became {history.taken} tasks")


def _s9(events: list[Event], ordered: list[Event]) -> Iterator[Violation]:
    """A task runs as what it was published: its own group, tenant and body, and no other's."""
    known = {event.id: event for event in ordered}
    for event in events:
        if event.kind != "start" or event.id not in known:
            continue
        was = known[event.id]
        published, ran = ((each.group, each.tenant, each.n) for each in (was, event))
        if ran != published:
            yield Violation("S9", f"{event.id} was published as {published} and ran as {ran}")


def _s12(history: History, ordered: list[Event]) -> Iterator[Violation]:
    """A task is superseded only by one of its group that came after it."""
    place = {event.id: number for number, event in enumerate(ordered)}
    for id_, by in history.superseded.items():
        if id_ not in place or by not in place:
            continue
        if place[by] <= place[id_]:
            yield Violation("S12", f"{id_} was superseded by {by}, which came before it")
        if ordered[place[by]].group != ordered[place[id_]].group:
            yield Violation("S12", f"{id_} was superseded by {by}, which is of another group")
    for id_, state in history.states.items():
        if (state == "superseded") != (id_ in history.superseded):
            yield Violation("S12", f"{id_} is {state}, and nothing says by which")


def _s13(history: History, attempts: list[Attempt]) -> Iterator[Violation]:
    """A task that expired has never started."""
    for id_, runs in _by_task(attempts).items():
        started = [run.start for run in runs if run.start not in history.undone]
        if started and history.states.get(id_) == "expired":
            yield Violation("S13", f"{id_} expired, and had started under {started[0].fence}")
