"""enqueue, claim, settle: each exactly once, in order, only by who holds the claim; at what cost.

And which group goes first: what each order of groups promises, and that nothing starves.
"""

from __future__ import annotations

import asyncio
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from groupflow.core.errors import SessionLost
from groupflow.core.task import Task
from groupflow.store import enqueue, settlements
from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Enqueuer, bound_of_delays
from groupflow.store.envelope import Envelope
from groupflow.store.given import Claim
from groupflow.store.keys import split_checkpoint
from groupflow.store.settlements import Complete, Proceed, Release, Settlement, calls_of
from tests.store.bench import Bench, arrival, bury, ids, with_fence
from tests.store.story import Story, play, played
from tests.store.task_state import promote


class Ages(Story):
    """A store whose tasks have waited for long."""

    async def older(self, seconds: str) -> None:
        """The store's last arrival, and so all that comes, is so much later."""
        last: Any = self.shop.raw.hget(self.shop.keys("count"), "sequence")
        later = f"{int(last) + int(seconds) * 1_000_000:016d}"
        self.shop.raw.hset(self.shop.keys("count"), "sequence", later)

    async def ready_for(self, group: str, seconds: str) -> None:
        """A group has been ready for so much longer."""
        self.shop.raw.zincrby(self.shop.keys("ready"), -int(seconds) * 1_000_000, group)


test_the_path = played(
    """
    what can't be routed is a dead letter at once, and holds no other up::
        take a0 b0! a1 | status dead=1 buried_total=1 queued_grouped=2 | task b0 dead reason=no
        drain a0 a1
    the group whose head came first has its turn:: take a0 a1 b0 a2 b1 c0 | drain a0 a1 b0 a2 b1 c0
    priority counts as age among plain tasks and heads, and never in a group::
        take a0 b0+60 c0+120 a1+900 d0+-60 p0 p1+60 p2+-60 p3+120 p4
        drain c0 b0 a0 a1 d0 p3 p1 p0 p4 p2
    what is urgent starves nothing: it goes before what came less than its priority earlier::
        take p0 a0 | older 35000 | take p1+36000 b1+36000 | claim p1 b1 | older 2000
        take p2+36000 b2+36000 | claim p0 a0
    a retry is due by its delay alone::
        take p0+7200 a0+7200 | claim p0 a0 | retry_now p0 a0
        take p1+60 b0+60 | promote | drain b0 a0 p1 p0
    a stage counts its priority again::
        take p0+3600 | claim p0 | take p1 p2+7200 | advance p0 | drain p2 p0 p1
    whose lease is over gets nothing new, be it in quarantine, until it renews::
        take a0 p0 p1 | claim a0 p0 | crashed b0 | expire | none | renew | claim b0 | claim p1
        done a0 p0
    where no ids clash nothing is kept of whose they are::
        take 1/a0 p0 | duplicates 1/a0 p0 | drain a0 p0 | duplicates 1/a0 p0 | gone renamed segments
    only the last settle of a claim's slot is known again::
        take a0 a1 | claim a0 | swap a0 a1 | swap a1 | refused unchanged done a0
    a slot that settles goes on with its group's next task while that is the oldest::
        take a0 a1 b2 a3 | claim a0 | swap a0 a1 | swap a1 b2 | duplicates a0 a1 | claim a3
    it does not go on with a task whose envelope is gone::
        take a0 a1 a2 | claim a0 | lost a1 | swap a0 | claim a2 | count missing=1
    it gets what is to be given next, behind {what}::
        take a0 a1 a2 a3 | claim a0 | bury a0 | claim a1 | {what}
    """,
    Ages,
    what=(
        *("pause a | swap a1", "pause all | swap a1", "drop a2 | drop a3 | swap a1"),
        *("expire | swap a1", "redrive a0 | swap a1 a0", "crashed z0 | swap a1 z0*1"),
    ),
)


# enqueue


async def test_an_empty_batch_asks_only(shop: Bench) -> None:
    """It writes nothing; and the id decides what is a duplicate, not the group nor the body."""
    before = shop.dump()
    assert await shop.enqueue() == []
    assert shop.dump() == before
    batch = arrival("x", "a"), arrival("x", "b"), arrival("x")
    assert await shop.enqueue(*batch) == [True, False, False]
    assert (await shop.status()).groups == 1


async def test_a_claim_that_is_asked_for_behind_it_finds_its_tasks(shop: Bench) -> None:
    """So no worker waits for a wake; also on a connection that is yet to be opened, and where Redis
    knows no script: a claim that comes while they are loaded doesn't overtake the tasks."""
    daemon = await shop.daemon()
    client = StoreClient(shop.url, shop.keys, "oldest")
    enqueuer, claims = Enqueuer(client, daemon.name), Claims(client, daemon.session, "grouped")

    async def late(slot: str) -> list[Claim]:
        for _ in range(3):
            await client.ping()
        return (await claims.exchange([], [slot])).claims

    try:
        for n in range(3):
            tasks = [arrival(f"a{n}", f"a{n}"), arrival(f"b{n}", f"b{n}")]
            _, first, second = await asyncio.gather(
                enqueuer.enqueue(tasks), claims.exchange([], [f"w{n}"]), late(f"v{n}")
            )
            assert sorted(ids([*first.claims, *second])) == [f"a{n}", f"b{n}"]
            shop.raw.script_flush()
    finally:
        await client.close()


