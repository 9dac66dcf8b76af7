"""enqueue, claim, settle: each exactly once, in order, and only by who holds the claim."""

from __future__ import annotations

import asyncio
from dataclasses import FrozenInstanceError, fields
from typing import Any

import orjson
import pytest

from groupflow.core.task import Task
from groupflow.operate.listing import list_tasks
from groupflow.operate.tasks import find_task
from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Arrival, Enqueuer
from groupflow.store.envelope import Envelope
from groupflow.store.given import Claim
from groupflow.store.keys import split_checkpoint
from groupflow.store.settlements import Complete, Release, Settlement
from tests.store.bench import Bench, arrival, ids, with_fence
from tests.store.story import named, play, stories

STORIES = named(
    """
    tasks wait in the order given, within a batch and from batch to batch::
        take a0 a1 a2 b0 | take a3 p0 p1 | lane a0 a1 a2 a3 | drain a0 a1 a2 b0 a3 p0 p1
    the group whose head came first goes first:: take c0 a0 b0 | all c0 a0 b0
    a known id is a duplicate, in each state of its task::
        take a0 | duplicates a0 a0 | claim a0 | duplicates a0 | take a1 | done a0 | duplicates a0
        take x0! | duplicates x0 | count duplicates=5 | drain a1
    what can't be routed is a dead letter at once, and holds no other up::
        take a0 b0! a1 | status dead=1 buried_total=1 queued_grouped=2 | task b0 dead reason=no
        drain a0 a1
    priority counts as age among plain tasks and heads, and never in a group::
        take a0 b0+60 c0+120 a1+900 d0+-60 p0 p1+60 p2+-60 p3+120 p4
        drain c0 b0 a0 a1 d0 p3 p1 p0 p4 p2
    a retry is due by its delay alone::
        take p0+7200 a0+7200 | claim p0 a0 | retry_now p0 a0
        take p1+60 b0+60 | promote | drain b0 a0 p1 p0
    a stage counts its priority again::
        take p0+3600 | claim p0 | take p1 p2+7200 | advance p0 | drain p2 p0 p1
    while a group's task runs, no daemon gets the next one::
        take a0 a1 | open d2 | claim a0 | none | d2: none | done a0 | d2: all a1
    what is handed back goes first, and counts neither crash nor attempt::
        take a0 b0 a1 b1 p0 p1 p2 | claim a0 b0 p0 p1 | release a0 b0 | release p1 p0 | lane a0 a1
        d2: claim a0/1*0 b0/1*0 p0/1*0 p1/1*0
    only the last settle of a claim's slot is known again::
        take a0 a1 | claim a0 | swap a0 a1 | swap a1 | refused unchanged done a0
    a task is found wherever it is::
        take a0 a1 p0 p1 b0 c0 d0 | take e0@ p2@ | claim a0 b0 c0 d0 p0 | retry b0 | bury c0
        done d0
        task a0 running daemon=d1 | task a1 queued | task p0 running daemon=d1 | task p1 queued
        task b0 delayed | task c0 dead | task d0 done | task e0 delayed | task p2 delayed
    a parked group stands, and only it::
        take a0 b0 a1 b1 | claim a0 | park a0 | take a2 | drain b0 b1
        status parked=1 queued_grouped=2 | none
    """
)


@stories(STORIES)
async def test_the_path(shop: Bench, story: str) -> None:
    await play(shop, story)


# enqueue


async def test_an_empty_batch_asks_only(bench: Bench) -> None:
    """It writes nothing; and the id decides what is a duplicate, not the group nor the body."""
    before = bench.dump()
    assert await bench.enqueue() == []
    assert bench.dump() == before
    batch = arrival("x", "a"), arrival("x", "b"), arrival("x")
    assert await bench.enqueue(*batch) == [True, False, False]
    assert (await bench.status()).groups == 1


async def test_a_claim_that_is_asked_for_behind_it_finds_its_tasks(bench: Bench) -> None:
    """So no worker waits for a wake; also on a connection that is yet to be opened, and where Redis
    knows no script: a claim that comes while they are loaded doesn't overtake the tasks."""
    daemon = await bench.daemon()
    client = StoreClient(bench.url, bench.keys, "oldest")
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
            bench.raw.script_flush()
    finally:
        await client.close()


