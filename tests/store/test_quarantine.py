"""Crashes and lost leases: the task runs alone then, and longer apart each time it is lost.

A task with crashes runs beside no other one of its daemon, in either pool. Lost leases count apart
until the daemon's process is known to have died.
"""

from __future__ import annotations

from typing import Any

import pytest

from groupflow.operate.busy import read_busy, read_tops
from groupflow.operate.listing import list_groups, list_tasks
from groupflow.operate.statistics import find_longest
from groupflow.store.clock import MICROSECONDS
from groupflow.store.envelope import Pool
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Advance
from tests.operate.spread import all_pages
from tests.store.bench import LEASE, Bench
from tests.store.story import Story, play, played
from tests.store.task_state import fill, found

SILENT_LEASES = 10
WAITS = [0.0, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]  # leases, behind each lost one in turn


class Crashing(Story):
    """A store whose daemon may run one in quarantine, and may block."""

    async def old(self, id_: str) -> None:
        """A claim was made a lease ago."""
        shop, (_, claim), since = self.shop, self.claim_of(id_), b"%016d" % 1
        key, name = shop.keys("worker", "d1"), shop.keys("daemon", "d1")
        checkpoint: Any = shop.raw.hget(key, claim.slot)
        shop.raw.hset(key, claim.slot, checkpoint[:33] + since + checkpoint[49:])
        mark: Any = shop.raw.hget(name, "quarantined")
        if mark is not None and len(mark) > 16:
            shop.raw.hset(name, "quarantined", mark[:16] + since)

    async def unmarked(self) -> None:
        """The daemon runs none in quarantine."""
        assert not self.shop.raw.hexists(self.shop.keys("daemon", "d1"), "quarantined")

    async def blame(self, id_: str = "") -> None:
        """The loop stands, by a task, or nothing tells by which."""
        blocks = (self.claim_of(id_)[1].fence, id_) if id_ else None
        await (await self.daemon()).sessions.blame(blocks)


