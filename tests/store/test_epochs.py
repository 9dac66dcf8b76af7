"""A server that may have lost its last writes: who may claim there, and when (S10); fences."""

from __future__ import annotations

import pytest

from groupflow.core.errors import SessionLost, StoreUnavailable
from groupflow.core.limits import Limit, Limits
from groupflow.operate.groups import Groups
from groupflow.store.clock import microseconds
from groupflow.store.epochs import NEVER
from groupflow.store.limits import pack
from groupflow.store.sessions import Claimable, Sessions
from groupflow.store.settlements import Complete
from tests.store.bench import Bench, Daemon, arrival, ids

LONG = 1e6  # seconds; since no server of a test has run for so long, it may have lost something
FAR = 5 * 10**15  # a fence that is ahead of every clock


async def begin(bench: Bench, *names: str, lease: float = LONG) -> list[Daemon]:
    """Daemons with open sessions, each of which the others would miss."""
    daemons = [Daemon(bench, name) for name in names]
    for daemon in daemons:
        daemon.sessions = Sessions(bench.client, daemon.session, lease)
        await daemon.register()
    for daemon in (*daemons, *daemons, *daemons):
        await daemon.sessions.renew()
    assert all(daemon.session.is_witnessed for daemon in daemons)
    return daemons


async def test_the_first_epoch_waits_for_no_daemon(bench: Bench) -> None:
    """And its fences begin at the clock: there may have been another, which lost everything."""
    before = bench.server_time()
    (daemon,) = await begin(bench, "d1")
    await bench.enqueue(arrival("a0", "a"))
    assert (await daemon.claim_one()).fence > before
    assert bench.raw.exists(bench.keys("recovering")) == 0


async def test_where_nothing_was_lost_all_goes_on_once_all_have_come(bench: Bench) -> None:
    await bench.enqueue(*(arrival(f"{group}{n}", group) for group in "abc" for n in range(2)))
    first, second = await begin(bench, "d1", "d2")
    held = [await first.claim_one(), await second.claim_one()]
    bench.begin_epoch(first, second)
    with pytest.raises(StoreUnavailable, match="restarted, or another"):
        await first.claim("grouped", "w2")
    waiting = await first.sessions.renew()
    assert waiting.groups == 0
    assert waiting.recovering is not None
    assert waiting.recovering > LONG / 2
    assert await first.claim("grouped", "w2") == []
    assert await bench.enqueue(arrival("c2", "c")) == [True]
    assert await first.complete(held[0]) == [], "what is held is settled meanwhile"
    assert await first.claim("grouped", "w2") == []
    (held_back,) = (await bench.status()).held_back
    why = await Groups(bench.namespace).why("c")
    assert (why.state, why.since, why.until) == ("ready", held_back.since, held_back.until)
    assert "may have lost claims" in why.reason
    assert held_back.partition == 0
    assert LONG / 2 < held_back.until - held_back.since <= LONG + 1
    assert await second.sessions.renew() == Claimable(0, 2, is_elsewhere=True)
    assert await second.sessions.renew() == Claimable(0, 2)
    assert (await bench.status()).held_back == []
    assert "workers are busy" in (await Groups(bench.namespace).why("c")).reason
    assert ids(await first.claim("grouped", "w2")) == ["a1"]
    assert await second.complete(held[1]) == []
    assert bench.judge() == []


async def test_a_lost_claim_is_given_out_again(bench: Bench) -> None:
    """Once its daemon has dropped it, and not before."""
    await bench.enqueue(arrival("a0", "a"))
    first, second = await begin(bench, "d1", "d2")
    kept = bench.dump()
    lost = await second.claim_one()
    bench.restore(kept)
    bench.begin_epoch(first, second)
    await first.sessions.renew()
    assert await first.claim("grouped", "w1") == []
    with pytest.raises(SessionLost, match="lost writes"):
        await second.sessions.renew()
    assert await first.claim("grouped", "w1") == []
    second.drop(lost)
    assert await second.sessions.register({}) == []
    again = await first.claim_one()
    assert (again.task.id, again.task.crashes) == ("a0", 0)
    assert again.fence > lost.fence
    assert await second.settle(Complete(lost), end=False) == [Complete(lost)]


async def test_no_plain_task_is_given_during_a_recovery(bench: Bench) -> None:
    await bench.enqueue(arrival("p0"))
    first, second = await begin(bench, "d1", "d2")
    bench.begin_epoch(first, second)
    await first.sessions.renew()
    assert await first.claim("plain", "w1") == []
    await second.sessions.renew()
    await first.claim_one("plain")


