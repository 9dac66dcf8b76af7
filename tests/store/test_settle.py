"""settle: complete, release, bury; each exactly once, and only by who holds the claim."""

from __future__ import annotations

from typing import Any

import orjson

from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.settlements import Complete, Release, Settlement
from tests.store.bench import Bench, arrival, bury, ids, with_fence


async def test_complete_leaves_a_line_in_the_history_only(bench: Bench) -> None:
    """Nothing of a finished task stays but its line."""
    await bench.enqueue(arrival("a0", "a"), arrival("p0"))
    daemon = await bench.daemon()
    claims = [await daemon.claim_one(), await daemon.claim_one("plain", "w2")]
    assert await daemon.complete(*claims) == []
    lines: Any = bench.raw.hgetall(bench.keys("history_new"))
    assert {id_: orjson.loads(line[16:]) for id_, line in lines.items()} == {
        b"a0": ["done", "t", "a", 1, 0, ""],
        b"p0": ["done", "t", None, 1, 0, ""],
    }
    assert (await bench.status()).done_total == 2
    assert bench.judge_drained() == []


async def test_complete_frees_the_group(bench: Bench) -> None:
    """The next of the group may be claimed right behind the settle, and by anybody."""
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"))
    daemon, other = await bench.daemon("d1"), await bench.daemon("d2")
    await daemon.complete(await daemon.claim_one())
    assert ids(await other.claim("grouped", "w1")) == ["a1"]


async def test_complete_of_many_tells_each_verdict(bench: Bench) -> None:
    """Within one call a stale claim is refused and the others are accepted."""
    await bench.enqueue(*(arrival(f"{group}0", group) for group in "abc"))
    daemon = await bench.daemon()
    claims = await daemon.claim("grouped", "w1", "w2", "w3")
    stale = with_fence(claims[1], claims[1].fence - 1)
    refused = await daemon.settle(Complete(claims[0]), Complete(stale), Complete(claims[2]))
    assert [each.claim for each in refused] == [stale]
    assert (await bench.status()).running_grouped == 1


async def test_one_exchange_settles_hands_back_and_claims(bench: Bench) -> None:
    """All at once, each by its own fence; and told again it says the same."""
    await bench.enqueue(*(arrival(f"{group}{n}", group) for n in range(2) for group in "abcd"))
    daemon = await bench.daemon()
    a, b, c, d = await daemon.claim("grouped", "w1", "w2", "w3", "w4")
    done, lost = with_fence(c, c.fence - 1), with_fence(d, d.fence - 1)
    settlements: list[Settlement] = [Release(lost), Complete(a), Release(b), Complete(done)]
    for told_before in (False, True):
        before = bench.dump()
        refused, claims = await daemon.exchange("grouped", settlements, ["w1", "w2"])
        assert [each.claim for each in refused] == [done, lost]
        assert [(claim.slot, claim.task.id) for claim in claims] == [("w1", "b0"), ("w2", "a1")]
        assert (bench.dump() == before) == told_before
    assert bench.audit() == []
    bench.events.clear()  # the history has no word of it


async def test_repeat_is_accepted_and_changes_nothing(bench: Bench) -> None:
    """A settle whose reply was lost is answered as the first time."""
    await bench.enqueue(*(arrival(f"{group}{n}", group) for n in range(2) for group in "abc"))
    daemon = await bench.daemon()
    a, b, c = await daemon.claim("grouped", "w1", "w2", "w3")
    for settlement in (Complete(a), Release(b), bury(c)):
        assert await daemon.settle(settlement) == []
        before, events = bench.dump(), len(bench.events)
        assert await daemon.settle(settlement, end=False) == []
        assert bench.dump() == before
        del bench.events[events:]  # one settle, answered twice


async def test_stale_fence_is_refused_in_every_way(bench: Bench) -> None:
    """Neither an older nor a newer fence than the claim's own settles it."""
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"), arrival("p0"))
    daemon = await bench.daemon()
    for claim in (await daemon.claim_one(), await daemon.claim_one("plain", "w2")):
        before = bench.dump()
        for wrong in (with_fence(claim, claim.fence - 1), with_fence(claim, claim.fence + 1)):
            for settlement in (Complete(wrong), Release(wrong), bury(wrong)):
                assert await daemon.settle(settlement, end=False) == [settlement]
        assert bench.dump() == before


async def test_other_daemons_and_workers_claim_is_refused(bench: Bench) -> None:
    """A claim belongs to one worker of one daemon."""
    await bench.enqueue(arrival("a0", "a"))
    daemon, other = await bench.daemon("d1"), await bench.daemon("d2")
    claim = await daemon.claim_one()
    for settlement in (Complete(claim), Release(claim), bury(claim)):
        assert await other.settle(settlement, end=False) == [settlement]
    claim.slot = "w9"
    assert await daemon.settle(Complete(claim), end=False) == [Complete(claim)]


