"""Lost leases: counted apart from crashes until the daemon's process is known to have died."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from groupflow.operate.groups import Why
from groupflow.operate.tasks import Found, find_task
from groupflow.servers import RedisServer
from groupflow.store.clock import MICROSECONDS
from groupflow.store.envelope import Pool
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Advance
from tests.store.bench import LEASE, Bench, Daemon, arrival, bury, ids
from tests.store.task_state import pass_time, redrive, why

POOLS: tuple[Pool, Pool] = ("plain", "grouped")
BOTH_POOLS = pytest.mark.parametrize("pool", POOLS)
SILENT_LEASES = 10
WAITS = [0.0, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]  # leases, behind each lost one in turn


@pytest.fixture
async def shop(store_server: RedisServer) -> AsyncIterator[Bench]:
    bench = Bench(store_server.url)
    bench.with_faults = True
    try:
        yield bench
        assert bench.audit() == []
    finally:
        await bench.close()


def of(pool: Pool) -> str:
    """The id of the one task of a pool."""
    return "p0" if pool == "plain" else "a0"


async def fill(shop: Bench) -> None:
    await shop.enqueue(arrival("p0"), arrival("a0", "a"), arrival("a1", "a"))


async def lose(shop: Bench, daemon: Daemon, reaper: Daemon) -> list[str]:
    """Let a daemon's lease run out; what was taken from it."""
    shop.expire(daemon.name)
    _, handed = await reaper.sessions.reap()
    return [each.id for each in handed]


async def come_back(daemon: Daemon) -> None:
    """The same process opens another session."""
    await daemon.sessions.register({"pid": 1, "host": "h", "workers": 2, "lease": LEASE})


async def counted(shop: Bench, id_: str) -> tuple[int, int]:
    """Crashes and lost leases of a task, as operators see them."""
    found = await find_task(shop.client, id_)
    assert isinstance(found, Found)
    return found.crashes, found.lost_leases


def is_forgotten(shop: Bench, daemon: str) -> bool:
    return not shop.raw.exists(shop.keys("losing"), shop.keys("lost", daemon))


def fall_silent(shop: Bench, daemon: str) -> None:
    """Let ten leases have passed since the loss."""
    shop.raw.zadd(shop.keys("losing"), {daemon: 1}, xx=True)


@BOTH_POOLS
async def test_it_is_no_crash_and_costs_no_time(shop: Bench, pool: Pool) -> None:
    """The task is back at once, as a quarantined task; its handler is told of both."""
    await fill(shop)
    slow, other = await shop.daemon("slow"), await shop.daemon("other")
    await slow.claim_one(pool)
    assert await lose(shop, slow, other) == [of(pool)]
    assert await counted(shop, of(pool)) == (0, 1)
    again = await other.claim_one(pool)
    assert (again.task.id, again.task.crashes, again.task.lost_leases) == (of(pool), 1, 1)
    assert shop.raw.hexists(shop.keys("daemon", "other"), "quarantined")


@BOTH_POOLS
async def test_the_same_process_comes_back(shop: Bench, pool: Pool) -> None:
    """As often as it likes: that is no crash, after any time."""
    await fill(shop)
    slow, other = await shop.daemon("slow"), await shop.daemon("other")
    for lost in range(1, 6):
        await pass_time(shop)
        assert (await slow.claim_one(pool)).task.id == of(pool)
        await lose(shop, slow, other)
        await come_back(slow)
        assert await counted(shop, of(pool)) == (0, lost)
        assert is_forgotten(shop, "slow")
        fall_silent(shop, "slow")
        await other.sessions.reap()
    assert await counted(shop, of(pool)) == (0, 5)


@BOTH_POOLS
async def test_another_process_comes_under_the_name(shop: Bench, pool: Pool) -> None:
    """Then it was a death; and a claim that runs meanwhile goes on."""
    await fill(shop)
    killed, other = await shop.daemon("killed"), await shop.daemon("other")
    await killed.claim_one(pool)
    await lose(shop, killed, other)
    running = await other.claim_one(pool)
    await killed.register()
    assert await counted(shop, of(pool)) == (1, 0)
    assert is_forgotten(shop, "killed")
    await come_back(killed)  # its reply was lost
    assert await counted(shop, of(pool)) == (1, 0)
    assert await other.complete(running) == []


@BOTH_POOLS
async def test_nothing_comes_of_it_for_ten_leases(shop: Bench, pool: Pool) -> None:
    await fill(shop)
    killed, other = await shop.daemon("killed"), await shop.daemon("other")
    await killed.claim_one(pool)
    before = shop.server_time()
    await lose(shop, killed, other)
    due: Any = shop.raw.zscore(shop.keys("losing"), "killed")
    after = before + SILENT_LEASES * LEASE * MICROSECONDS
    assert 0 <= due - after < 60 * MICROSECONDS
    await other.sessions.reap()
    assert await counted(shop, of(pool)) == (0, 1)
    fall_silent(shop, "killed")
    await other.sessions.reap()
    await other.sessions.reap()
    assert await counted(shop, of(pool)) == (1, 0)
    assert is_forgotten(shop, "killed")