async def test_a_claim_whose_settle_was_lost_goes_back(bench: Bench) -> None:
    """Its slot held it still, while another worker had run the next of the group: under a higher
    fence, so it is claimed under a new one."""
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"))
    first, second = await begin(bench, "d1", "d2")
    held = await first.claim_one(worker="w1")
    kept, events = bench.dump(), list(bench.events)
    assert await first.complete(held) == []
    lost = await second.claim_one()
    assert lost.task.id == "a1"
    bench.restore(kept)
    bench.begin_epoch(first, second)
    await first.sessions.renew()
    assert (await first.exchange("grouped", [], ["w1"]))[1] == []
    with pytest.raises(SessionLost):
        await second.sessions.renew()
    await second.sessions.register({})
    bench.events = events
    first.drop(held)
    again = await first.claim_one(worker="w1")
    assert again.task.id == "a0"
    assert again.task.crashes == 0
    assert again.fence > lost.fence
    assert await first.settle(Complete(held), end=False) == [Complete(held)]
    assert await first.complete(again) == []
    assert await first.work_off(["w1"]) == ["a1"]
    assert bench.judge() == []


async def test_claims_of_a_group_go_back_in_their_order(bench: Bench) -> None:
    """Where several of a group may run."""
    bench.limits = Limits({"rule": Limit(concurrency=2)})
    bench.concurrency = {"a": 2}
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(3)), arrival("p0"))
    (daemon,) = await begin(bench, "d1")
    limits = pack(bench.limits)
    daemon.sessions = Sessions(bench.client, daemon.session, LONG, limits=lambda: limits)
    await daemon.sessions.register({})
    held = [*await daemon.claim("grouped", "w1", "w2"), *await daemon.claim("plain", "w3")]
    kept, events = bench.dump(), list(bench.events)
    assert await daemon.complete(*held) == []
    bench.restore(kept)
    bench.begin_epoch(daemon)
    bench.events = events
    daemon.drop(*held)
    await daemon.sessions.renew()
    again = [*await daemon.claim("grouped", "w1", "w2"), *await daemon.claim("plain", "w3")]
    assert ids(again) == ["a0", "a1", "p0"]
    assert min(claim.fence for claim in again) > max(claim.fence for claim in held)
    assert await daemon.complete(*again) == []
    assert await daemon.work_off(["w1"]) == ["a2"]
    assert bench.judge() == []


async def test_whose_lease_was_over_drops_its_runs(bench: Bench) -> None:
    """Others took over before the old server fell, and this one doesn't know: they may write rows
    of the first task behind those of a later one."""
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"))
    first, second = await begin(bench, "d1", "d2")
    first.claims("grouped").adopt({"rule": 2})
    held = await first.claim_one()
    bench.expire("d1")
    kept = bench.dump()
    await second.sessions.reap()
    lost = await second.claim_one()
    bench.restore(kept)
    bench.begin_epoch(first, second)
    with pytest.raises(StoreUnavailable, match="restarted, or another"):
        await first.settle(Complete(held), end=False)
    with pytest.raises(SessionLost, match="lost writes"):
        await first.sessions.renew()
    first.drop(held)
    await first.sessions.register({})
    assert await first.claim("grouped", "w1") == []
    second.drop(lost)


async def test_whose_lease_was_over_settles_a_single_task(bench: Bench) -> None:
    """None behind it begins before all have come, so a daemon that took it over disturbs none."""
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"))
    first, second = await begin(bench, "d1", "d2")
    held = await first.claim_one()
    bench.expire("d1")
    bench.begin_epoch(first, second)
    await first.sessions.renew()
    assert await first.complete(held) == []
    assert await first.claim("grouped", "w1") == []


async def test_a_lost_registration_costs_a_lease(bench: Bench) -> None:
    """No daemon knows which others have registered, and when these come."""
    await bench.enqueue(arrival("a0", "a"))
    (first,) = await begin(bench, "d1")
    kept = bench.dump()
    (second,) = await begin_beside(first, "d2")
    lost = await second.claim_one()
    bench.restore(kept)
    bench.begin_epoch(first, second)
    await first.sessions.renew()
    await first.sessions.renew()
    assert await first.claim("grouped", "w1") == []
    bench.end_recovery()
    second.drop(lost)  # by its own clock
    await first.sessions.renew()
    assert (await first.claim_one()).fence > lost.fence
    with pytest.raises(SessionLost):
        await second.sessions.renew()