# claim


async def test_a_claim_has_all_facts_and_names_its_lock(shop: Bench) -> None:
    """The body as it was published; lock and checkpoint name each other."""
    before = shop.server_time() / 1e6
    await shop.enqueue(arrival("a0", "a"), arrival("p0"))
    daemon = await shop.daemon()
    plain, claim = await daemon.claim_one("plain", "w2"), await daemon.claim_one()
    assert (plain.task.id, plain.task.group, plain.rule) == ("p0", None, None)
    assert (claim.slot, claim.rule, claim.errors) == ("w1", "rule", [])
    assert claim.fence > plain.fence > 0
    came = claim.task.enqueued_at
    assert before <= came
    facts: dict[str, Any] = {"tenant": "42", "fence": claim.fence, "enqueued_at": came}
    whole = Task("a0", "t", "a", body=b'{"id":"a0"}', **facts)
    assert claim.task == whole, "it is filled past its `__init__`"
    with pytest.raises(FrozenInstanceError):
        claim.task.id = "other"  # type: ignore[misc]
    lock = shop.raw.get(shop.keys("lock", "a"))
    assert lock == f"{claim.fence:016d} d1 w1".encode()
    assert shop.raw.ttl(shop.keys("lock", "a")) == -1, "a lease ends by a script, not by a key"
    checkpoint: Any = shop.raw.hget(shop.keys("worker", "d1"), "w1")
    fence, _since, entry, group = split_checkpoint(checkpoint)
    assert (fence, entry, group) == (claim.fence, claim.entry, "a")


async def test_what_was_deleted_by_hand_is_passed_over(shop: Bench) -> None:
    """An envelope, a lane, a lock of no daemon: those beside are given all the same."""
    await shop.enqueue(*(arrival(f"{group}0", group) for group in "abcd"), arrival("p0"))
    shop.raw.hdel(shop.keys("tasks"), "a0", "p0", "c0")
    shop.raw.delete(shop.keys("lane", "c"))
    shop.raw.set(shop.keys("lock", "b"), "unknown")
    for total in ("queued_grouped", "taken"):
        shop.raw.hincrby(shop.keys("count"), total, -1)
    daemon = await shop.daemon()
    claims = await daemon.claim("grouped", "w1", "w2", "w3", "w4", "w5")
    claims += await daemon.claim("plain", "w6")
    assert ids(claims) == ["d0"]
    assert shop.count("missing") == 2
    assert not shop.raw.exists(shop.keys("lock", "c"))
    assert shop.raw.get(shop.keys("lock", "b")) == b"unknown"
    shop.raw.delete(shop.keys("lock", "b"))
    await play(shop, "resume b | d2: claim b0")


async def test_a_claim_whose_envelope_is_gone_is_told_again_all_the_same(shop: Bench) -> None:
    """It is held, and must be settled; what it was is lost."""
    await shop.enqueue(arrival("a0", "a"), arrival("b0", "b"))
    daemon = await shop.daemon()
    held = await daemon.claim("grouped", "w1", "w2")
    shop.raw.hdel(shop.keys("tasks"), "a0")
    again = await daemon.claim("grouped", "w1", "w2")
    assert [claim.fence for claim in again] == [claim.fence for claim in held]
    assert (again[0].task.body, again[1].task.body) == (b"", b'{"id":"b0"}')
    assert await daemon.complete(*again) == []


# settle


test_fair = played(
    """
    each group has its turn:: take a0 | take b0 | take a1 b1 a2 a3 c0 | drain a0 b0 c0 a1 b1 a2 a3
    newcomers come in between::
        take a0 | take b0 | take a1 b1 a2 b2 | claim a0 | done a0 | claim b0 | take c0 | done b0
        drain a1 c0 b1 a2 b2
    what is urgent goes before a group that was ready for less than its priority::
        take a0 p0 | ready_for a 35000 | older 35000 | take b1+36000 p1+36000 | claim b1 p1
        ready_for a 2000 | older 2000 | take c2+36000 p2+36000 | claim a0 p0
    a group keeps its turn, or would stand behind all others for ever: {change}::
        take a0 a1 a2 b0 | claim a0 | {change}
    """,
    Ages,
    orders=["fair"],
    change=(
        "retry a0 aside | ready_for a 1 | resume a | claim a1",
        "bury a0 | ready_for a 1 | redrive a0 | claim a0",
        "bury a0 | ready_for a 1 | drop a0 | claim a1",
        "retry a0 aside | ready_for a 1 | time | claim a0",
    ),
)


