"""The auditor: is what lies in Redis one consistent whole, at this instant?

It is for a store that stands still; see `tests.history.snapshot`.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise, product

import orjson
from redis import Redis

from groupflow.store.clock import MICROSECONDS
from groupflow.store.enqueue import READ_WHOLE
from groupflow.store.keys import SEQUENCE_DIGITS, Keys, split_entry
from groupflow.store.pulling import puller_of
from tests.history.debouncing import bursts_of
from tests.history.drains import drains_of
from tests.history.held_bytes import bytes_held
from tests.history.invariants import Violation
from tests.history.limits import limits_of, room_in
from tests.history.outbox import outbox_of
from tests.history.quarantine import quarantined_of
from tests.history.schedules import schedules_of
from tests.history.snapshot import Snapshot, facts_in, read
from tests.history.tenants import tenants_of
from tests.history.types import types_of
from tests.history.unknown import unknown_of

ENDED = (
    "done",
    "cancelled",
    "expired",
    "dropped",
    "superseded",
    "missing",
)  # counts of tasks that are over
KEPT = 60 * MICROSECONDS  # for which what is past may still lie there
_CLAIMED = {b"attempt", b"crashes", b"stage", b"redriven"}  # what says that a task has started
FAMILY = 16  # derived ids that are looked at; see ids.lua
# (What is losing stays until ten leases are over; `_losses` looks that it goes with `lost`.)
_STAYS = frozenset((
    "count", "fence", "partitions", "pools", "segments", "history_new", "history_old", "dead",
    "bodies", "staying", "samples", "tally", "tallies", "renamed", "epoch", "schedules", "limits",
    "losing", "caps", "unknown", "results_new", "results_old", "outbox", "actions",
    "lately_new", "lately_old",
))  # fmt: skip


def audit(raw: Redis, keys: Keys) -> list[Violation]:
    """Every way in which a namespace contradicts itself."""
    return audit_of(read(raw, keys))


def audit_of(found: Snapshot) -> list[Violation]:
    """The same of one that was read."""
    return [violation for look in _LOOKS for violation in look(found)]


def _strange_keys(found: Snapshot) -> Iterator[Violation]:
    for key in found.strangers:
        yield Violation("S9", f"the key {key!r} is of no kind that there is")


def _places(found: Snapshot) -> dict[str, list[str]]:
    """Where each task is, by id."""
    places: dict[str, list[str]] = defaultdict(list)
    for place, _group, entry in found.waiting:
        places[split_entry(entry)[1]].append(place)
    for claim in found.checkpoints:
        places[split_entry(claim.entry)[1]].append(f"worker {claim.daemon} {claim.worker}")
    for id_ in found.names("dead"):
        places[id_].append("dead")
    for id_ in found.finished:
        places[id_].append("history")
    return places


def _tasks(found: Snapshot) -> Iterator[Violation]:
    """Every task in exactly one place, and every place with its task."""
    places = _places(found)
    for id_, where in places.items():
        if len(where) > 1:
            yield Violation("S6", f"{id_} is in {len(where)} places: {', '.join(where)}")
        if where == ["history"] and id_ in found.tasks:
            yield Violation("L7", f"{id_} is over and its envelope is still there")
        if where != ["history"] and id_ not in found.tasks:
            yield Violation("S1", f"{id_} is in {where[0]} without its envelope")
    for id_ in found.tasks.keys() - places.keys():
        yield Violation("S1", f"{id_} has an envelope and is in no place")
    for id_ in found.lives.keys() - found.tasks.keys():
        yield Violation("L7", f"{id_} has a task state and no envelope")
    for id_ in set(found.fields("cancels")) - found.tasks.keys():
        yield Violation("L7", f"{id_} is to be cancelled and is over")
    for id_ in found.names("dead"):
        if b"reason" not in found.lives.get(id_, {}):
            yield Violation("S1", f"the dead letter {id_} has no reason")
        if b"attempts" not in found.lives.get(id_, {}):
            yield Violation("S5", f"the dead letter {id_} doesn't say how many attempts failed")
    yield from _facts(found)


def _expiring(found: Snapshot) -> Iterator[Violation]:
    """What has to start in time waits, and has not started; what expired never has."""
    waiting = {split_entry(entry)[1]: place for place, _, entry in found.waiting}
    for id_ in found.names("expiring"):
        if waiting.get(id_, "plain") == "plain":
            yield Violation("S13", f"{id_} may expire, and waits in no place for that")
        if not _CLAIMED.isdisjoint(found.lives.get(id_, {})):
            yield Violation("S13", f"{id_} may expire, and has started")
    for id_, line in found.finished.items():
        how, *facts = orjson.loads(line[SEQUENCE_DIGITS:])
        if how == "expired" and facts[2:4] != [1, 0]:
            yield Violation("S13", f"{id_} expired, and had started: {line!r}")


def _facts(found: Snapshot) -> Iterator[Violation]:
    """What lists show of a task lies apart from a large body and is what its envelope says."""
    dead = set(found.names("dead"))
    for id_, packed in found.tasks.items():
        type_, _group, tenant, *_ = facts_in(packed)
        task_state = found.lives.get(id_, {})
        told = task_state.get(b"type"), task_state.get(b"tenant")
        scope = str(facts_in(packed)[5])
        if b"scope" in task_state and task_state[b"scope"].decode() != scope:
            text = f"{id_} is told to be of scope {task_state[b'scope']!r}, not {scope!r}"
            yield Violation("S9", text)
        if told == (None, None):
            if id_ in dead or len(packed) > READ_WHOLE:
                yield Violation("S9", f"{id_} has to be read whole to tell its type and tenant")
        elif told != (type_.encode(), (tenant or "").encode()):
            yield Violation("S9", f"{id_} is told to be {told}, and is ({type_!r}, {tenant!r})")


def _renamed(found: Snapshot) -> Iterator[Violation]:
    """A derived id is of the scope that it was derived for."""
    salts = found.hashes.get("segments", {}).get(b"salt", b"").split()
    for field_, newest in found.hashes.get("renamed", {}).items():
        scope, _, message = field_.partition(b" ")
        numbers = range(int(newest), max(0, int(newest) - FAMILY), -1)
        for number, salt in product(numbers, salts):
            secret = b" ".join([salt, scope, b"%d" % number, message])
            digest = hashlib.sha1(secret, usedforsecurity=False).hexdigest()
            packed = found.tasks.get(f"{message.decode()}~{digest[:16]}")
            if packed is not None and facts_in(packed)[5] != scope.decode():
                yield Violation("S6", f"a derived id of {field_!r} is a task of another scope")


def _entries(found: Snapshot) -> Iterator[Violation]:
    """Entries tell the truth: of their task state, of their group, of their place in the lane."""
    claimed = [("a checkpoint", c.group, c.entry) for c in found.checkpoints]
    for place, group, entry in [*found.waiting, *claimed]:
        id_ = split_entry(entry)[1]
        flag = entry[SEQUENCE_DIGITS : SEQUENCE_DIGITS + 1]
        if (flag == b"+") != (id_ in found.lives):
            text = f"{id_} in {place} has the flag {flag!r}, which its task state denies"
            yield Violation("S5", text)
        facts = found.facts_of(entry)
        if facts and (facts[1] or "") != group:
            yield Violation("S9", f"{id_} is in {place}, which is not its group's")
    for group, lane in found.lanes.items():
        arrivals = [split_entry(entry)[0] for entry in lane]
        if any(newer <= older for newer, older in pairwise(arrivals)):
            yield Violation("S4", f"the lane of {group} is out of order: {arrivals}")


def _groups(found: Snapshot) -> Iterator[Violation]:
    """Each group in exactly one state, the one that the facts about it call for."""
    indexes = [*found.indexes("ready"), *found.indexes("quarantined_groups")]
    every = [group.decode() for _, members in indexes for group in members]
    for group, number in Counter(every).items():
        if number > 1:
            yield Violation("S4", f"the group {group} is ready in two indexes")
    lined_up = {g for _, g in found.lined_up()} | set(found.fields("cap_groups"))
    ready, held, shared = lined_up | set(every), set(found.names("held")), found.sharing
    parked, paused = set(found.fields("parked")), set(found.fields("paused"))
    for group in ready | held | parked | paused | set(found.locks) | set(found.lanes):
        room = room_in(found, group)
        running = {group} if group in found.locks and room <= 0 else {}
        places = ("ready", ready), ("held", held), ("running", running)
        states = [name for name, members in places if group in members]
        if len(states) > 1:
            yield Violation("S4", f"the group {group} is {' and '.join(states)} at once")
        if (group in ready or group in held) and group in parked | paused:
            yield Violation("S4", f"the group {group} is {states[0]}, though an operator holds it")
        if (group in ready or group in held) and group not in found.lanes:
            yield Violation("S4", f"the group {group} is {states[0]} with nothing in its lane")
        waits = group in shared and room <= 0  # for the end of one that runs
        if group in found.lanes and not states and not waits and group not in parked | paused:
            yield Violation("S8", f"the group {group} has tasks, no lock, and can't be claimed")
    dead = set(found.names("dead"))
    for name, note in found.hashes.get("parked", {}).items():
        if orjson.loads(note)[0] not in dead:
            yield Violation("S8", f"{name.decode()} is parked behind no dead letter that exists")


def _claims(found: Snapshot) -> Iterator[Violation]:
    """A lock where there is a checkpoint, and nowhere else; a claim only with who is alive."""
    leased = found.leased
    for daemon in leased ^ set(found.daemons):
        yield Violation("S8", f"the daemon {daemon} has a lease or a session, not both")
    for daemon in found.workers - leased:
        yield Violation("S8", f"the checkpoints of {daemon} are left, and it has no lease")
    last = int(found.strings.get("fence", 0))
    proven: set[str] = set()
    fences = Counter(claim.fence for claim in found.checkpoints)
    for claim in found.checkpoints:
        if claim.fence > last or fences[claim.fence] > 1:
            yield Violation("S3", f"the fence {claim.fence} of {claim.group} is not its own")
        if not claim.group:
            continue
        owner = f"{claim.fence:016d} {claim.daemon} {claim.worker}".encode()
        lock = found.locks.get(claim.group)
        if owner in found.sharing.get(claim.group, ()):
            continue
        if lock is None:
            yield Violation("S4", f"{claim.worker} runs {claim.group} without its lock")
        elif lock != owner:
            yield Violation("S4", f"{claim.worker} runs {claim.group}, which {lock!r} has locked")
        if claim.group in proven:
            yield Violation("S4", f"two workers run {claim.group}")
        proven.add(claim.group)
    for group in set(found.locks) - proven:
        yield Violation("S8", f"the group {group} is locked, and no worker runs it")


def _pullers(found: Snapshot) -> Iterator[Violation]:
    """Each worker that pulls stands in its own pool, and counts for as many tasks as it holds."""
    held = Counter(claim.daemon for claim in found.checkpoints if puller_of(claim.daemon))
    counted = Counter[str]()
    for pool, members in found.pools.get("pullers", {}).items():
        for name in members:
            of = puller_of(name.decode())
            if of is None or pool != of[0]:
                yield Violation("S9", f"{name.decode()} stands among the workers of {pool!r}")
        if pool not in found.fields("pools"):
            yield Violation("S8", f"the pool {pool} has workers, and no name for who reaps")
    for pool, members in found.pools.get("holders", {}).items():
        told = {name.decode(): int(number) for name, number in members.items()}
        of_all = told.pop("", 0)
        if of_all != sum(told.values()) or min(told.values(), default=0) <= 0:
            yield Violation("S7", f"workers of {pool} hold {told}, in all {of_all}")
        counted.update(told)
    if counted != held:
        yield Violation("S7", f"workers hold {dict(held)}, and count for {dict(counted)}")


def _runs(found: Snapshot) -> Iterator[Violation]:
    """A run is of a group that is locked, under one of the run's fences."""
    for group, reach in found.hashes.get("runs", {}).items():
        lock = found.locks.get(group.decode())
        if lock is None or lock[:16] > reach[:16]:
            yield Violation("S8", f"{group.decode()} is said to have a run, and {lock!r} locks it")


