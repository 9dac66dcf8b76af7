"""claim: the oldest task whose group is free, under its group's lock, once."""

from __future__ import annotations

import asyncio
from dataclasses import FrozenInstanceError, fields, replace

import pytest

from groupflow.core.errors import SessionLost
from groupflow.core.task import Task
from groupflow.operate.groups import Groups
from groupflow.servers import RedisServer
from groupflow.store.keys import split_checkpoint
from tests.store.bench import Bench, arrival, ids


async def test_group_is_exclusive(bench: Bench) -> None:
    """While a group's task runs, no daemon gets the next one."""
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(3)))
    first, second = await bench.daemon("d1"), await bench.daemon("d2")
    claim = await first.claim_one()
    assert await second.claim("grouped", "w1", "w2") == []
    assert await first.claim("grouped", "w2", "w3") == []
    await first.complete(claim)
    assert ids(await second.claim("grouped", "w1", "w2")) == ["a1"]


async def test_a_task_that_was_claimed_has_all_of_its_facts_and_keeps_them(bench: Bench) -> None:
    """It is filled past its `__init__`: as one that is made by it, and none may be set later."""
    await bench.enqueue(arrival("a0", "a"))
    task = (await (await bench.daemon()).claim_one()).task
    facts = {each.name: getattr(task, each.name) for each in fields(Task)}
    assert vars(task).keys() == facts.keys()
    assert task == Task(**facts)
    for name in (*facts, "other"):
        with pytest.raises(FrozenInstanceError):
            setattr(task, name, None)


async def test_nothing_new_is_given_to_a_daemon_whose_lease_is_over(bench: Bench) -> None:
    """It might be taken away at once. What it holds it is told again: it is still its own."""
    await bench.enqueue(arrival("a0", "a"), arrival("b0", "b"), arrival("p0"), arrival("p1"))
    daemon = await bench.daemon()
    held = [await daemon.claim_one("grouped", "w1"), await daemon.claim_one("plain", "w2")]
    bench.expire("d1")
    assert ids(await daemon.claim("grouped", "w1", "w3")) == ["a0"]
    assert ids(await daemon.claim("plain", "w2", "w4")) == ["p0"]
    await daemon.sessions.renew()
    assert ids(await daemon.claim("grouped", "w3")) == ["b0"]
    assert ids(await daemon.claim("plain", "w4")) == ["p1"]
    assert await daemon.complete(*held) == []


async def test_one_call_serves_many_groups(bench: Bench) -> None:
    """One call gives each idle worker a group of its own, the oldest first."""
    await bench.enqueue(*(arrival(f"{group}{n}", group) for n in range(2) for group in "abcd"))
    daemon = await bench.daemon()
    claims = await daemon.claim("grouped", "w1", "w2", "w3")
    assert [(claim.slot, claim.task.id) for claim in claims] == [
        ("w1", "a0"),
        ("w2", "b0"),
        ("w3", "c0"),
    ]


async def test_busy_group_delays_no_other_group(bench: Bench) -> None:
    """What waits behind a busy group's head is passed over, however much it is."""
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(300)))
    await bench.enqueue(arrival("b0", "b"))
    daemon = await bench.daemon()
    assert ids(await daemon.claim("grouped", "w1", "w2")) == ["a0", "b0"]


async def test_claim_carries_the_task(bench: Bench) -> None:
    """The worker gets the body as it was published, and the facts of this attempt."""
    await bench.enqueue(arrival("a0", "a"), arrival("p0"))
    daemon = await bench.daemon()
    grouped = await daemon.claim_one()
    task = grouped.task
    assert (task.id, task.type, task.group, task.tenant) == ("a0", "t", "a", "42")
    assert (task.body, task.attempt, task.crashes, task.stage) == (b'{"id":"a0"}', 1, 0, None)
    assert (grouped.slot, grouped.rule, grouped.errors) == ("w1", "rule", [])
    assert task.fence == grouped.fence > 0
    assert task.enqueued_at > 1_700_000_000
    plain = await daemon.claim_one("plain", "w2")
    assert (plain.task.id, plain.task.group, plain.rule) == ("p0", None, None)
    assert plain.fence > grouped.fence


