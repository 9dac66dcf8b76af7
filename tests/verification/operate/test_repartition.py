"""A namespace gets another number of partitions: nothing is lost, nothing twice, order is kept."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
import pytest

from groupflow.core.errors import ConfigError, OtherLayout
from groupflow.core.limits import Debounce, HandLimit, Limits
from groupflow.operate.groups import Groups
from groupflow.operate.limits import LimitsByHand
from groupflow.operate.moving import DaemonsRun, move_letter
from groupflow.operate.namespace import Namespace
from groupflow.operate.repartition import TasksLeft
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Arrival, Enqueuer
from groupflow.store.envelope import Envelope
from groupflow.store.layout import FORMAT
from groupflow.store.partitions import agree, keys_of, partition_of
from groupflow.store.sessions import Session, Sessions
from groupflow.store.settlements import Advance, Retry
from tests.history.auditor import audit
from tests.history.snapshot import Snapshot
from tests.operate.moved import Cut, Killer, MakeWorld, World
from tests.store.actors import debouncing
from tests.store.bench import arrival, bury
from tests.store.task_state import HOUR

STEPS = [(1, 4), (2, 3), (3, 2)]
GROUPS = [f"g{n:02}" for n in range(24)]
_bursts = itertools.count(1)


def burst_in(group: str, *, aside: bool) -> Arrival:
    each = debouncing(arrival(f"{group}-{next(_bursts)}", group, steps_aside=aside))
    return replace(each, debounce=Debounce(HOUR, 10 * HOUR))  # a move at each step takes a while


BURSTS = [partial(burst_in, f"burst{n}", aside=n == 0) for n in range(3)]


def namesakes(groups: Sequence[str]) -> list[Arrival]:
    """One message id of several applications in each partition, whose tasks are told apart."""
    found = []
    for n, group in enumerate([None, None, None, *groups[:8], groups[3]]):
        tenant, body = f"t{n}", orjson.dumps({"of": n})
        envelope = Envelope("t", group, tenant, "rule", {}, body, tenant.encode().hex())
        found.append(Arrival("same", envelope))
    return found


async def fill(world: World, groups: Sequence[str] = GROUPS) -> None:
    """Something of each kind, in each partition."""
    await world.note()
    await let_rest(world, "scan:orders:0")
    for round_ in range(3):
        await world.enqueue(*(arrival(f"{group}-{round_}", group) for group in groups))
    await world.enqueue(*(arrival(f"p{n}") for n in range(20)))
    await world.enqueue(*(arrival(f"urgent{n}", priority=50.0) for n in range(6)))
    await world.enqueue(*(arrival(f"late{n}", delay=900.0) for n in range(6)))
    await world.enqueue(*(arrival(f"held{n}", f"held{n}", delay=900.0) for n in range(6)))
    await world.enqueue(*(arrival(f"behind{n}", f"held{n}") for n in range(6)))
    asked = world.bench_of("held0")  # one whose end was not written before all daemons stopped
    asked.raw.hset(asked.keys("cancels"), "behind0", b'["ops",""]')
    await world.enqueue(*(arrival(f"door{n}", dead="no route") for n in range(3)))
    for _ in range(2):  # of which the second replaces the first
        await world.enqueue(*(burst() for burst in BURSTS))
    await world.enqueue(*namesakes(groups))
    for bench in world.at(world.count):
        bench.limits = Limits(on_drained={"rule": ("", "drained")})
        daemon = await bench.daemon()
        claims = await daemon.claim("grouped", "w1", "w2", "w3")
        for n, claim in enumerate(claims):
            if n == 0:
                await daemon.settle(bury(claim, park=True))
            elif n == 1:
                await daemon.settle(Retry(claim, 700.0, [], "step-aside"))
            else:
                await daemon.complete(claim)
        await daemon.complete(*await daemon.claim("plain", "p1", "p2"))
        crashing = await daemon.claim("grouped", "w4")
        crashing += await daemon.claim("plain", "p4")
        assert crashing or world.count > 1
        await daemon.register()  # what it ran are quarantined tasks now
        await daemon.sessions.leave()
        for kind in ("g", "p"):  # else tenants would be behind, or ahead, by what was long ago
            bench.raw.zadd(bench.keys("shares", kind), {"=": 1, "0a0a0a0a7": 2})
    limits = LimitsByHand(Namespace([bench.client for bench in world.at(world.count)]))
    for group in groups[:4]:
        await Groups(world.bench_of(group).namespace).pause(group, "me")
        await limits.begin(HandLimit("group", group, 2), "ada", HOUR)
    await limits.begin(HandLimit("tenant", "42", 6), "ada", HOUR)


async def let_rest(world: World, shard: str) -> None:
    """A shard of a scan that found nothing, which counts as asleep in each place."""
    await world.enqueue(arrival(f"{shard}.1", shard))
    daemon = await world.bench_of(shard).daemon()
    claim = await daemon.claim_one()
    await daemon.settle(Advance(claim, "rest", b"{}", "step-aside", 900.0, forgets_crashes=True))
    await daemon.sessions.leave()


def bare(entry: bytes) -> bytes:
    """An entry or an id, without the scope that is behind it."""
    return entry.partition(b"~")[0]


def held_by(snapshots: Sequence[Snapshot]) -> dict[str, Any]:
    """All that lies in some partitions; what lies there twice is twice in a list."""
    totals: Counter[str] = Counter()
    for each in snapshots:
        totals.update({name: each.count(name) for name in each.fields("count")})
    del totals["sequence"]
    hashes = [each.hashes for each in snapshots]
    lines = [(*s.lists.get("plain", ()), *s.zsets.get("ordered", {})) for s in snapshots]
    lanes = [item for each in snapshots for item in each.lanes.items()]
    limits = [item for each in hashes for item in each["by_hand"].items()]
    return {
        # Bodies tell tasks of one id apart.
        "tasks": sorted((bare(id_), task) for h in hashes for id_, task in h["tasks"].items()),
        "lanes": sorted((group, [*map(bare, entries)]) for group, entries in lanes),
        "totals": +totals,
        "drains": sorted(item for h in hashes for item in h.get("drains", {}).items()),
        "aside": sorted(item for h in hashes for item in h.get("aside", {}).items()),
        "bursts": sorted((k, bare(v)) for h in hashes for k, v in h.get("debouncing", {}).items()),
        "cancels": sorted(item for h in hashes for item in h.get("cancels", {}).items()),
        "plain": sorted(bare(entry) for line in lines for entry in line),
        "ended": sorted(line for each in snapshots for line in each.finished.values()),
        "paused": sorted(name for each in snapshots for name in each.fields("paused")),
        # A tenant's limit lies in each partition.
        "limits": sorted(item for item in limits if item[0].startswith(b"g")),
        **{
            kind: sorted(score for s in snapshots for score in s.zsets.get(kind, {}).values())
            for kind in ("dead", "bodies", "delayed", "held", "late")
        },
    }


def assert_moved(world: World, before: list[Snapshot], count: int) -> None:
    """All that was there before is there now, where it belongs, and sound."""
    after = world.read(count)
    for bench in world.at(count):
        assert audit(bench.raw, bench.keys) == []
    found = held_by(after)
    assert found == held_by(before)
    assert (len(found["bursts"]), len(found["limits"])) == (len(BURSTS), 4)
    assert found["drains"]
    assert found["aside"]
    told = {b"drule": b" drained", b"d": b"1"}
    assert [each.hashes["limits"] for each in after] == [told] * count
    for number, snapshot in enumerate(after):
        groups = {*snapshot.lanes, *snapshot.fields("paused"), *snapshot.fields("parked")}
        groups |= {whose[1:] for whose in snapshot.fields("by_hand") if whose.startswith("g")}
        assert {partition_of(group, "", count) for group in groups} <= {number}
        assert "moved" not in snapshot.hashes
        assert "t42" in snapshot.fields("by_hand")
        assert {*snapshot.fields("by_hand")} == {*snapshot.names("by_hand_ends")}
    tags = tuple(f"{bench.keys.tag}:" for bench in world.at(count))
    notes = {key for key in world.names() if key.endswith(":partitions")}
    assert {key for key in world.names() if not key.startswith(tags)} <= notes
    assert notes >= {f"{{{world.name}}}:partitions"}
    if len(before) != count:  # those that have ended say so too
        assert notes >= {f"{keys.tag}:partitions" for keys in keys_of(world.name, len(before))}
        assert notes >= {f"{tag}partitions" for tag in tags}
    for note in notes:
        assert world.raw.hgetall(note) == {b"number": b"%d" % count, b"format": b"%d" % FORMAT}


@pytest.mark.parametrize(("before", "after"), STEPS)
async def test_all_is_moved(make_world: MakeWorld, before: int, after: int) -> None:
    world = make_world(before)
    await fill(world)
    was = world.read(before)
    fences = [int(each.strings.get("fence", b"0")) for each in was]
    report = await world.move(after)
    assert (report.before, report.after) == (before, after)
    assert_moved(world, was, after)
    assert min(report.tasks, report.over) > 0
    found = [int(each.strings.get("fence", b"0")) for each in world.read(after)]
    assert min(found) >= max(fences)
    again = await world.move(after)
    assert (again.before, again.after, again.tasks) == (after, after, 0)
    assert (await make_world(4).move(4)).before == 0, "no daemon has been here"


@pytest.mark.parametrize(("before", "after"), STEPS)
async def test_what_comes_again_is_known_where_it_would_come_to(
    make_world: MakeWorld, before: int, after: int
) -> None:
    """Ids that came, and bursts, which go on there."""
    world = make_world(before)
    await fill(world)
    again = [
        *(arrival(f"{group}-{n}", group) for group in GROUPS for n in range(3)),
        *(arrival(f"p{n}") for n in range(20)),
        *namesakes(GROUPS),
    ]
    superseded = held_by(world.read(before))["totals"]["superseded"]
    await world.move(after)
    world.count = after
    for each in again:
        enqueued = await world.bench_of(each.envelope.group, each.id).enqueuer.enqueue([each])
        assert enqueued.taken == [False], each.id
    await world.enqueue(*(burst() for burst in BURSTS))
    assert held_by(world.read(after))["totals"]["superseded"] == superseded + len(BURSTS)
    for bench in world.at(after):
        assert audit(bench.raw, bench.keys) == []


async def test_a_letter_that_went_to_its_group_keeps_its_id(make_world: MakeWorld) -> None:
    """It has left a line where its message would come to, and both may come to one place."""
    world, ids = make_world(4), [f"door{n}" for n in range(24)]
    await world.note()
    refused = [Arrival(id_, Envelope("t", None, None, None, {}, b"{}"), dead="no") for id_ in ids]
    await world.enqueue(*refused)
    for id_, group in zip(ids, GROUPS, strict=True):
        here, there = world.bench_of(None, id_), world.bench_of(group)
        if here is not there:
            assert await move_letter(here.client, there.client, id_) == id_
    for count in (3, 4, 1, 4):
        await world.move(count)
        world.count = count
        every = [id_ for each in world.read(count) for id_ in each.names("dead")]
        assert sorted(every) == sorted(ids)
    for each in refused:
        enqueued = await world.bench_of(None, each.id).enqueuer.enqueue([each])
        assert enqueued.taken == [False], each.id


async def test_killed_at_any_step(make_world: MakeWorld) -> None:
    """Before each call of a move, and behind the last: the next one goes on."""
    world = make_world(2)
    await fill(world, GROUPS[:8])
    was, dump = world.read(2), world.dump()
    killer = Killer()
    await world.move(3, killer)
    whole = killer.calls
    assert whole > 60
    for number, runs_it in [*((number, False) for number in range(whole)), (whole - 1, True)]:
        world.restore(dump)
        with pytest.raises(Cut):
            await world.move(3, Killer(number, runs_it))
        if not world.raw.hexists(f"{{{world.name}}}:partitions", "moving_to"):
            assert number < 8 or number == whole - 1
        else:
            with pytest.raises(ConfigError, match="on its way from 2 to 3"):
                await agree(world.at(1)[0].client, 2)
            with pytest.raises(ConfigError, match="repartition 3` first"):
                await world.move(5)
        await world.move(3)
        assert_moved(world, was, 3)


async def test_who_slept_brings_nothing_into_the_old_partitions(make_world: MakeWorld) -> None:
    """At any step of a move: what it brings is moved as well, or it is told, and writes nothing."""
    world, killer = make_world(2), Killer()
    await fill(world, GROUPS[:8])
    dump = world.dump()
    await world.move(3, killer)
    whole, seen = killer.calls, set()
    sleepers = [StoreClient(world.url, bench.keys, partitions=2) for bench in world.at(2)]
    for number in range(3, whole, 7):
        world.restore(dump)
        with pytest.raises(Cut):
            await world.move(3, Killer(number))
        for each in (arrival(f"new-{n}", f"new{n}") for n in range(4)):
            home = sleepers[partition_of(each.envelope.group, each.id, 2)]
            before = world.dump()
            try:
                await Enqueuer(home).enqueue([each])
                seen.add(each.id)
            except OtherLayout:
                assert world.dump() == before
                await refused_too(home, each)
        await world.move(3)
        lanes = {group for each in world.read(3) for group in each.lanes}
        assert {g for g in lanes if g.startswith("new")} == {f"new{id_[4:]}" for id_ in seen}
        seen.clear()
        with pytest.raises(OtherLayout, match="has 3: set it to 3"):
            await Enqueuer(sleepers[0]).enqueue([arrival("later", "later")])
    for sleeper in sleepers:
        await sleeper.close()


async def refused_too(home: StoreClient, each: Arrival) -> None:
    """Other verbs that put something where nothing was."""
    with pytest.raises(OtherLayout):
        await Groups(Namespace([home])).pause("new", "me")
    with pytest.raises(OtherLayout):
        await Sessions(home, Session("slept"), 8.0).register({})
    for verb in (OperatorVerb.RUN_NOW, OperatorVerb.REDRIVE):
        with pytest.raises(OtherLayout):
            await home.run(verb, each.id, "new")


async def test_nothing_moves_of_another_format_or_while_a_daemon_runs(
    make_world: MakeWorld,
) -> None:
    world = make_world(2)
    await fill(world)
    daemon = await world.at(2)[1].daemon("busy")
    with pytest.raises(DaemonsRun, match="stop busy"):
        await world.move(3)
    await agree(world.at(1)[0].client, 2)  # as if nothing had been
    await daemon.sessions.leave()
    world.raw.hset(world.at(1)[0].keys("partitions"), "format", 7)
    dump = world.dump()
    with pytest.raises(OtherLayout, match=f"of format 7, and this groupflow has format {FORMAT}"):
        await world.move(3)
    assert world.dump() == dump


async def test_a_daemon_that_comes_in_the_midst_stops_it(make_world: MakeWorld) -> None:
    """One that had agreed right before the move began; it holds what it claimed, the rest waits."""
    world = make_world(1)
    await fill(world)
    was = world.read(1)
    with pytest.raises(Cut):
        await world.move(2, Killer(20, runs_it=True))
    daemon = await world.at(1)[0].daemon("late")
    with pytest.raises(DaemonsRun, match="stop late"):
        await world.move(2)
    await daemon.sessions.leave()
    await world.move(2)
    assert_moved(world, was, 2)


async def test_what_a_dead_daemon_held_is_put_back_first(make_world: MakeWorld) -> None:
    """Redis was started again: until all daemons are waited for the task is in no list."""
    world = make_world(1)
    await fill(world)
    bench = world.at(1)[0]
    daemon = await bench.daemon("dies")
    (claim,) = await daemon.claim("grouped", "w1")
    bench.expire("dies")
    bench.raw.set(bench.keys("recovering"), f"{bench.server_time() + 300_000:016d}")
    bench.raw.hset(bench.keys("epoch"), mapping={"awaited": 1, "doubt": 0})
    await world.move(4)
    world.count = 4
    for each in world.at(4):
        assert audit(each.raw, each.keys) == []
    home = world.bench_of(claim.task.group)
    assert home.lane(str(claim.task.group))[0] == claim.task.id


async def test_what_lies_in_no_list_is_told_and_stays(make_world: MakeWorld) -> None:
    world = make_world(1)
    await fill(world)
    bench = world.at(1)[0]
    bench.raw.hset(bench.keys("tasks"), "lost", b'["t",null,null,null]\n{}')
    with pytest.raises(TasksLeft, match=r"1 tasks or entries of .* are in no list"):
        await world.move(2)
    bench.raw.hdel(bench.keys("tasks"), "lost")
    bench.raw.hincrby(bench.keys("count"), "retried", 3)  # its totals have gone nowhere by then
    retried = int(bench.raw.hget(bench.keys("count"), "retried") or 0)
    await world.move(2)
    assert sum(each.count("retried") for each in world.read(2)) == retried
    assert bench.raw.hget(f"{{{world.name}}}:partitions", "moving_to") is None