def _losses(found: Snapshot) -> Iterator[Violation]:
    """What was lost with a lease is known until a daemon says how that ended, and no longer."""
    for daemon in set(found.names("losing")) ^ set(found.lost):
        yield Violation("L8", f"{daemon} lost a lease, and nothing says what, or until when")
    for daemon, entries in found.lost.items():
        if len(entries) < 2:
            yield Violation("L8", f"{daemon} lost a lease, and nothing with it: {entries}")
    for id_, task_state in found.lives.items():
        if not 0 <= int(task_state.get(b"lost_leases", 0)) <= int(task_state.get(b"crashes", 0)):
            yield Violation("L8", f"{id_} lost more leases than it had claims that weren't settled")


def _counters(found: Snapshot) -> Iterator[Violation]:
    """The totals are what the lists say."""
    waiting = Counter("grouped" if group else "plain" for _, group, _ in found.waiting)
    running = Counter("grouped" if claim.group else "plain" for claim in found.checkpoints)
    for pool in ("plain", "grouped"):
        for name, seen in ((f"queued_{pool}", waiting[pool]), (f"running_{pool}", running[pool])):
            if found.count(name) != seen:
                yield Violation("S7", f"{name} says {found.count(name)}, the lists {seen}")
    yield from bytes_held(found)
    yield from _asleep(found)
    held = sum(waiting.values()) + sum(running.values()) + len(found.zsets.get("dead", {}))
    held += sum(found.count(name) for name in ENDED)
    if held != found.count("taken"):
        yield Violation("S7", f"taken says {found.count('taken')}, accounted for {held}")


