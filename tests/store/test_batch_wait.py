"""An incomplete batch waits for more: until it is full, or its oldest task has waited its time."""

from __future__ import annotations

import pytest

from groupflow.core.limits import Limit, Limits
from groupflow.operate.groups import Groups
from groupflow.store.given import Claim
from groupflow.store.settlements import Complete, Proceed, Retry
from tests.store.bench import Bench, Daemon, arrival, ids
from tests.store.task_state import promote

BATCH = {"rule": 3}


async def waiting_for_three(shop: Bench, wait: float = 60.0) -> Daemon:
    """A daemon whose rule makes batches of three, which wait so many seconds."""
    shop.limits = Limits({"rule": Limit(batch=3, batch_wait=wait)})
    daemon = await shop.daemon()
    daemon.claims("grouped").adopt(BATCH)
    return daemon


async def end(daemon: Daemon, claim: Claim) -> None:
    """All of a batch is done."""
    done = [Complete(each) for each in (claim, *claim.run)]
    assert await daemon.exchange("grouped", [Proceed(done, None)], []) == ([], [])


async def claimed(daemon: Daemon) -> list[list[str]]:
    """The tasks of each claim that may be made now."""
    claims = await daemon.claim("grouped", "v1", "v2", "v3")
    return [ids([claim, *claim.run]) for claim in claims]


async def test_fewer_wait_and_the_last_one_ends_it(bench: Bench) -> None:
    daemon = await waiting_for_three(bench)
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"))
    why = await Groups(bench.namespace).why("a")
    assert why.state == "delayed"
    assert "2 so far: its batch isn't full" in why.reason
    assert await claimed(daemon) == []
    await bench.enqueue(arrival("a2", "a"))
    assert (await Groups(bench.namespace).why("a")).state == "ready"
    assert await claimed(daemon) == [["a0", "a1", "a2"]]


async def test_in_one_batch_of_messages(bench: Bench) -> None:
    """Each group by itself, as many as there are."""
    daemon = await waiting_for_three(bench)
    await bench.enqueue(
        *(arrival(f"{g}{n}", g) for n in range(4) for g in "ab"), arrival("c0", "c")
    )
    assert await claimed(daemon) == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]


async def test_the_oldest_has_waited_its_time(bench: Bench) -> None:
    daemon = await waiting_for_three(bench, wait=0.05)
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"))
    assert await claimed(daemon) == []
    while not (found := await claimed(daemon)):
        await promote(bench)
    assert found == [["a0", "a1"]]


async def test_what_is_left_waits_from_its_own_arrival(shop: Bench) -> None:
    daemon = await waiting_for_three(shop)
    await shop.enqueue(*(arrival(f"a{n}", "a") for n in range(4)))
    [claim] = await daemon.claim("grouped", "w1")
    await daemon.exchange(
        "grouped", [Proceed([Complete(each) for each in (claim, *claim.run)], None)], []
    )
    assert await claimed(daemon) == []
    await shop.enqueue(*(arrival(f"a{n}", "a") for n in range(4, 6)))
    assert await claimed(daemon) == [["a3", "a4", "a5"]]
    assert shop.audit() == []


async def test_more_that_come_while_one_runs(shop: Bench) -> None:
    """What has filled a batch meanwhile is claimed once the group is free."""
    daemon = await waiting_for_three(shop)
    await shop.enqueue(*(arrival(f"a{n}", "a") for n in range(3)))
    [claim] = await daemon.claim("grouped", "w1")
    await shop.enqueue(*(arrival(f"a{n}", "a") for n in range(3, 6)))
    assert await claimed(daemon) == []
    await daemon.exchange(
        "grouped", [Proceed([Complete(each) for each in (claim, *claim.run)], None)], []
    )
    assert await claimed(daemon) == [["a3", "a4", "a5"]]
    assert shop.audit() == []


async def test_a_retry_waits_for_itself_alone(shop: Bench) -> None:
    """Its time is its own: it came long before."""
    daemon = await waiting_for_three(shop, wait=0.02)
    await shop.enqueue(arrival("a0", "a"))
    while not (claims := await daemon.claim("grouped", "w1")):
        await promote(shop)
    await daemon.exchange("grouped", [Retry(claims[0], 0.0, [], "hold")], [])
    assert await claimed(daemon) == [["a0"]]
    assert shop.audit() == []


async def test_others_beside_it_wait_for_nothing(bench: Bench) -> None:
    daemon = await waiting_for_three(bench)
    other = arrival("b0", "b")
    other.envelope.rule = "another"
    await bench.enqueue(arrival("a0", "a"), other, arrival("p0"))
    assert await claimed(daemon) == [["b0"]]
    assert ids(await daemon.claim("plain", "p1")) == ["p0"]


async def test_a_reload_takes_it_over(bench: Bench) -> None:
    """Fewer make a batch from then on, or nothing is waited for."""
    daemon = await waiting_for_three(bench)
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"))
    assert await claimed(daemon) == []
    bench.limits = Limits()
    await daemon.sessions.tell({}, {})
    assert await claimed(daemon) == [["a0", "a1"]]


async def test_in_a_pool_nothing_waits(bench: Bench) -> None:
    """Its workers pull one by one."""
    await waiting_for_three(bench)
    each = arrival("a0", "a")
    each.envelope.named_pool = "couriers"
    await bench.enqueue(each)
    assert (await Groups(bench.namespace).why("a")).state == "ready"


@pytest.mark.parametrize("number", [2, 3])
async def test_no_hop_takes_a_task_out_of_a_batch(bench: Bench, number: int) -> None:
    """Behind a task of another rule, whether it is full or not."""
    tasks = [arrival(f"a{n}", "a") for n in range(1 + number)]
    tasks[0].envelope.rule = "another"
    await bench.enqueue(*tasks)
    daemon = await waiting_for_three(bench)
    claim = await daemon.claim_one()
    assert await daemon.hop(claim) is None
    _, claims = await daemon.exchange("grouped", [Complete(claim)], ["w1"])
    found = [ids([each, *each.run]) for each in claims]
    assert found == ([["a1", "a2", "a3"]] if number == 3 else [])
