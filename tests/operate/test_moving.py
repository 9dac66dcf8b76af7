"""repartition takes along until when tasks wait, and for what; and it tells of those it ends."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from groupflow.core.errors import OtherLayout, StoreUnavailable
from groupflow.core.events import Told
from groupflow.operate import tasks
from groupflow.operate.moving import DaemonsRun, Mover, move_in, move_letter
from groupflow.operate.repartition import repartitioned
from groupflow.operate.schedules import read_schedules
from groupflow.operate.scripts import OperatorVerb
from groupflow.servers import RedisServer
from groupflow.settings.ends import Events
from groupflow.settings.model import Redis, Settings
from groupflow.store.client import StoreClient
from groupflow.store.layout import FORMAT
from groupflow.store.outbox import look
from tests.operate.moved import MakeWorld, World
from tests.schedule.clockwork import Clockwork, defined, let_pass, rule
from tests.store.bench import Bench, arrival
from tests.store.story import play
from tests.store.task_state import letter


async def moved(make_world: MakeWorld, story: str) -> World:
    """A namespace of two partitions, both sound, from a single one with which a story went on."""
    world = make_world(1)
    await world.note()
    await play(world.at(1)[0], story)
    redis = Redis.model_validate({"url": world.url, "namespace": world.name})
    events = Events(exchange="ends", names=("cancelled",))
    await repartitioned(Settings(redis=redis, events=events), 2)
    world.count = 2
    for bench in world.at(2):
        assert bench.audit() == []
    return world


async def test_it_tells_of_what_was_cancelled_as_its_daemon_died(make_world: MakeWorld) -> None:
    world = await moved(make_world, "take a0 a1 | claim a0 | cancel a0 requested | expire")
    found: list[Any] = [bench.raw.lrange(bench.keys("outbox"), 0, -1) for bench in world.at(2)]
    (entry,) = [entry for entries in found for entry in entries]
    assert b'"event":"cancelled"' in entry
    assert b'"id":"a0"' in entry


async def test_it_takes_along_what_is_to_be_told_of_a_plain_task(make_world: MakeWorld) -> None:
    """A daemon writes of it that it has no group."""
    world = make_world(1)
    await world.note()
    home = world.at(1)[0]
    entry = b'0000000000000001{"event":"done","id":"p0","group":null}'
    world.raw.rpush(home.keys("outbox"), entry)
    world.raw.hincrby(home.keys("count"), "outbox_bytes", len(entry))
    await world.move(2)
    found: list[Any] = [each.raw.lrange(each.keys("outbox"), 0, -1) for each in world.at(2)]
    assert [Told.of(told).facts["id"] for entries in found for told in entries] == ["p0"]


async def test_how_far_follow_up_tasks_are_made_is_of_a_partition_alone(
    make_world: MakeWorld,
) -> None:
    """Else some would count as made that are not (simulated: seed 7017)."""
    world = make_world(3)
    await world.note()
    for home in world.at(3):
        daemon, number = await home.daemon(), home.server_time()
        entry = b'%016d{"event":"done","id":"p0","group":null}' % number
        world.raw.rpush(home.keys("outbox"), entry)
        world.raw.hset(home.keys("count"), mapping={"outbox_bytes": len(entry), "told": number})
        assert (await look(home.client, daemon.session, 0, followed=number)).followed == number
        await daemon.sessions.leave()
    await world.move(2)
    for home in world.at(2):
        found = await look(home.client, (await home.daemon()).session, 0)
        assert found.followed < home.server_time()


async def test_no_task_of_a_group_leaves_where_a_fail_over_brought_a_claim_back(
    make_world: MakeWorld,
) -> None:
    world = make_world(1)
    await play(world.at(1)[0], "take a0 a1 | claim a0 | expire")
    mover = Mover(world.at(1)[0].client, [each.client for each in world.at(2)])
    with pytest.raises(DaemonsRun, match="stop d1"):
        await mover.move("lane", "a")


@pytest.fixture
async def lone(tmp_path: Path) -> AsyncIterator[World]:
    """Two partitions on a server that no other test has, since it is promoted."""
    async with RedisServer(tmp_path) as server:
        world = World(server.url, "lone", 2)
        yield world
        await world.close()


async def test_all_moves_again_that_a_fail_over_in_the_midst_takes_back(lone: World) -> None:
    await lone.note()
    groups = [f"g{n}" for n in range(9)]
    await lone.enqueue(*(arrival(f"{group}-0", group) for group in groups))
    lone.count, dump = 3, lone.dump()

    def fall_back(told: str) -> None:
        if dump and told.startswith("partition 1 of 2"):
            lone.restore(dump)
            dump.clear()
            lone.raw.replicaof("127.0.0.1", 1)
            lone.raw.replicaof("NO", "ONE")

    redis = Redis.model_validate({"url": lone.url, "namespace": lone.name})
    await repartitioned(Settings(redis=redis), 3, fall_back)
    for group in groups:
        assert lone.bench_of(group).raw.llen(lone.bench_of(group).keys("lane", group)) == 1


async def test_it_ends_again_where_a_fail_over_took_back_that_it_has(make_world: MakeWorld) -> None:
    world = make_world(1)
    await world.note()
    await world.move(2)
    bench = world.at(2)[1]
    await bench.client.run(OperatorVerb.MOVING_TO, "mark", 2, 1)
    assert (await world.move(2)).before == 2
    assert await bench.client.run(OperatorVerb.NUMBER) == [2, 0, FORMAT]


async def test_no_letter_comes_where_a_namespace_is_moved_meanwhile(make_world: MakeWorld) -> None:
    """It would be left behind there, in what may be no partition any more."""
    world = make_world(2)
    await world.note()
    await play(world.at(2)[0], "take p0!")
    source, target = (StoreClient(world.url, each.keys, partitions=2) for each in world.at(2))
    await target.run(OperatorVerb.MOVING_TO, "mark", 3, 2)
    before = world.dump()
    with pytest.raises(OtherLayout, match="is on its way from 2 to 3 partitions"):
        await move_letter(source, target, "p0")
    await source.close()
    await target.close()
    assert world.dump() == before


async def test_a_letter_is_moved_that_was_moved_and_forgotten_before(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last call of the move before had failed, so the note that it was written stayed."""
    there, here = make_world(2).at(2)

    async def fail(*args: Any, gone: Sequence[str] = (), **kwargs: Any) -> list[str]:
        if gone:
            raise StoreUnavailable("no answer")
        return await move_in(*args, **kwargs)

    await play(here, "take p0!")
    with monkeypatch.context() as patched:
        patched.setattr("groupflow.operate.moving.move_in", fail)
        with pytest.raises(StoreUnavailable):
            await move_letter(here.client, there.client, "p0")
    await play(there, "redrive p0 | claim p0 | done p0 | leave")
    for bench in (here, there):
        bench.raw.delete(bench.keys("history_new"), bench.keys("history_old"))
    await play(here, "take p0!")
    assert await move_letter(here.client, there.client, "p0") == "p0"
    assert (await letter(there, "p0")).reason == "no"
    assert not there.raw.exists(there.keys("moved"))


