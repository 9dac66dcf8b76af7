"""Pools: to the store a worker that pulls is one more daemon, which claims from its pool alone."""

from __future__ import annotations

import re

import orjson
import pytest

from groupflow.core.errors import SessionLost
from groupflow.operate.pools import PoolStatus, pools_in
from groupflow.store.envelope import Envelope
from groupflow.store.pulling import PLACES, Listed, Pulling
from groupflow.store.settlements import Complete
from tests.store.actors import POOL, Worker
from tests.store.bench import LEASE, Bench, ids
from tests.store.story import Story, play, played

test_pools = played(
    """
    daemons and pools claim apart::
        take p1 a1 p2= b1= p3=others | drain p1 a1
        task p2 queued: asks pool couriers: no worker pulls | task b1 queued pool=couriers
        anna: all b1 p2 | anna: holds b1 p2
        carl: none | done b1 p2
    a head decides who may claim::
        take a0 a1= a2 | anna: none | claim a0 | done a0 | none | why a ready: pool couriers: 1 pull
        anna: all a1 | done a1 | drain a2
    limits hold for pullers::
        limits 2 60/min burst 3 | take a0= a1= a2= a3= a4= | open d1 | anna: claim a0 | carl: all a1
        anna: none | done a0 | anna: all a2 | done a1 | carl: none | done a2
    more of a group may run beside a puller's task from a reload on::
        take a0= a1= a2= a3= | open d1 | anna: claim a0 | limits 3 | reload | carl: all a1
        carl: all a2 | carl: none | done a0 | anna: all a3
    {id} comes back to its pool each time::
        take {id}= | anna: all {id} | retry {id} | anna: none | time | anna: all {id}/2
        advance {id} | anna: all {id}/1#two | release {id} | anna: all {id} | bury {id}
        anna: none | redrive {id} | anna: all {id} | done {id} | count done=1
    """,
    id=("p0", "a0"),
)


async def pool(bench: Bench) -> PoolStatus:
    """What operators see of it."""
    return (await pools_in(bench.client, [POOL]))[0]


async def test_what_waits_for_its_type_is_counted_apart(shop: Bench) -> None:
    told = await play(shop, "types v=1 | open d1 | take a0:v= b0:v= p0:v= p1:v= p2:v=others")
    seen = await pool(shop)
    assert (seen.claimable, seen.waiting, seen.held) == (2, 2, 0)  # the best of each line has room
    assert [each.words() for each in (await shop.status()).pools] == [
        "waiting for pool couriers: plain tasks 1, groups 1; no worker pulls from it",
        "waiting for pool others: plain tasks 1, groups 0; no worker pulls from it",
    ]
    await told.go_on("anna: claim a0")
    seen = await pool(shop)
    assert (seen.claimable, seen.waiting, seen.held) == (0, 3, 1)


async def test_the_older_one_goes_first_of_groups_and_plain_ones(shop: Bench) -> None:
    """What is asked for is told in the order of both; a priority counts as seconds."""
    await play(shop, "take p0= a0= p1+30= b0= p2= | take p3=others")
    heads = [head.is_group for head in (await Worker(shop).poll(9)).heads]
    assert heads[:2] == [False, False]
    assert heads.count(True) == 2
    assert ids(await Worker(shop).claim(1)) == ["p1"]
    assert ids(await Worker(shop, "zoe", "others").claim(5)) == ["p3"]


async def test_a_silent_worker_is_refused_reaped_or_not(shop: Bench) -> None:
    """Any daemon's pass finds it, and says of whom it took; nothing is left of it."""
    await play(shop, "take p0=")
    anna, daemon = Worker(shop), await shop.daemon()
    [claim] = await anna.claim(1)
    assert (await pool(shop)).held == 1
    anna.expire()
    late = await anna.poll(opens=False)
    assert (late.session, late.held) == (None, {})
    with pytest.raises(SessionLost):
        await anna.store.settle(late, [Complete(claim)])
    await anna.claim(1)
    anna.expire()
    wait, rows = await daemon.sessions.reap()
    assert [(row.id, row.daemon) for row in rows] == [("p0", "pool/couriers/anna")]
    assert wait is not None
    seen = await pool(shop)
    assert (seen.claimable, seen.held, seen.workers) == (1, 0, [])