async def test_lock_and_checkpoint_are_one_step(bench: Bench) -> None:
    """A claim leaves the group's lock and the worker's checkpoint, which name each other."""
    await bench.enqueue(arrival("a0", "a"))
    daemon = await bench.daemon()
    claim = await daemon.claim_one()
    lock = bench.raw.get(bench.keys("lock", "a"))
    assert lock == f"{claim.fence:016d} d1 w1".encode()
    assert bench.raw.ttl(bench.keys("lock", "a")) == -1, "a lease ends by a script, not by a key"
    checkpoint = bench.raw.hget(bench.keys("worker", "d1"), "w1")
    assert isinstance(checkpoint, bytes)
    fence, _since, entry, group = split_checkpoint(checkpoint)
    assert (fence, entry, group) == (claim.fence, claim.entry, "a")


async def test_same_worker_gets_the_same_claim(bench: Bench) -> None:
    """A claim whose reply was lost is given again, not a second one."""
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(2)), arrival("p0"), arrival("p1"))
    await bench.enqueue(arrival("b0", "b"))
    daemon = await bench.daemon()
    once, again = await daemon.claim_one(), await daemon.claim_one()
    assert (once.task, once.entry) == (again.task, again.entry)
    plain, repeated = await daemon.claim("plain", "w2"), await daemon.claim("plain", "w2", "w3")
    assert [plain[0].task, "p1"] == [repeated[0].task, repeated[1].task.id]
    assert ids(await daemon.claim("grouped", "w1", "w4")) == ["a0", "b0"]


async def test_fences_rise_over_all_claims(bench: Bench) -> None:
    """Every claim has a higher fence than any before it, on all daemons."""
    await bench.enqueue(*(arrival(f"{group}0", group) for group in "abc"), arrival("p0"))
    first, second = await bench.daemon("d1"), await bench.daemon("d2")
    claims = [
        *await first.claim("grouped", "w1"),
        *await second.claim("plain", "w1"),
        *await second.claim("grouped", "w2", "w3"),
    ]
    fences = [claim.fence for claim in claims]
    assert fences == sorted(set(fences))
    assert len(fences) == 4


async def test_no_claim_without_a_session(bench: Bench) -> None:
    """Who never registered, or was reaped, gets nothing."""
    await bench.enqueue(arrival("a0", "a"), arrival("p0"))
    daemon = await bench.daemon()
    await daemon.sessions.leave()
    with pytest.raises(SessionLost):
        await daemon.claim("grouped", "w1")
    with pytest.raises(SessionLost):
        await daemon.claim("plain", "w1")
    status = await bench.status()
    assert (status.queued_plain, status.queued_grouped) == (1, 1)


async def test_envelope_that_is_gone(bench: Bench) -> None:
    """A task whose envelope was deleted by hand is passed over and counted; its group goes on."""
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(3)), arrival("p0"), arrival("p1"))
    for id_ in ("a0", "p0"):
        bench.raw.hdel(bench.keys("tasks"), id_)
    bench.events = [event for event in bench.events if event.id not in ("a0", "p0")]
    daemon = await bench.daemon()
    ran: list[str] = []
    for _ in range(2):  # what was passed over may leave a worker idle for one more call
        ran += await daemon.work_off(["w1"])
    assert sorted(ran) == ["a1", "a2", "p1"]
    assert bench.count("missing") == 2
    assert bench.audit() == []
    bench.events.clear()  # five were taken and only three are known to the history


async def test_racing_daemons_share_and_never_overlap(bench: Bench) -> None:
    """Many claims at once: each task goes to one of them, each group to one at a time."""
    await bench.enqueue(
        *(arrival(f"{group}-{n}", group) for n in range(10) for group in "abcdefgh")
    )
    daemons = [await bench.daemon(f"d{n}") for n in range(4)]
    ran: list[str] = []

    async def work(number: int) -> None:
        daemon = daemons[number]
        for _ in range(200):
            claims = await daemon.claim("grouped", "w1", "w2", "w3")
            ran.extend(ids(claims))
            await daemon.complete(*claims)
            if len(ran) == 80:
                return

    await asyncio.gather(*(work(number) for number in range(4)))
    assert len(ran) == len(set(ran)) == 80
    assert bench.judge_drained() == []