async def test_what_expires_does_so_where_it_comes_to(make_world: MakeWorld) -> None:
    world = await moved(make_world, "take a0? p0? b0 c0?@ q0?")
    for id_, group in (("a0", "a"), ("p0", None), ("c0", "c"), ("q0", None)):
        story = f"overdue {id_} | expired 1 | task {id_} expired"
        await play(world.bench_of(group, id_), story)
    assert not [name for name in world.names() if "expiring" in name]


async def test_what_no_daemon_knew_waits_on_until_it_is_due(make_world: MakeWorld) -> None:
    """The clocks stay behind: a daemon that is there by then tells again what it knows."""
    world = await moved(make_world, "take a0 p0 | claim a0 p0 | defer a0 p0 | leave")
    assert not [name for name in world.names() if "unknown" in name]
    for id_, group in (("a0", "a"), ("p0", None)):
        await play(world.bench_of(group, id_), f"waits {id_} 30 | time {id_} | claim {id_}/1")


async def test_a_pause_ends_where_its_group_came_to(make_world: MakeWorld) -> None:
    """And is known nowhere else: there it would end a later pause of a group that comes back."""
    world = await moved(make_world, "take a0 d0 | pause a 60 | pause d 60 | pause all 60")
    for bench, snapshot in zip(world.at(2), world.read(2), strict=True):
        (mine,) = [group for group in ("a", "d") if world.bench_of(group) is bench]
        assert {*bench.raw.zrange(bench.keys("resumes"), 0, -1)} == {b"", mine.encode()}
        assert [*snapshot.fields("paused")] == [mine]


async def test_plain_tasks_are_dropped_and_cancelled_where_they_came_to(
    make_world: MakeWorld, monkeypatch: Any
) -> None:
    monkeypatch.setattr(tasks, "LOOKED_AT", 2)
    ids = [f"p{n}" for n in range(12)]
    world = await moved(make_world, f"take {' '.join(ids)}")
    for n, id_ in enumerate(ids):
        await play(world.bench_of(None, id_), f"{('drop', 'cancel')[n % 2]} {id_}")