async def test_a_new_call_finds_all(shop: Bench) -> None:
    """A lost answer costs nothing: the next poll knows what is held, and what was settled last."""
    await play(shop, "take p0= p1=")
    anna = Worker(shop)
    one, two = await anna.claim(5)
    poll = await anna.poll(5)
    assert poll.held.keys() == {one.fence, two.fence}
    assert poll.heads == []
    await anna.complete(one)
    after = await anna.poll(5)
    assert one.fence in after.settled
    assert after.held.keys() == {two.fence}
    assert await anna.complete(one) == [], "accepted again"
    assert poll.session is not None
    assert after.session is not None
    assert poll.session.shown == after.session.shown, "a call ends no session of another call's"


async def test_what_is_told_of_a_worker(shop: Bench) -> None:
    """Its claims whole, or those of some slots; its lease."""
    await play(shop, "take p0= p1=")
    anna = Worker(shop)
    _, two = await anna.claim(2)
    told = await anna.store.holdings(anna.puller.daemon)
    assert {claim.task.type for claim, _ in told.claims} == {"t"}
    assert told.now < told.lease_until <= told.now + LEASE
    some = await anna.store.holdings(anna.puller.daemon, [two.slot])
    assert ids([claim for claim, _ in some.claims]) == [two.task.id]


async def test_a_worker_is_told_of_as_many_as_it_may_still_hold(shop: Bench) -> None:
    """And of a quarantined task alone: who holds one is told of no other."""
    await play(shop, "take p0= p1= p2= p3= p4=")
    anna, carl = Worker(shop), Worker(shop, "carl")
    await anna.claim(2)
    assert [len((await anna.poll(limit)).heads) for limit in (3, 2, 1)] == [1, 0, 0]
    anna.expire()
    await anna.poll()
    orders = [head.order[:1] for head in (await carl.poll(9)).heads]
    assert orders.count(b"-") == 1
    assert ids(await carl.claim(1)) == ["p0"]
    assert not any(head.order[:1] == b"-" for head in (await carl.poll(9)).heads)


@pytest.mark.parametrize("way", ["comes again", "is reaped"])
async def test_another_server_takes_all_away_and_gives_nothing_for_a_lease(
    shop: Bench, way: str
) -> None:
    """It may have lost claims: no puller goes on or begins; daemons do (ADR 0071).

    They wait for what it knows a puller to hold, who may not have heard so yet.
    """
    told = await play(shop, "take b0= b1 p0= p1= p9 | open d1")
    daemon, anna, carl = await told.daemon(), Worker(shop), Worker(shop, "carl")
    assert ids(await anna.claim(2)) == ["b0", "p0"]
    shop.raw.hset(shop.keys("epoch"), "id", "f" * 40)
    shop.raw.hset(shop.keys("daemon", anna.puller.daemon), "epoch", "f" * 40)
    for opens in (False, True, True):
        seen = await anna.poll(3, opens=opens)
        assert (seen.session, seen.held, seen.heads) == (None, {}, []), "its session is over"
        assert 0.9 * LEASE < seen.lease_until - seen.now <= LEASE
    shop.end_recovery()
    await daemon.register()
    assert await daemon.work_off() == ["p9"]
    assert (await carl.poll(3)).heads == []
    shop.raw.hset(shop.keys("epoch"), "since", 1)
    if way == "is reaped":
        anna.expire()
        await daemon.sessions.reap()
    again = await (anna if way == "comes again" else carl).claim(3)
    found = [("b0", 0), ("p0", 0), ("p1", 0)]
    assert sorted((each.task.id, each.task.crashes) for each in again) == found


# Lists, to which a pool is made equal


def listed(id_: str, priority: float = 0.0, scope: str = "", size: int = 0) -> Listed:
    """A line of a list, whose body has so many bytes."""
    body = b"x" * size or orjson.dumps({"id": id_})
    envelope = Envelope("deliver", None, None, None, {}, body, scope, POOL)
    return Listed(id_, priority, envelope.pack(), envelope.pack_facts(), scope)