async def test_exchange_may_be_repeated_whole(bench: Bench) -> None:
    """A round trip that settles and claims answers the same when its reply was lost."""
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(3)))
    daemon = await bench.daemon()
    first = await daemon.claim_one()
    refused, claims = await daemon.exchange("grouped", [Complete(first)], ["w1"])
    assert (refused, ids(claims)) == ([], ["a1"])
    before = bench.dump()
    again_refused, again = await daemon.exchange("grouped", [Complete(first)], ["w1"])
    assert (again_refused, again[0].task) == ([], claims[0].task)
    assert bench.dump() == before


async def test_older_claim_of_a_worker_is_refused(bench: Bench) -> None:
    """Only the last settle of a worker is remembered: what came before it is stale."""
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(3)))
    daemon = await bench.daemon()
    first = await daemon.claim_one()
    await daemon.complete(first)
    await daemon.complete(await daemon.claim_one())
    await daemon.claim_one()
    before = bench.dump()
    assert await daemon.settle(Complete(first), end=False) == [Complete(first)]
    assert bench.dump() == before


async def test_release_goes_back_to_its_place(bench: Bench) -> None:
    """What is handed back goes first in its group, and counts neither crash nor attempt."""
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(3)), arrival("p0"), arrival("p1"))
    daemon, other = await bench.daemon("d1"), await bench.daemon("d2")
    claims = [await daemon.claim_one(), await daemon.claim_one("plain", "w2")]
    assert await daemon.settle(*(Release(claim) for claim in claims)) == []
    assert bench.lane("a") == ["a0", "a1", "a2"]
    again = await other.claim_one()
    assert (again.task.id, again.task.attempt, again.task.crashes) == ("a0", 1, 0)
    assert (await other.claim_one("plain", "w2")).task.id == "p0"


async def test_release_of_many_at_once(bench: Bench) -> None:
    """All that a daemon holds goes back in one call, and the groups' order stays."""
    await bench.enqueue(*(arrival(f"{group}{n}", group) for n in range(2) for group in "abc"))
    daemon = await bench.daemon()
    claims = await daemon.claim("grouped", "w1", "w2", "w3")
    await daemon.settle(*(Release(claim) for claim in claims))
    assert await daemon.work_off(["w1"]) == ["a0", "b0", "c0", "a1", "b1", "c1"]
    assert bench.judge_drained() == []


async def test_released_plain_tasks_keep_their_order(bench: Bench) -> None:
    """Plain tasks that are handed back together are claimed again in the order they came."""
    await bench.enqueue(*(arrival(f"p{n}") for n in range(4)))
    daemon = await bench.daemon()
    claims = await daemon.claim("plain", "w1", "w2", "w3")
    await daemon.settle(*(Release(claim) for claim in claims))
    assert await daemon.work_off(["w1"]) == ["p0", "p1", "p2", "p3"]


async def test_bury_keeps_the_body_and_the_reason(bench: Bench) -> None:
    """A dead letter keeps everything; its group goes on."""
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"), arrival("p0"))
    daemon = await bench.daemon()
    claims = [await daemon.claim_one(), await daemon.claim_one("plain", "w2")]
    assert await daemon.settle(*(bury(claim, "it can't be") for claim in claims)) == []
    for id_ in ("a0", "p0"):
        task_state: Any = bench.raw.hgetall(bench.keys("task_state", id_))
        assert task_state[b"reason"] == b"it can't be"
        assert orjson.loads(task_state[b"errors"])[0]["message"] == "it can't be"
        packed = bench.raw.hget(bench.keys("tasks"), id_)
        assert isinstance(packed, bytes)
        assert packed.endswith(b'\n{"id":"%s"}' % id_.encode())
    status = await bench.status()
    assert (status.dead, status.buried_total, status.done_total) == (2, 2, 0)
    assert await daemon.work_off() == ["a1"]
    assert bench.judge_drained() == []


async def test_bury_keeps_whose_the_id_is(bench: Bench) -> None:
    """Beside the letter, which may leave Redis."""
    for id_, scope in (("p0", "0a"), ("p1", "")):
        await bench.enqueue(Arrival(id_, Envelope("t", None, "42", None, {}, b"{}", scope)))
    daemon = await bench.daemon()
    claims = await daemon.claim("plain", "w1", "w2")
    assert await daemon.settle(*(bury(claim) for claim in claims)) == []
    told = [bench.raw.hget(bench.keys("task_state", f"p{n}"), "scope") for n in range(2)]
    assert told == [b"0a", b""]


async def test_a_plain_task_parks_nothing(bench: Bench) -> None:
    await bench.enqueue(arrival("p0"), arrival("p1"))
    daemon = await bench.daemon()
    await daemon.settle(bury(await daemon.claim_one("plain"), park=True))
    assert (await bench.status()).parked == 0
    assert not bench.raw.exists(bench.keys("parked"))


async def test_bury_with_park_holds_the_group(bench: Bench) -> None:
    """A parked group stands, and only it."""
    await bench.enqueue(*(arrival(f"{group}{n}", group) for n in range(2) for group in "ab"))
    daemon = await bench.daemon()
    await daemon.settle(bury(await daemon.claim_one(), park=True))
    assert await daemon.work_off() == ["b0", "b1"]
    status = await bench.status()
    assert (status.parked, status.queued_grouped) == (1, 1)
    await bench.enqueue(arrival("a2", "a"))
    assert await daemon.work_off() == []