async def test_the_first_of_all_registrations_may_be_lost_too(bench: Bench) -> None:
    """Where there are tasks there was a server: what was claimed since is lost, but runs."""
    await bench.enqueue(arrival("a0", "a"))
    kept = bench.dump()
    (first,) = await begin(bench, "d1")
    lost = await first.claim_one()
    bench.restore(kept)
    bench.begin_epoch(first)
    second = Daemon(bench, "d2")
    second.sessions = Sessions(bench.client, second.session, LONG)
    await second.register()
    await second.sessions.renew()
    assert await second.claim("grouped", "w1") == []
    bench.end_recovery()
    first.drop(lost)  # by its own clock
    await second.sessions.renew()
    assert (await second.claim_one()).fence > lost.fence


async def begin_beside(first: Daemon, *names: str) -> list[Daemon]:
    """More daemons; the first would miss them."""
    others = [Daemon(first.bench, name) for name in names]
    for other in others:
        other.sessions = Sessions(first.bench.client, other.session, LONG)
        await other.register()
        assert not other.session.is_witnessed
    await first.sessions.renew()
    await first.sessions.renew()
    for other in others:
        await other.sessions.renew()
        assert other.session.is_witnessed
    return others


async def test_what_a_daemon_drops_by_itself_is_no_crash(bench: Bench) -> None:
    """Some of its claims are unknown, so it opens a new session; nothing has killed it."""
    await bench.enqueue(arrival("a0", "a"), arrival("b0", "b"), arrival("p0"))
    (daemon,) = await begin(bench, "d1")
    held = [await daemon.claim_one(), await daemon.claim_one("plain", "w2")]
    kept = bench.dump()
    held.append(await daemon.claim_one(worker="w3"))
    bench.restore(kept)
    bench.begin_epoch(daemon)
    with pytest.raises(SessionLost):
        await daemon.sessions.renew()
    daemon.drop(*held)
    rows = await daemon.sessions.register({})
    assert sorted(row.id for row in rows) == ["a0", "p0"]
    bench.end_recovery()
    await daemon.sessions.renew()
    again = [*await daemon.claim("grouped", "w4", "w5"), await daemon.claim_one("plain", "w6")]
    assert [(claim.task.id, claim.task.crashes) for claim in again] == [
        ("a0", 0),
        ("b0", 0),
        ("p0", 0),
    ]


async def test_a_new_process_of_a_known_name_proves_nothing(bench: Bench) -> None:
    """What the last one was told is unknown."""
    await bench.enqueue(arrival("a0", "a"))
    first, second = await begin(bench, "d1", "d2")
    bench.begin_epoch(first, second)
    await first.sessions.renew()
    again = await bench.daemon("d2")
    await first.sessions.renew()
    assert await first.claim("grouped", "w1") == []
    assert await again.claim("grouped", "w1") == []


async def test_who_left_before_it_was_asked_proves_nothing(bench: Bench) -> None:
    await bench.enqueue(arrival("a0", "a"))
    first, second = await begin(bench, "d1", "d2")
    bench.begin_epoch(first, second)
    await second.sessions.leave()
    await first.sessions.renew()
    assert await first.claim("grouped", "w1") == []


async def test_who_slept_over_its_lease_proves_nothing(bench: Bench) -> None:
    """All that has happened since may be lost, its own end included."""
    await bench.enqueue(arrival("a0", "a"))
    first, second = await begin(bench, "d1", "d2")
    bench.expire("d2")
    bench.begin_epoch(first, second)
    await first.sessions.renew()
    await second.sessions.renew()
    assert await first.claim("grouped", "w1") == []


async def test_where_no_daemon_is_known_a_lease_passes(bench: Bench) -> None:
    """Who came last may be lost."""
    await bench.enqueue(arrival("a0", "a"))
    (daemon,) = await begin(bench, "d1")
    await daemon.sessions.leave()
    bench.begin_epoch()
    (daemon,) = [Daemon(bench, "d1")]
    daemon.sessions = Sessions(bench.client, daemon.session, LONG)
    await daemon.register()
    await daemon.sessions.renew()
    assert await daemon.claim("grouped", "w1") == []
    bench.end_recovery()
    await daemon.sessions.renew()
    await daemon.claim_one()


async def test_an_epoch_that_was_cut_short_leaves_its_doubts_to_the_next(bench: Bench) -> None:
    await bench.enqueue(arrival("a0", "a"))
    first, second = await begin(bench, "d1", "d2")
    bench.begin_epoch(first, second)
    await first.sessions.renew()
    again = await bench.daemon("d2")
    bench.begin_epoch(first, again)
    await first.sessions.renew()
    await again.sessions.renew()
    assert await first.claim("grouped", "w1") == []