async def test_fair_order_lets_newcomers_in(store_server: RedisServer) -> None:
    """With `fair`, the group that has waited longest since its last turn goes first."""
    bench = Bench(store_server.url, order="fair")
    try:
        await bench.enqueue(*(arrival(f"{group}{n}", group) for n in range(3) for group in "ab"))
        daemon = await bench.daemon()
        ran = []
        for turn in range(7):
            claim = await daemon.claim_one()
            ran.append(claim.task.id)
            if turn == 1:
                await bench.enqueue(arrival("c0", "c"))
            await daemon.complete(claim)
        # `b` has finished its first task only after `c` came.
        assert ran == ["a0", "b0", "a1", "c0", "b1", "a2", "b2"]
        assert bench.judge_drained() == []
    finally:
        await bench.close()


async def test_history_sees_the_fence(bench: Bench) -> None:
    """The handler's fence is the claim's, and a later claim of the task has a higher one."""
    await bench.enqueue(arrival("a0", "a"))
    daemon = await bench.daemon()
    claim = await daemon.claim_one()
    await daemon.register()
    bench.with_faults = True
    again = await daemon.claim_one()
    assert again.fence > claim.fence
    assert again.task == replace(claim.task, fence=again.fence, crashes=1)


async def test_a_locked_group_is_not_claimed(bench: Bench) -> None:
    """None that is ready ever is; should one be, those beside it are given all the same."""
    await bench.enqueue(*(arrival(f"{group}0", group) for group in "abc"))
    bench.raw.set(bench.keys("lock", "b"), "unknown")
    daemon = await bench.daemon()
    assert ids(await daemon.claim("grouped", "w1", "w2", "w3")) == ["a0", "c0"]
    await bench.enqueue(arrival("b1", "b"))
    bench.raw.zadd(bench.keys("ready"), {"b": 1})
    assert await daemon.claim("grouped", "w4") == []
    assert bench.lane("b") == ["b0", "b1"]
    assert bench.raw.get(bench.keys("lock", "b")) == b"unknown"
    bench.raw.delete(bench.keys("lock", "b"))
    await Groups(bench.namespace).resume("b")
    assert ids(await daemon.claim("grouped", "w4")) == ["b0"]


async def test_a_group_that_is_ready_and_empty_is_passed_over(bench: Bench) -> None:
    """Its lane was deleted by hand: nothing is locked for it, and those beside it are given."""
    await bench.enqueue(*(arrival(f"{group}0", group) for group in "abc"))
    bench.raw.delete(bench.keys("lane", "b"))
    bench.raw.hdel(bench.keys("tasks"), "b0")
    for total in ("queued_grouped", "taken"):
        bench.raw.hincrby(bench.keys("count"), total, -1)
    bench.events = [event for event in bench.events if event.id != "b0"]
    daemon = await bench.daemon()
    claims = await daemon.claim("grouped", "w1", "w2", "w3")
    assert [(claim.slot, claim.task.id) for claim in claims] == [("w1", "a0"), ("w3", "c0")]
    assert not bench.raw.exists(bench.keys("lock", "b"))
    assert (await bench.status()).running_grouped == 2
    bench.events.clear()  # three were taken and only two are known to the history


async def test_a_claim_whose_envelope_is_gone_is_told_again_all_the_same(bench: Bench) -> None:
    """It is held, and must be settled; what it was is lost."""
    await bench.enqueue(arrival("a0", "a"), arrival("b0", "b"))
    daemon = await bench.daemon()
    held = await daemon.claim("grouped", "w1", "w2")
    bench.raw.hdel(bench.keys("tasks"), "a0")
    again = await daemon.claim("grouped", "w1", "w2")
    assert [(claim.slot, claim.task.id, claim.fence) for claim in again] == [
        (claim.slot, claim.task.id, claim.fence) for claim in held
    ]
    assert (again[0].task.body, again[1].task.body) == (b"", b'{"id":"b0"}')
    assert await daemon.complete(*again) == []