async def test_arrivals_rise_across_clients(shop: Bench) -> None:
    """Batches of several daemons at once never share an arrival, nor mix within themselves."""
    other = Bench(shop.url, keys=shop.keys)
    try:
        await asyncio.gather(
            *(
                side.enqueue(*(arrival(f"{name}{batch}-{n}", "a") for n in range(20)))
                for side, name in ((shop, "x"), (other, "y"))
                for batch in range(10)
            )
        )
    finally:
        await other.client.close()
        other.raw.close()
    lane = shop.lane("a")
    assert len(lane) == len(set(lane)) == 400
    for start in range(0, 400, 20):
        batch = lane[start].partition("-")[0]
        assert lane[start : start + 20] == [f"{batch}-{n}" for n in range(20)]


# claim


async def test_a_claim_has_all_facts_and_names_its_lock(bench: Bench) -> None:
    """The body as it was published; lock and checkpoint name each other; fences rise."""
    await bench.enqueue(arrival("a0", "a"), arrival("p0"))
    claim = await (await bench.daemon("d2")).claim_one("plain", "w2")
    assert (claim.task.id, claim.task.group, claim.rule) == ("p0", None, None)
    daemon = await bench.daemon()
    grouped = await daemon.claim_one()
    task = grouped.task
    assert (task.id, task.type, task.group, task.tenant) == ("a0", "t", "a", "42")
    assert (task.body, task.attempt, task.crashes, task.stage) == (b'{"id":"a0"}', 1, 0, None)
    assert (grouped.slot, grouped.rule, grouped.errors) == ("w1", "rule", [])
    assert task.fence == grouped.fence > claim.fence > 0
    assert task.enqueued_at > 1_700_000_000
    lock = bench.raw.get(bench.keys("lock", "a"))
    assert lock == f"{grouped.fence:016d} d1 w1".encode()
    assert bench.raw.ttl(bench.keys("lock", "a")) == -1, "a lease ends by a script, not by a key"
    checkpoint = bench.raw.hget(bench.keys("worker", "d1"), "w1")
    assert isinstance(checkpoint, bytes)
    fence, _since, entry, group = split_checkpoint(checkpoint)
    assert (fence, entry, group) == (grouped.fence, grouped.entry, "a")
    facts = {each.name: getattr(task, each.name) for each in fields(Task)}
    assert vars(task).keys() == facts.keys()
    assert task == Task(**facts), "it is filled past its `__init__`"
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
    assert ids(await daemon.claim("grouped", "w1", "w3")) == ["a0", "b0"]
    again = await daemon.claim("plain", "w2", "w4")
    assert ids(again) == ["p0", "p1"]
    assert (again[0].task, again[0].entry) == (held[1].task, held[1].entry)
    assert await daemon.complete(*held) == []


async def test_what_waits_behind_a_busy_head_is_passed_over_however_much_it_is(
    bench: Bench,
) -> None:
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(300)), arrival("b0", "b"))
    claims = await (await bench.daemon()).claim("grouped", "w1", "w2")
    assert [(claim.slot, claim.task.id) for claim in claims] == [("w1", "a0"), ("w2", "b0")]


async def test_racing_daemons_share_and_never_overlap(bench: Bench) -> None:
    """Many claims at once: each task goes to one of them, each group to one at a time."""
    await bench.enqueue(
        *(arrival(f"{group}-{n}", group) for n in range(10) for group in "abcdefgh")
    )
    ran: list[str] = []

    async def work(name: str) -> None:
        daemon = await bench.daemon(name)
        while len(ran) < 80:
            claims = await daemon.claim("grouped", "w1", "w2", "w3")
            ran.extend(ids(claims))
            await daemon.complete(*claims)

    await asyncio.gather(*(work(f"d{number}") for number in range(4)))
    assert len(ran) == len(set(ran)) == 80
    assert bench.judge_drained() == []


async def test_what_was_deleted_by_hand_is_passed_over(bench: Bench) -> None:
    """An envelope, a lane, a lock of nobody: those beside are given all the same."""
    await bench.enqueue(*(arrival(f"{group}0", group) for group in "abcd"), arrival("p0"))
    bench.raw.hdel(bench.keys("tasks"), "a0", "p0", "c0")
    bench.raw.delete(bench.keys("lane", "c"))
    bench.raw.set(bench.keys("lock", "b"), "unknown")
    for total in ("queued_grouped", "taken"):
        bench.raw.hincrby(bench.keys("count"), total, -1)
    daemon = await bench.daemon()
    claims = await daemon.claim("grouped", "w1", "w2", "w3", "w4", "w5")
    claims += await daemon.claim("plain", "w6")
    assert ids(claims) == ["d0"]
    assert bench.count("missing") == 2
    assert not bench.raw.exists(bench.keys("lock", "c"))
    assert bench.raw.get(bench.keys("lock", "b")) == b"unknown"
    bench.raw.delete(bench.keys("lock", "b"))
    await play(bench, "resume b | d2: claim b0")
    bench.events.clear()  # five were taken and only two are known to the history


