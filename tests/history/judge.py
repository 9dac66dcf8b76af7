"""The verdict on a soak or a simulated run: each promise, how often it was tried and broken.

It asks the checker of histories, the auditor of the store and the search for leftovers, and adds
what they can't see: stages, zombies, and what was counted.

A *stale start* is an attempt that begins although its claim was handed over and its group went on
under a higher fence: its daemon was frozen between the claim's reply and the handler's first line.
No rule can exclude it from within a process that may be frozen anywhere, and nothing that it writes
under guard of its fence is accepted. It is counted, and left out of what is judged for order.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import orjson

from groupflow.store.keys import Keys
from groupflow.store.partitions import partition_of
from tests.history.configuration import concurrency_of, run_of
from tests.history.events import Event, History, State, in_order
from tests.history.invariants import Violation, check, pair
from tests.history.stored import Stored, with_unique_fence

_Known = TypeVar("_Known")
Lost: TypeAlias = tuple[str, int, str | None]
"""A claim that a daemon lost: task, fence and group."""

NOTHING: Mapping[str, int] = MappingProxyType({})
UNSENT = 1.0  # seconds for which replicas may lack what a server has answered
UNBEGUN = 1.0  # seconds between a claim's answer and the handler's first line, at a busy machine


@dataclass(slots=True)
class Verdict:
    """What a soak has shown.

    Attributes:
        checked: by invariant, how many cases were looked at.
        violations: every one.
        figures: what was counted beside.
    """

    checked: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)

    def by_invariant(self) -> Counter[str]:
        """How many violations each has."""
        return Counter(violation.invariant for violation in self.violations)


def judge_events(
    journal: list[Event],
    raw: Any,
    partitions: Sequence[Keys],
    left_in_queue: int,
    *,
    resumed: Set[tuple[str, int]],
    lost: Set[Lost] = frozenset(),
    forgotten: Set[tuple[str, int]] | None = None,
    raised: Mapping[str, int] = NOTHING,
    aside: Set[str] = frozenset(),
    delayed: Set[str] = frozenset(),
    lost_ends: Set[str] = frozenset(),
) -> Verdict:
    """The same of events, and of claims (task and fence) that daemons of one name took up.

    `lost` has those of sessions that a server no longer knew. `forgotten` has the attempts (task
    and fence) of which a server may have forgotten the claim or the settle, where that is known;
    else the times in which a server may have lost writes tell. `raised` has how many tasks of a
    group an operator let run at once; `aside`, `delayed` and `lost_ends` are `History`'s.
    """
    verdict, stored = Verdict(), Stored(raw, partitions)
    states = stored.states
    verdict.violations += [*stored.contradictions(), *stored.leftovers()]
    found = [with_unique_fence(event, len(partitions)) for event in journal]
    events = _with_stages(in_order(found))
    most = {
        group: max(concurrency_of(group), raised.get(group, 1))
        for group in {event.group for event in events if event.group is not None}
    }
    stale = stale_starts(events, most)
    sound = [e for e in events if (e.id, e.fence) not in stale]
    if forgotten is None:
        undone = undone_starts(sound, len(partitions))
    else:
        undone = starts_of(sound, forgotten, len(partitions))
    history = History(
        sound,
        states=_with_stage_states(events, states),
        taken=stored.count("taken") - stored.count("drained"),
        left_in_queue=left_in_queue,
        undone=undone,
        given_back=starts_of(sound, resumed, len(partitions))
        | starts_lost(sound, lost, len(partitions)),
        superseded=_with_stage_states(events, stored.superseded),
        hands_back=True,
        concurrency=most,
        runs={group: run_of(group) for group in most},
        redriven=redrives_in(events),
        aside=aside,
        delayed=delayed,
        lost_ends=lost_ends,
    )
    verdict.violations += check(history)
    known_done = sum(state == "done" for state in states.values())
    if (done := stored.count("done")) != known_done:
        text = f"{done} settles as done were accepted, for {known_done} tasks"
        verdict.violations.append(Violation("S3", text))
    _count(verdict, events, history, states)
    verdict.figures["stale starts"] = len(stale)
    verdict.figures["attempts that a server may have forgotten"] = len(undone)
    return verdict


def undone_starts(events: list[Event], partitions: int) -> set[Event]:
    """The starts of attempts of which a server may have forgotten the claim, or the settle."""
    losses: dict[int, list[tuple[float, float]]] = defaultdict(list)
    open_at: dict[int, list[float]] = defaultdict(list)
    for event in events:
        if event.kind == "lossy" and event.how == "began":
            open_at[event.n].append(event.at)
        elif event.kind == "lossy":  # they may overlap: together they are the same time
            losses[event.n].append((open_at[event.n].pop(0), event.at))
    for number, since in open_at.items():
        losses[number] += [(each, float("inf")) for each in since]
    undone = set[Event]()
    for attempt in pair(events):
        start, end = attempt.start, attempt.end
        place = partition_of(start.group, start.task, partitions)
        for began, ended in losses[place]:
            if start.at < ended + UNBEGUN and (end is None or end.at > began - UNSENT):
                undone.add(start)
    return undone


_UNKNOWN = b"what it runs may be unknown there"


def lost_in(logs: Sequence[Path]) -> set[Lost]:
    """The claims of sessions that a server no longer knew, as daemons log them.

    Their daemon gives them back as it registers again. It logs that, as `resumed_in` reads it, only
    where it hears the answer.
    """
    found = set[Lost]()
    for log in logs:
        is_unknown = False
        for line in log.read_bytes().splitlines():
            if b'"session.lost"' in line or b'"lease.begun"' in line:
                is_unknown = _UNKNOWN in line
            elif is_unknown and b'"claim.lost"' in line:
                claim = orjson.loads(line)
                found.add((claim["task"], claim["fence"], claim["group"]))
    return found


def starts_lost(events: list[Event], lost: Set[Lost], partitions: int) -> set[Event]:
    """The starts under lost claims, and those in front of one in its run, which were not told."""
    fences = defaultdict[str, list[int]](list)
    for _, fence, group in lost:
        if group is not None:
            fences[group].append(fence)
    found = starts_of(events, {each[:2] for each in lost}, partitions)
    for each in events:
        if each.kind == "start" and each.group is not None and each.group in fences:
            number, run = each.fence // partitions, run_of(each.group)
            if any(last - run < number < last for last in fences[each.group]):
                found.add(each)
    return found


_GIVEN_BACK = re.compile(rb'"event": ?"task\.(?:resumed|released)"')


def resumed_in(logs: Sequence[Path]) -> set[tuple[str, int]]:
    """The claims, task and fence, that a daemon gave back, itself or its namesake."""
    lines = (line for log in logs for line in log.read_bytes().splitlines())
    # A batch that is cut off is handed back whole, with tasks of it that had come to their ends.
    said = [orjson.loads(line) for line in lines if _GIVEN_BACK.search(line)]
    return {(each["task"], each["fence"]) for each in said}


def starts_of(events: list[Event], claims: Set[tuple[str, int]], partitions: int) -> set[Event]:
    """The starts under some claims, task and fence as its partition counts them."""
    starts = (event for event in events if event.kind == "start")
    return {each for each in starts if (each.task, each.fence // partitions) in claims}


def redrives_in(events: list[Event]) -> dict[str, list[float]]:
    """When an operator redrove each dead letter."""
    found: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.kind == "redriven":
            found[event.id].append(event.at)
    return found


def stale_starts(events: list[Event], most: Mapping[str, int] = NOTHING) -> set[tuple[str, int]]:
    """The attempts (id and fence) whose task, or whose group, was already beyond them.

    Where several of a group may run, another one may begin before one that was claimed earlier;
    `most` has how many may.
    """
    newest: dict[str, int] = {}
    stale: set[tuple[str, int]] = set()
    for event in events:
        if event.kind != "start":
            continue
        group = event.group or ""
        is_serial = group and most.get(group, concurrency_of(group)) == 1
        line = f"group {group}" if is_serial else f"task {event.id}"
        if event.fence < newest.get(line, 0):
            stale.add((event.id, event.fence))
        newest[line] = max(newest.get(line, 0), event.fence)
    return stale


def _with_stages(events: list[Event]) -> list[Event]:
    """Each later stage as a task of its own, published right behind its task."""
    stages: dict[str, list[str]] = {}
    for event in events:
        id_, mark, _stage = event.id.partition("#")
        if mark and event.kind == "start" and event.id not in stages.setdefault(id_, []):
            stages[id_].append(event.id)
    whole: list[Event] = []
    for event in events:
        whole.append(event)
        if event.kind == "published":
            whole += [replace(event, id=stage) for stage in stages.get(event.id, ())]
    return whole


def _with_stage_states(events: list[Event], states: Mapping[str, _Known]) -> dict[str, _Known]:
    whole = dict(states)
    for event in events:
        id_, mark, _stage = event.id.partition("#")
        if mark and id_ in states:
            whole[event.id] = states[id_]
    return whole


_ENDS = ("done", "dead", "superseded", "expired")


def _count(
    verdict: Verdict, events: list[Event], history: History, states: Mapping[str, State]
) -> None:
    """How often each promise was tried, and what else there was."""
    attempts = pair(history.events)
    ids = {event.id for event in events if event.kind == "published" and "#" not in event.id}
    runs: dict[str, list[Event]] = defaultdict(list)
    for attempt in attempts:
        runs[attempt.start.id].append(attempt.start)
    groups = Counter(a.start.group for a in attempts if a.start.group is not None)
    pairs = [two for each in runs.values() for two in pairwise(each)]
    after_crash = sum(two.crashes > one.crashes for one, two in pairs)
    again = [(one, two) for one, two in pairs if two.crashes == one.crashes]
    after_retry = sum(two.attempt > one.attempt for one, two in again)
    ended = Counter[str](states.values())
    verdict.checked.update(S1=len(ids), S2=len(ids), S6=len(ids), S5=len(pairs), S7=1, L7=1)
    verdict.checked.update(
        S3=len(attempts), S9=len(attempts), S12=ended["superseded"], S13=ended["expired"]
    )
    in_turn = sum(count - 1 for count in groups.values())
    verdict.checked.update(S4=in_turn, S8=len(groups), L2=len(groups))
    verdict.figures |= {
        "publishes": sum(e.kind == "published" and "#" not in e.id for e in events),
        "tasks": len(ids),
        "groups": len(groups),
        "attempts": len(attempts),
        **{state: ended[state] for state in _ENDS},
        "runs again": len(pairs),
        "after a crash or a lost lease": after_crash,
        "after a counted retry": after_retry,
        "after a hand-back": len(pairs) - after_crash - after_retry,
    }


def lost_by_rabbitmq(logs: list[Path]) -> str:
    """Whether RabbitMQ itself lost its queue, messages and all, in its own words; else empty.

    Killed soon after a quorum queue was declared, 3.10 may come back with the queue's name and
    without its process. What it had confirmed is gone, which is nothing that a soak can judge.
    """
    mark = "{badmatch,{error,noproc}}"
    found = any(mark in log.read_text(errors="replace") for log in logs)
    return "a quorum queue without its process" if found else ""


def tracebacks(logs: list[Path]) -> list[Violation]:
    """Daemons that wrote a traceback: an unforeseen error."""
    found = []
    for log in logs:
        text = log.read_text(errors="replace")
        # In a line of its own, that is: what libraries log about broken connections is quoted in
        # JSON, and expected.
        if at := text.find("\nTraceback (most recent call last)") + 1:
            found.append(Violation("L6", f"{log.name}: {text[at : at + 1500]}"))
    return found