async def test_a_goodbye_is_a_sign_of_life(shop: Bench) -> None:
    """The process was told to stop before it had another session."""
    await fill(shop)
    slow, other = await shop.daemon("slow"), await shop.daemon("other")
    await slow.claim_one()
    await lose(shop, slow, other)
    await slow.sessions.leave()
    assert is_forgotten(shop, "slow")
    await slow.register()
    assert await counted(shop, "a0") == (0, 1)


async def test_a_crash_without_doubt_is_one_at_once(shop: Bench) -> None:
    """Another process takes up what the last one of its name holds."""
    await fill(shop)
    daemon = await shop.daemon()
    await daemon.claim_one()
    await daemon.register()
    assert await counted(shop, "a0") == (1, 0)
    assert is_forgotten(shop, "d1")


async def test_an_earlier_process_under_the_name_proves_nothing(shop: Bench) -> None:
    """It lost its own session long ago, and the later one may live."""
    await fill(shop)
    older, other = await shop.daemon("d1"), await shop.daemon("other")
    await older.sessions.leave()
    newer = await shop.daemon("d1")
    await newer.claim_one()
    await lose(shop, newer, other)
    await come_back(older)
    assert await counted(shop, "a0") == (0, 1)
    assert (await older.claim_one()).task.id == "a0"
    await lose(shop, older, other)
    assert await counted(shop, "a0") == (1, 1), "two processes have lost it under one name"


@BOTH_POOLS
async def test_each_further_one_waits_longer(shop: Bench, pool: Pool) -> None:
    """A lease behind the second, then twice as long each time, ten leases at most."""
    await fill(shop)
    slow, other = await shop.daemon("slow"), await shop.daemon("other")
    for wait in WAITS:
        await slow.claim_one(pool)
        before = shop.server_time()
        await lose(shop, slow, other)
        await come_back(slow)
        found = await find_task(shop.client, of(pool))
        assert found is not None
        if not wait:
            assert found.state == "queued"
            continue
        assert found.state == "delayed"
        assert found.until is not None
        assert 0 <= found.until - before / MICROSECONDS - wait * LEASE < 60
        assert await other.claim(pool, "w1") == []
        assert shop.audit() == []
        await pass_time(shop)
    if pool == "grouped":
        assert shop.lane("a") == ["a0", "a1"]


async def test_deaths_count_for_the_wait_and_need_none(shop: Bench) -> None:
    """One that may be the last isn't risked before it is known how the one before it ended."""
    await fill(shop)
    for _ in range(2):
        daemon = await shop.daemon("d1")
        await daemon.claim_one()
        await daemon.register()
    other = await shop.daemon("other")
    await daemon.claim_one()
    await lose(shop, daemon, other)
    found = await find_task(shop.client, "a0")
    assert found is not None
    assert (found.crashes, found.lost_leases, found.state) == (2, 1, "delayed")
    assert found.until is not None
    assert 0 <= found.until - shop.server_time() / MICROSECONDS - 2 * LEASE + 60 <= 60
    assert await other.claim("grouped", "w1") == []


async def test_why_tells_both_apart(shop: Bench) -> None:
    await fill(shop)
    slow, other = await shop.daemon("slow"), await shop.daemon("other")
    await slow.claim_one()
    await slow.register()
    await slow.claim_one()
    await lose(shop, slow, other)
    told: Why = await why(shop, "a")
    assert (told.crashes, told.lost_leases) == (1, 1)
    assert told.state == "delayed"
    ends = "1 of its claims ended in a crash and 1 lease was lost while it ran"
    assert told.reason.endswith(f"s, since {ends}")
    await pass_time(shop)
    assert (await why(shop, "a")).reason == (
        f"its head is in quarantine, since {ends}; it may be claimed: all workers are busy, "
        "or none is running"
    )
    await slow.register()
    told = await why(shop, "a")
    assert (told.crashes, told.lost_leases) == (2, 0)
    assert "lost" not in told.reason


async def test_what_blocked_the_loop_crashed_and_nothing_else(shop: Bench) -> None:
    """At once, though its process lives and comes back."""
    await fill(shop)
    slow, other = await shop.daemon("slow"), await shop.daemon("other")
    blocks = await slow.claim_one()
    await slow.claim_one("plain", "w2")
    await slow.sessions.blame((blocks.fence, "a0"))
    await lose(shop, slow, other)
    assert await counted(shop, "a0") == (1, 0)
    assert await counted(shop, "p0") == (0, 1)
    await come_back(slow)
    assert await counted(shop, "a0") == (1, 0)
    assert await counted(shop, "p0") == (0, 1)