async def test_a_claim_whose_envelope_is_gone_is_told_again_all_the_same(bench: Bench) -> None:
    """It is held, and must be settled; what it was is lost."""
    await bench.enqueue(arrival("a0", "a"), arrival("b0", "b"))
    daemon = await bench.daemon()
    held = await daemon.claim("grouped", "w1", "w2")
    bench.raw.hdel(bench.keys("tasks"), "a0")
    again = await daemon.claim("grouped", "w1", "w2")
    assert [(claim.task.id, claim.fence) for claim in again] == [
        (claim.task.id, claim.fence) for claim in held
    ]
    assert (again[0].task.body, again[1].task.body) == (b"", b'{"id":"b0"}')
    assert await daemon.complete(*again) == []


# settle


async def test_complete_leaves_a_line_in_the_history_only(bench: Bench) -> None:
    """Nothing of a finished task stays but its line."""
    await play(bench, "take a0 p0 | claim a0 p0 | done a0 p0 | leave")
    lines: Any = bench.raw.hgetall(bench.keys("history_new"))
    assert {id_: orjson.loads(line[16:]) for id_, line in lines.items()} == {
        b"a0": ["done", "t", "a", 1, 0, ""],
        b"p0": ["done", "t", None, 1, 0, ""],
    }
    assert (await bench.status()).done_total == 2
    bench.events.clear()
    assert bench.judge_drained() == []


async def test_one_exchange_settles_hands_back_and_claims(shop: Bench) -> None:
    """All at once, each by its own fence; and told again it says the same."""
    await shop.enqueue(*(arrival(f"{group}{n}", group) for n in range(2) for group in "abcd"))
    daemon = await shop.daemon()
    a, b, c, d = await daemon.claim("grouped", "w1", "w2", "w3", "w4")
    done, lost = with_fence(c, c.fence - 1), with_fence(d, d.fence - 1)
    settlements: list[Settlement] = [Release(lost), Complete(a), Release(b), Complete(done)]
    for told_before in (False, True):
        before = shop.dump()
        refused, claims = await daemon.exchange("grouped", settlements, ["w1", "w2"])
        assert [each.claim for each in refused] == [done, lost]
        assert [(claim.slot, claim.task.id) for claim in claims] == [("w1", "b0"), ("w2", "a1")]
        assert (shop.dump() == before) == told_before


async def test_bury_keeps_the_body_the_reason_and_whose_the_id_is(shop: Bench) -> None:
    """Beside the letter, which may leave Redis."""
    for id_, scope in (("p0", "0a"), ("p1", "")):
        await shop.enqueue(Arrival(id_, Envelope("t", None, "42", None, {}, b"{1}", scope)))
    await play(shop, "claim p0 p1 | bury p0 p1 | status dead=2 buried_total=2 done_total=0")
    for id_, scope_of in (("p0", b"0a"), ("p1", b"")):
        state: Any = shop.raw.hgetall(shop.keys("task_state", id_))
        assert (state[b"reason"], state[b"scope"]) == (b"broken", scope_of)
        assert orjson.loads(state[b"errors"])[0]["message"] == "broken"
        packed: Any = shop.raw.hget(shop.keys("tasks"), id_)
        assert packed.endswith(b"\n{1}")


async def test_tasks_are_listed_by_their_state(shop: Bench) -> None:
    await play(
        shop, "take a0 a1 p0 p1 b0 d0 | take e0@ p2@ | claim a0 b0 d0 p0 | retry b0 | done d0"
    )
    listed: dict[Any, set[str]] = {
        "queued": {"a1", "p1"},
        "running": {"a0", "p0"},
        "delayed": {"b0", "e0", "p2"},
        "done": {"d0"},
    }
    for state, expected in listed.items():
        assert {row.id for row in (await list_tasks(shop.namespace, state, 100)).rows} == expected
        assert len((await list_tasks(shop.namespace, state, 1)).rows) == 1
    assert await find_task(shop.client, "never came") is None