_OURS = {"evalsha", "info", "config|resetstat", "config", "client|setinfo"}  # not by a script


async def _commands(bench: Bench, slots: int) -> int:
    """Commands by scripts for one exchange that settles and claims so many, of as many groups."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n:02d}") for n in range(2 * slots)))
    daemon = await bench.daemon()
    workers = [f"w{n}" for n in range(slots)]
    claims = await daemon.claim("grouped", *workers)
    assert len(claims) == slots
    bench.raw.config_resetstat()
    _, following = await daemon.exchange("grouped", [Complete(each) for each in claims], workers)
    stats: Any = bench.raw.info("commandstats")
    assert len(following) == slots
    daemon.drop(*claims)
    calls = {name.removeprefix("cmdstat_"): each["calls"] for name, each in stats.items()}
    return sum(calls[name] for name in calls.keys() - _OURS)


@pytest.mark.parametrize(("slots", "most"), [(1, 27), (16, 57)])
async def test_who_has_no_limits_pays_for_none(shop: Bench, slots: int, most: int) -> None:
    """A command more in a claim or a settle is a decision, to be made here."""
    assert await _commands(shop, slots) <= most


# What the store's Python makes of calls, answers, and of what lies in Redis


async def test_each_answer_is_of_its_settlement_however_they_travel(shop: Bench) -> None:
    """What was settled is told on; nothing is, where the session is lost."""
    told = await play(shop, "take a0 b0 c0 d0 | claim a0 b0 c0 d0")
    accepted = list[Settlement]()
    claims = Claims(shop.client, (await told.daemon()).session, "plain", accepted.extend)
    a, b, c, d = (told.claim_of(id_)[1] for id_ in ("a0", "b0", "c0", "d0"))
    w, x, y, z = (with_fence(each, each.fence - 1) for each in (a, b, c, d))
    lost: list[Settlement] = [Release(w), Complete(x), bury(y), Proceed([Complete(z)], None)]
    every: list[Settlement] = [Release(a), lost[1], bury(c), lost[3]]
    for settled, stale in ((lost, lost), (every, [lost[1], lost[3]])):
        refused = (await claims.exchange(settled, [])).refused
        assert {*map(id, refused)} == {*map(id, stale)}
    assert {*map(id, accepted)} == {id(every[0]), id(every[2])}
    await told.go_on("lose")
    with pytest.raises(SessionLost):
        await claims.exchange([Complete(b), Complete(d)], ["w"])
    assert len(accepted) == 2


async def test_how_long_a_task_waited(shop: Bench) -> None:
    """Since it came, or was due; of a retry nothing is told, and no clock makes it negative."""
    told = await play(shop, "take p0 | claim p0 | take p1@0.05")
    while not await promote(shop):
        pass
    await told.go_on("claim p1 | retry p0 | time | claim p0")
    first, late, again = (told.claim_of(id_)[1] for id_ in ("p0'", "p1", "p0"))
    assert 0.0 <= (first.waited or 0.0) < 60.0
    assert late.waited is not None
    assert late.waited <= shop.server_time() / 1e6 - late.task.enqueued_at - 0.05
    assert (again.waited, again.task.enqueued_at) == (None, first.task.enqueued_at)
    ahead = shop.server_time() + 3_600_000_000
    shop.raw.hset(shop.keys("count"), "sequence", f"{ahead:016d}")
    await told.go_on("take p2 | claim p2")
    assert told.claim_of("p2")[1].waited == 0.0


def test_a_burial_counts_attempts_and_names_the_last_error() -> None:
    """What a message died of at the door was none; of many attempts only some errors stay."""
    errors = [{"error": enqueue.REJECTED}, {"error": "A"}, {"error": "B"}]
    for attempt, expected in ((1, 2), (9, 9)):
        task = Task("t1", "t", attempt=attempt, tenant="42")
        claim = Claim("s", 1, b"e", task, None, scope="crm")
        [(_, arguments)] = calls_of([], "plain", [settlements.Bury(claim, "r", errors)], [])[1]
        assert list(arguments[6:]) == ["skip", expected, "t", "42", "B", "crm", "x--other", 0, 0]


def test_delays_have_half_of_the_least_memory() -> None:
    assert bound_of_delays(100) == bound_of_delays(100, 0, 0) == 100
    assert bound_of_delays(100, 0, 120) == bound_of_delays(100, 120, 500) == 60


def test_an_envelope_comes_back_as_it_went_and_what_others_wrote_is_a_bare_body() -> None:
    for headers, scope in (({}, ""), ({"a": 1}, "crm")):
        envelope = Envelope("t", "g", None, "rule", headers, b"body\nmore", scope)
        assert Envelope.unpack(envelope.pack()) == envelope
    for packed in (b"no json", b'{"type": "t"}\nbody', b'["t"]\nbody'):
        found = Envelope.unpack_any(packed, "g")
        assert (found.type, found.group, found.body, found.scope) == ("", "g", packed, "")