test_crashes_and_lost_leases = played(
    """
    one of both pools at a time::
        crashed p0 p1 a0 b0 | claim p0*1 | none | done p0 | claim a0*1 | none | done a0
        drain p1 b0
    the best goes first, and alone::
        crashed a0 b0 | take c0 d0 | all a0*1 | all c0 d0 | none | done a0 | all b0
    so does a plain one::
        crashed p0 p1 | take p5 p6 | all p0*1 | all p5 p6 | none | done p0 | all p1
    it stays one through each settlement: {one}::
        crashed {one} b0 | claim {one} | release {one} | claim {one} | advance {one} | sound
        claim b0 | retry b0 | time | sound | claim b0*1 | none
    its end lets the next one run, which all hear: {end}::
        crashed a0 p0 | claim a0 | hears {end} a0 | claim p0 | none
    one that is claimed before what its slot has freed leaves that to others, who hear of it::
        open d1 d2 | take c0 c1 | claim c0 | crashed a0 b0 | d2: claim a0*1
        hears grouped swap c0 b0*1 | d2: claim c1
    a new session runs one again::
        crashed a0 b0 | open d1 d2 | claim a0*1 | crash | claim a0*2 | lose | time | d2: claim a0*3
    a younger lease clears nothing:: crashed a0 b0 | claim a0 | renew groups=0 | none
    an older task in front of it::
        take a0 | claim a0 | bury a0 | crashed a1 | redrive a0 | sound | all a0*0 | done a0
        claim a1*1
    it comes back in front of a group that is ready::
        crashed a0 | take a1 | claim a0 | retry a0 aside | why a ready head=a1 | time | sound
        claim a0
    one whose envelope is gone is passed over::
        crashed a0 p0 b1 | lost a0 p0 | idle grouped | unmarked | idle plain | unmarked
        drain b1 | unmarked | stateless a0 p0
    a redrive makes it a task like any other::
        crashed a0 b0 | claim a0 | bury a0 | redrive a0 | claim b0 | all a0*0
    why it waits::
        crashed a0 b0 | take c0
        why b ready: its head is in quarantine, since 1 of its claims ended in a crash; it
        why b ready: it may be claimed: all workers are busy, or none is running | claim a0
        why b ready: in a crash: a daemon runs one such task at a time; that run another: d1
        why c ready: workers
    it is none any more when it has run for a lease, which a renewal notes::
        crashed a0 b0 p0 | claim a0 | renew plain=0 groups=0 | old a0 | renew plain=1 groups=1
        claim p0 | none | done a0 | none
    one that crashed twice stays one to its end, however long it runs::
        crashed a0 b0 | victim: crash victim | victim: claim a0 | victim: leave | claim a0*2
        old a0 | renew groups=0 | none | done a0 | claim b0
    # Lost leases
    a goodbye is a sign of life::
        take a0 | open d2 | claim a0 | lose d1 a0 | leave | gone losing lost:d1 | crash
        task a0 queued crashes=0 lost_leases=1
    a stop that a task outlives is no crash, whatever comes of the name: {one}::
        take {one} | open d2 | claim {one} | leave | gone losing lost:d1 | crash
        task {one} queued crashes=0 lost_leases=1 : 1 of its claims ended with a lost lease, or
        d2: claim {one}*1
    what ended meanwhile stays ended::
        take a0 b0 c0 d0 | claim a0 b0 c0 d0 | lose | d2: claim a0 | done a0 | d2: claim b0
        bury b0 | d2: claim c0 | bury c0 | redrive c0 | crash
        task a0 done crashes=0 lost_leases=1 | gone task_state:a0
        task b0 dead crashes=1 lost_leases=0 | task c0 queued crashes=0 lost_leases=0
        task d0 queued crashes=1 lost_leases=0
    why tells both apart::
        take a0 a1 | claim a0 | crash | claim a0 | lose
        why a delayed crashes=1 lost_leases=1 : since 1 of its claims ended in a crash | time
        why a ready: and 1 with a lost lease, or a stop that it outlived; it may be claimed
        crash | why a ready crashes=2 lost_leases=0 : 2 of its claims ended in a crash
    it is no crash, costs no time, and is a quarantined task: {one}::
        take {one} | claim {one} | lose d1 {one} | task {one} queued crashes=0 lost_leases=1
        d2: claim {one}*1
    the same process comes back, as often as it likes, after any time: {one}::
        take {one} | open d1 d2 | claim {one} | lose | back | gone losing lost:d1 | silent
        d2: reap | task {one} queued crashes=0 lost_leases=1 | claim {one} | lose | back
        gone losing lost:d1 | silent | d2: reap | task {one} delayed crashes=0 lost_leases=2
    another process comes under the name: {one}::
        take {one} | claim {one} | lose d1 {one} | d2: claim {one} | crash | gone losing lost:d1
        task {one} running crashes=1 lost_leases=0 | back | done {one}
    nothing comes of it for ten leases::
        take a0 p0 | open d2 | claim a0 p0 | lose | d2: reap
        task a0 queued crashes=0 lost_leases=1 | silent | d2: reap
        task a0 queued crashes=1 lost_leases=0 | task p0 queued crashes=1 | d2: reap
        task a0 queued crashes=1 | gone losing lost:d1
    what blocked the loop crashed and nothing else, at once and for good::
        take a0 p0 | open d2 | claim a0 p0 | blame a0 | lose
        task a0 queued crashes=1 lost_leases=0 | task p0 queued crashes=0 lost_leases=1 | back
        task a0 queued crashes=1 lost_leases=0 | task p0 queued crashes=0 lost_leases=1
    where nothing tells what blocked it, all have::
        take a0 p0 | open d2 | claim a0 p0 | blame | lose | gone losing | back
        task a0 queued crashes=1 lost_leases=0 | task p0 queued crashes=1 lost_leases=0
    a block that ended in time is forgotten::
        take a0 | open d2 | claim a0 | blame | renew | lose | task a0 queued crashes=0 lost_leases=1
    """,
    Crashing,
    end=(
        *("ready done", "ready bury", "ready,due retry"),
        *("ready,grouped release", "ready,grouped advance"),
    ),
    one=("a0", "p0"),
)