async def test_many_that_wait_for_a_turn_are_moved(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many that a look at them from the beginning again meets empty places alone."""
    monkeypatch.setattr("groupflow.operate.repartition._GROUPS", 20)
    world, groups = make_world(1), [f"g{n}" for n in range(600)]
    await world.note()
    told = await play(world.at(1)[0], "tenants 1 1/h | open d1 | take p0 | claim p0 | done p0")
    await world.at(1)[0].enqueuer.enqueue([arrival(f"{group}-0", group) for group in groups])
    await told.go_on("size waiting_groups=600 | leave")
    await world.move(2)
    world.count = 2
    for bench, snapshot in zip(world.at(2), world.read(2), strict=True):
        assert bench.audit() == []
        assert {*snapshot.lanes} == {group for group in groups if world.bench_of(group) is bench}


async def test_ids_that_got_other_names_are_told_some_at_a_time(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be millions, where two applications number alike."""
    monkeypatch.setattr("groupflow.operate.repartition._NAMES", 20)
    world, names = make_world(1), {f"{'0' * 16} order-{n}": str(n) for n in range(1, 601)}
    await world.note()
    world.raw.hset(world.at(1)[0].keys("renamed"), mapping=names)
    world.raw.config_resetstat()
    await world.move(2)
    stats: Any = world.raw.info("commandstats")
    assert stats["cmdstat_hscan"]["calls"] > len(names) / 40
    for bench in world.at(2):
        known: Any = bench.raw.hgetall(bench.keys("renamed"))
        assert {name.decode(): number.decode() for name, number in known.items()} == names


async def test_a_group_with_a_task_aside_is_moved_whose_tenant_may_not_start(
    make_world: MakeWorld,
) -> None:
    story = "tenants 1 1/h | open d1 | take a0 a1 | claim a0 | retry a0 aside | leave"
    home = (await moved(make_world, story)).bench_of("a")
    await play(home, "lane a1 | task a0 delayed | size delayed=1")


@pytest.mark.parametrize("came_at_once", [False, True])
async def test_plain_tasks_leave_the_list_together(
    make_world: MakeWorld, *, came_at_once: bool
) -> None:
    """Behind those that stay: one by one each would be looked for among all of these again.

    Those that came at one moment, to partitions that were joined since, are looked for.
    """
    world, ids = make_world(2), [f"p{n}" for n in range(200)]
    await world.note()
    await world.enqueue(*map(arrival, ids))
    for bench in world.at(2) if came_at_once else ():
        raw: Any = bench.raw
        first, *others = raw.lrange(bench.keys("plain"), 0, -1)
        for place, entry in enumerate(others, 1):
            raw.lset(bench.keys("plain"), place, first[:16] + entry[16:])
    world.raw.config_resetstat()
    await world.move(3)
    stats: Any = world.raw.info("commandstats")
    assert came_at_once or stats["cmdstat_lrem"]["calls"] < 20
    world.count = 3
    for bench, snapshot in zip(world.at(3), world.read(3), strict=True):
        assert bench.audit() == []
        line = [*snapshot.lists.get("plain", ()), *snapshot.zsets.get("ordered", {})]
        here = sorted(id_ for id_ in ids if world.bench_of(None, id_) is bench)
        assert sorted(entry[17:].decode() for entry in line) == here


# repartition takes schedules along: each lies where its ticks will lie, and goes on as it was.


RULES: list[dict[str, Any]] = [
    *(rule(f"grouped{n}", app="crm", tenant=n, body={"kind": "k"}) for n in range(8)),
    *(rule(f"plain{n}") for n in range(8)),
]


async def lying(benches: list[Bench]) -> dict[str, dict[str, Any]]:
    """All schedules by name; each lies in one partition, where the daemons look for it."""
    found: dict[str, dict[str, Any]] = {}
    for n, bench in enumerate(benches):
        assert bench.audit() == []
        for each in await read_schedules(bench.namespace):
            assert each.name not in found
            (definition,) = [d for d in defined(*RULES) if d.name == each.name]
            assert definition.place(len(benches)) == n
            found[each.name] = asdict(each) | {"daemon_age": 0}
    return found


def leave_gone(benches: list[Bench]) -> None:
    """Rows of configurations by which schedules lay elsewhere, which keep these out."""
    for home, other in itertools.permutations(benches, 2):
        known: Any = home.raw.zrange(home.keys("schedules"), 0, -1, withscores=True)
        for name, due in known:
            row: Any = home.raw.hgetall(home.keys("schedule", name.decode()))
            key = other.keys("schedule", name.decode())
            if b"gone" not in row and not other.raw.exists(key):
                other.raw.hset(key, mapping={**row, b"gone": b"1"})
                other.raw.zadd(other.keys("schedules"), {name: due})


async def test_they_go_where_their_ticks_will_lie(make_world: MakeWorld) -> None:
    world = make_world(1)
    await world.note()
    clock = Clockwork(*world.at(1))
    clock.load(*RULES)
    await clock.look()
    let_pass(world.at(1)[0], 1, "plain1")
    await clock.look()
    before = await lying(world.at(1))
    assert len(before) == len(RULES)
    for count in (3, 2, 1):
        await world.move(count)
        assert await lying(world.at(count)) == before
        leave_gone(world.at(count))
        tags = tuple(f"{bench.keys.tag}:schedule" for bench in world.at(count))
        assert all(name.startswith(tags) for name in world.names() if ":schedule" in name)