async def test_where_nothing_tells_what_blocks_all_have_crashed(shop: Bench) -> None:
    await fill(shop)
    slow, other = await shop.daemon("slow"), await shop.daemon("other")
    await slow.claim_one()
    await slow.claim_one("plain", "w2")
    await slow.sessions.blame(None)
    await lose(shop, slow, other)
    assert (await counted(shop, "a0"), await counted(shop, "p0")) == ((1, 0), (1, 0))
    assert is_forgotten(shop, "slow")


async def test_a_block_that_ended_in_time_is_forgotten(shop: Bench) -> None:
    await fill(shop)
    slow, other = await shop.daemon("slow"), await shop.daemon("other")
    await slow.claim_one()
    await slow.sessions.blame(None)
    await slow.sessions.renew()
    await lose(shop, slow, other)
    assert await counted(shop, "a0") == (0, 1)


async def test_what_ended_meanwhile_stays_ended(shop: Bench) -> None:
    """Done, dead and redriven: none of it is touched by a death that shows later."""
    await shop.enqueue(*(arrival(id_, id_[0]) for id_ in ("a0", "b0", "c0", "d0")))
    killed, other = await shop.daemon("killed"), await shop.daemon("other")
    held = await killed.claim("grouped", "w1", "w2", "w3", "w4")
    assert len(held) == 4
    await lose(shop, killed, other)
    await other.complete(await other.claim_one())
    for _ in range(2):
        await other.settle(bury(await other.claim_one()))
    await redrive(shop, "c0")
    await killed.register()
    assert await counted(shop, "a0") == (0, 1), "as its line in the history has it"
    assert not shop.raw.exists(shop.keys("task_state", "a0"))
    assert await counted(shop, "b0") == (1, 0), "a dead letter has its life still"
    assert await counted(shop, "c0") == (0, 0)
    assert await counted(shop, "d0") == (1, 0)


async def test_a_redrive_begins_with_none(shop: Bench) -> None:
    """Its process may still come back, and says nothing of it any more."""
    await fill(shop)
    slow, other = await shop.daemon("slow"), await shop.daemon("other")
    await slow.claim_one()
    await lose(shop, slow, other)
    await other.settle(bury(await other.claim_one()))
    await redrive(shop, "a0")
    assert await counted(shop, "a0") == (0, 0)
    claim = await other.claim_one()
    assert (claim.task.crashes, claim.task.lost_leases) == (0, 0)


async def test_a_shard_that_went_well_has_none(shop: Bench) -> None:
    await fill(shop)
    slow, other = await shop.daemon("slow"), await shop.daemon("other")
    await slow.claim_one()
    await lose(shop, slow, other)
    await other.settle(Advance(await other.claim_one(), "page", b"{}", forgets_crashes=True))
    assert await counted(shop, "a0") == (0, 0)
    await slow.register()
    assert await counted(shop, "a0") == (0, 0)


async def test_many_are_counted_in_bounded_steps(shop: Bench) -> None:
    """The name's return counts five hundred; each pass of a reaper as many more."""
    names = [f"p{n}" for n in range(1100)]
    await shop.enqueue(*map(arrival, names))
    killed, other = await shop.daemon("killed"), await shop.daemon("other")
    held = []
    for n in range(0, len(names), 500):
        slots = [f"w{m}" for m in range(n, min(n + 500, len(names)))]
        held += await killed.claim("plain", *slots)
    assert len(held) == len(names)
    assert len(await lose(shop, killed, other)) == len(names)

    def deaths() -> int:
        fields = "crashes", "lost_leases"
        lives: list[Any] = [shop.raw.hmget(shop.keys("task_state", id_), *fields) for id_ in names]
        return sum(int(crashes) - int(lost) for crashes, lost in lives)

    assert deaths() == 0
    await killed.register()
    seen = [deaths()]
    while seen[-1] < len(names):
        wait, _ = await other.sessions.reap()
        seen.append(deaths())
        assert (wait == 0.0) == (seen[-1] < len(names)), "it comes again at once for the rest"
    assert seen == [500, 1000, 1100]
    assert is_forgotten(shop, "killed")


async def test_a_namespace_that_is_moved_has_no_doubts(shop: Bench) -> None:
    """No process can come back to where it was: what it lost is a death."""
    await fill(shop)
    killed, other = await shop.daemon("killed"), await shop.daemon("other")
    await killed.claim_one()
    await lose(shop, killed, other)
    await shop.client.run(Verb.REAP, 10, 0, "final")
    assert await counted(shop, "a0") == (1, 0)
    assert is_forgotten(shop, "killed")


async def test_its_end_tells_of_them(shop: Bench) -> None:
    await fill(shop)
    slow, other = await shop.daemon("slow"), await shop.daemon("other")
    await slow.claim_one()
    await lose(shop, slow, other)
    await other.complete(await other.claim_one())
    assert await counted(shop, "a0") == (0, 1)
    assert ids(await other.claim("grouped", "w1")) == ["a1"]