async def test_views_show_it_waiting_like_the_rest(shop: Bench) -> None:
    """It is counted and listed with all that is ready, and goes first."""
    await play(shop, "crashed c0 d0 p0 p1 | take a0 b0 p5 | take p6+5")
    namespace = shop.namespace
    status = await shop.status()
    assert (status.queued_plain, status.queued_grouped, status.ready) == (4, 4, 4)
    assert min(status.waited_plain, status.waited_grouped) > 0
    listed = [row.id for row in (await list_tasks(shop.namespace, "queued", 50)).tasks]
    assert listed == ["p5", "p0", "p1", "p6", "c0", "d0", "a0", "b0"]
    pages = [
        (row.group, row.state, page.total)
        for page in await all_pages(lambda at: list_groups(namespace, "ready", cursor=at, limit=1))
        for row in page.groups
    ]
    assert pages == [(group, "ready", 4) for group in "cdab"]
    assert {row.group for row in await read_busy(shop.namespace)} == set("abcd")
    assert await find_longest(shop.client) == 4
    tops = await read_tops(shop.namespace)
    assert {(top.group, top.state) for top in tops.slowest} == {(g, "ready") for g in "abcd"}
    assert len(tops.longest) == 4


# Lost leases


async def test_silence_counts_from_ten_leases_on(shop: Bench) -> None:
    told = await play(shop, "take a0 | open d2 | claim a0")
    before = shop.server_time()
    await told.go_on("lose")
    due: Any = shop.raw.zscore(shop.keys("losing"), "d1")
    assert 0 <= due - (before + SILENT_LEASES * LEASE * MICROSECONDS) < 60 * MICROSECONDS


async def test_an_earlier_process_under_the_name_proves_nothing(shop: Bench) -> None:
    """It lost its own session long ago, and the later one may live."""
    older, other = await fill(shop, "a0"), await shop.daemon("other")
    await older.sessions.leave()
    newer = await shop.daemon("d1")
    for one, counted in ((newer, (0, 1)), (older, (1, 1))):
        await one.claim_one()
        shop.expire("d1")
        await other.sessions.reap()
        await older.sessions.register({"lease": LEASE})
        task = await found(shop, "a0")
        assert (task.crashes, task.lost_leases) == counted, "two processes have lost it by then"


@pytest.mark.parametrize("pool", ["plain", "grouped"])
@pytest.mark.parametrize("deaths", [0, 2])
async def test_each_further_one_waits_longer(shop: Bench, pool: Pool, deaths: int) -> None:
    """A lease behind the second, then twice as long each time, ten leases at most.

    Deaths count for that and need no wait: one that may be the last isn't risked before it is
    known how the one before it ended.
    """
    id_ = "p0" if pool == "plain" else "a0"
    told = await play(shop, f"take {id_} | open d2 |" + f"claim {id_} | crash |" * deaths)
    for wait in WAITS[deaths:]:
        await told.go_on(f"claim {id_}")
        before = shop.server_time() / MICROSECONDS
        await told.go_on("lose | back")
        task = await found(shop, id_)
        assert task.state == ("delayed" if wait else "queued")
        if wait:
            assert 0 <= (task.until or 0) - before - wait * LEASE < 60
            await told.go_on("d2: none | sound | time")


async def test_a_shard_that_went_well_has_none(shop: Bench) -> None:
    told = await play(shop, "take a0 | claim a0 | lose | d2: claim a0")
    daemon, claim = told.claim_of("a0")
    page = Advance(claim, "page", b"{}", forgets_crashes=True)
    assert await daemon.settle(page) == []
    await told.go_on("task a0 queued crashes=0 lost_leases=0 | crash")
    await told.go_on("task a0 queued crashes=0 lost_leases=0")


async def test_many_are_counted_in_bounded_steps(shop: Bench) -> None:
    """The name's return counts five hundred; each pass of a reaper as many more."""
    names = [f"p{n}" for n in range(1100)]
    killed, other = await fill(shop, *names), await shop.daemon("other")
    for n in range(0, len(names), 500):
        await killed.claim("plain", *(f"w{m}" for m in range(n, min(n + 500, len(names)))))
    shop.expire("d1")
    assert len((await other.sessions.reap())[1]) == len(names)

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


async def test_a_namespace_that_is_moved_has_no_doubts(shop: Bench) -> None:
    """No process can come back to where it was: what it lost is a death."""
    told = await play(shop, "take a0 | claim a0 | lose")
    await shop.client.run(Verb.REAP, 10, 0, "final")
    await told.go_on("task a0 queued crashes=1 lost_leases=0 | gone losing lost:d1")