async def prune(bench: Bench, number: str) -> int:
    """Remove what a list, which has ended, doesn't name; how many went."""
    removed = 0
    for where in PLACES:
        cursor = ""
        while cursor != "0":
            cursor, gone = await Pulling(bench.client, 8.0).prune(
                POOL, number, where, cursor or "0"
            )
            removed += gone
    return removed


async def put(bench: Bench, *tasks: Listed) -> tuple[dict[str, str], int]:
    """Make the pool equal to a list: what became of each, and how many went."""
    store = Pulling(bench.client, 8.0)
    number = await store.begin_list(POOL)
    words = await store.put(POOL, number, tasks)
    became: dict[str, str] = dict(zip([task.id for task in tasks], words, strict=True))
    return became, await prune(bench, number)


class Lists(Story):
    """A store whose pool is made equal to lists."""

    number = ""

    async def begin(self) -> None:
        """A list begins."""
        self.number = await Pulling(self.shop.client, 8.0).begin_list(POOL)

    async def put(self, *words: str) -> None:
        """``p0+60=added``: what becomes of a line of it, and its priority."""
        every = [re.findall(r"^(\w+)\+?(-?\d*)=(\w+)$", word)[0] for word in words]
        lines = [listed(id_, float(priority or 0)) for id_, priority, _ in every]
        found = await Pulling(self.shop.client, 8.0).put(POOL, self.number, lines)
        assert found == [became for _, _, became in every]

    async def end(self, number: str) -> None:
        """It ends, and so many are removed."""
        assert await prune(self.shop, self.number) == int(number)

    async def held(self, number: str) -> None:
        """How many tasks workers of the pool hold."""
        assert (await pool(self.shop)).held == int(number)

    async def list(self, *words: str) -> None:
        """All that, with the number at the end."""
        await self.begin()
        await self.put(*words[:-1])
        await self.end(words[-1])


test_a_pool_is_made_equal_to_a_list = played(
    """
    what is held is counted through all its ends, and once each::
        take a0= a1= p0= p1= p2= p3= p4= | anna: claim a0 p0 p1 p2 p3 p4 | held 6
        done p0 | done p0 | held 5 | sound | retry p1 | retry p1 | held 4 | sound | bury p2
        bury p2 | held 3 | sound | release p3 | held 2 | sound | advance p4
        advance p4 | held 1 | sound | lose anna | held 0 | carl: claim a0 | held 1 | carl: leave
        gone pool_holders:couriers
    new ones come, others go, priorities change in place, and what is held is left alone::
        list p0=added p1=added p2=added 0 | anna: claim p0 | list p1=kept p3+60=added p4=added 1
        anna: holds p0 | list p4+120=kept p0=assigned p1=kept p3+60=kept 0 | done p0
        anna: all p4 p3 p1 | list p0=over p2=added 0
    others are left alone, and what came meanwhile::
        take p2= | anna: claim p2 | retry p2 | take p0 p1=others a0= q0@ | take b0= p4= | begin
        take p3= | put p0=foreign p1=foreign | end 2 | task p4 dropped | task p2 dropped type=t
        task q0 delayed | task p1 queued | task p0 queued | list p3=kept 0 | anna: every a0 b0 p3
    one that is sent again is made whole::
        list p0=added p1=added 0 | begin | put p2=added p1+5=kept | list p2=kept p1=kept p3=added 1
        anna: all p1 p2 p3
    it knows what waits anywhere, and what died::
        list p0=added p1=added p2=added q0=added 0 | anna: claim p0 p1 p2 q0 | retry p0 | bury p1
        list p1=dead p2=assigned q0=assigned 1 | lose anna | take g0= p5=@60
        list p2=kept q0=kept g0=kept p5=kept 0
    a priority is of what waits; what is held keeps its own::
        list p0=added p1=added p2=added 0 | anna: claim p0
        list p0+900=assigned p1=kept p2+60=kept 0 | release p0 | anna: claim p2 | release p2
        anna: all p2 p0 p1
    a turn that came by a retry stays::
        list p0=added p1=added 0 | anna: claim p0 | retry p0 | time | list p0+-900=kept p1=kept 0
        anna: all p0/2 p1
    """,
    Lists,
)