async def test_a_daemon_that_knows_a_lost_epoch_opens_a_new_session(bench: Bench) -> None:
    """Its claims are of another history."""
    await bench.enqueue(arrival("a0", "a"))
    first, second = await begin(bench, "d1", "d2")
    kept = bench.dump()
    bench.begin_epoch(first, second)
    await first.sessions.renew()
    await second.sessions.renew()
    lost = await second.claim_one()
    own = second.session.epoch
    bench.restore(kept)
    bench.begin_epoch()
    second.session.epoch = type(own)("0" * 40)
    second.session.seen.fence = 1  # the clock had gone back there
    with pytest.raises(SessionLost):
        await second.sessions.renew()
    second.drop(lost)
    await second.sessions.register({})
    bench.end_recovery()
    await second.sessions.renew()
    assert (await second.claim_one()).fence > lost.fence


async def test_no_daemon_is_reaped_before_all_could_come(bench: Bench) -> None:
    await bench.enqueue(arrival("a0", "a"))
    first, second = await begin(bench, "d1", "d2")
    held = await second.claim_one()
    bench.begin_epoch(first, second)
    bench.expire("d2")
    wait, handed = await first.sessions.reap()
    assert handed == []
    assert wait is not None
    assert 0 < wait <= LONG + 1
    bench.end_recovery()
    second.drop(held)
    assert len((await first.sessions.reap())[1]) == 1
    with pytest.raises(SessionLost):
        await second.sessions.renew()


async def test_the_longest_lease_counts(bench: Bench) -> None:
    first, _ = await begin(bench, "d1", "d2", lease=2 * LONG)
    first.sessions = Sessions(bench.client, first.session, LONG)
    bench.begin_epoch(first)
    before = bench.server_time()
    await first.sessions.renew()
    ends = int(bench.raw.get(bench.keys("recovering")) or 0)
    assert ends > before + microseconds(1.5 * LONG)


async def test_a_server_that_runs_for_longer_than_a_lease_has_lost_nothing(bench: Bench) -> None:
    """Redis also names a new epoch where the first replica comes."""
    await bench.enqueue(arrival("a0", "a"))
    first, second = await begin(bench, "d1", "d2", lease=1e-6)
    bench.raw.hset(bench.keys("daemon", "d1"), "lease", 1)
    bench.raw.hset(bench.keys("daemon", "d2"), "lease", 1)
    while bench.raw.info("server")["uptime_in_seconds"] < 2:
        pass
    bench.begin_epoch(first, second)
    await first.sessions.renew()
    assert bench.raw.exists(bench.keys("recovering")) == 0


async def test_no_fence_comes_twice_though_all_who_saw_it_are_gone(bench: Bench) -> None:
    await bench.enqueue(*(arrival(f"{group}0", group) for group in "abcdef"))
    (first,) = await begin(bench, "d1")
    kept = bench.dump()
    lost = await first.claim("grouped", *(f"w{n}" for n in range(6)))
    bench.restore(kept)
    bench.begin_epoch(first)
    await bench.daemon("d2")
    bench.end_recovery()
    first.drop(*lost)
    daemon = await bench.daemon("d1")
    assert (await daemon.claim_one()).fence > max(claim.fence for claim in lost)


async def test_no_fence_comes_twice_though_the_clock_has_gone_back(bench: Bench) -> None:
    """What a daemon has seen is gone beyond, by a session that goes on and by a new one."""
    await bench.enqueue(*(arrival(f"{group}0", group) for group in "abcdef"))
    first, second = await begin(bench, "d1", "d2")
    bench.raw.set(bench.keys("fence"), FAR)
    kept = bench.dump()
    lost = await second.claim("grouped", *(f"w{n}" for n in range(6)))
    bench.restore(kept)
    bench.begin_epoch(first, second)
    with pytest.raises(SessionLost):
        await second.sessions.renew()
    second.drop(*lost)
    await second.sessions.register({})
    await first.sessions.renew()
    assert (await first.claim_one()).fence > max(claim.fence for claim in lost)


async def test_arrivals_go_on_above_what_was_seen(bench: Bench) -> None:
    (daemon,) = await begin(bench, "d1")
    daemon.session.seen.sequence = FAR
    await daemon.sessions.renew()
    await bench.enqueue(arrival("a0", "a"))
    (entry,) = bench.raw.lrange(bench.keys("lane", "a"), 0, -1)
    assert int(entry[:16]) > FAR


async def test_a_daemon_shows_what_it_has_seen(bench: Bench) -> None:
    (daemon,) = await begin(bench, "d1")
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"))
    claim = await daemon.claim_one()
    assert daemon.session.seen.fence == claim.fence
    assert daemon.session.seen.enrolled == daemon.session.number > NEVER