def _asleep(found: Snapshot) -> Iterator[Violation]:
    """Who counts as asleep stands aside until it is due, and is a shard of a scan."""
    noted = {id_ for id_, task_state in found.lives.items() if b"asleep" in task_state}
    aside = {split_entry(entry)[1] for entry in found.zsets.get("delayed", {})}
    if found.count("asleep") != len(noted):
        yield Violation("S7", f"asleep says {found.count('asleep')}, the lives {sorted(noted)}")
    for id_ in noted:
        if id_ not in aside or not id_.startswith("scan:"):
            yield Violation("S7", f"{id_} counts as asleep, and should not")


_LOOKS = (
    _strange_keys, _tasks, _expiring, _entries, _groups, _claims, _pullers, _runs, _losses,
    quarantined_of, limits_of, tenants_of, types_of, bursts_of, _counters, _renamed, schedules_of,
    unknown_of, drains_of, outbox_of,
)  # fmt: skip


def leftovers_of(found: Snapshot, keys: Keys) -> list[str]:
    """The keys that have no right to be there when all tasks are over.

    What may stay: totals, the fence, the history and its segments, dead letters, and what belongs
    to daemons that are there.
    """
    dead, leased = set(found.names("dead")), found.leased
    past = found.at - KEPT  # `promote` may not have come yet since then
    left = list(found.strangers)
    for kind in (*found.lists, *found.zsets, *found.hashes, *found.strings):
        if kind in ("rates", "closed") and min(found.zsets[kind].values()) > past:
            continue  # they end by themselves, and `promote` comes often enough
        if kind not in (*_STAYS, "tasks") and not (kind == "daemons" and leased):
            left.append(keys(kind))
    kinds = found.pools.keys() - {"pullers"}
    left += [keys(f"pool_{kind}", pool) for kind in kinds for pool in found.pools[kind]]
    left += [f"{keys('tasks')} {id_}" for id_ in found.tasks.keys() - dead]
    # Shares of workers are forgotten by `promote`, once nothing waits. (A run that goes on after
    # that notes its tenant's share alone.)
    shares = [pool for pool, starts in found.shares.items() if max(starts.values()) <= past]
    running = {claim.daemon for claim in found.checkpoints}
    for kind, names in (
        *(
            ("lane", found.lanes),
            ("lock", found.locks),
            ("waits", found.waits),
            ("cap_waits", found.cap_waits),
            ("shares", shares),
        ),
        *(("task_state", found.lives.keys() - dead), ("daemon", found.daemons.keys() - leased)),
        ("worker", (found.workers - leased) | running),
        ("unknown_tasks", found.unknown_tasks),
    ):
        left += [keys(kind, name) for name in names]
    return sorted(set(left))
