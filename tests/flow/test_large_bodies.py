"""Exchanges whose replies don't all come: large bodies, a slow way, a stop in between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from groupflow.core.errors import StoreUnavailable
from groupflow.flow import prefetch as prefetch_module
from groupflow.flow import slots as slots_module
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.exchange import Exchanger
from groupflow.flow.prefetch import AT_ONCE
from groupflow.store.claims import ExchangeReply
from groupflow.store.settlements import Complete, Settlement
from tests.deadlines import deadline
from tests.flow.dispatchers import (
    ListedClaims,
    dispatcher_of,
    run_once,
    serving,
    work,
)
from tests.store.bench import Bench, Daemon, arrival


class NarrowClaims(ListedClaims):
    """No reply comes that has more claims than fit; those claims are made all the same."""

    def __init__(self, daemon: Daemon, fits: int) -> None:
        super().__init__(daemon)
        self.fits = fits

    async def exchange(
        self, settlements: Sequence[Settlement], slots: Sequence[str]
    ) -> ExchangeReply:
        answer = await super().exchange(settlements, slots)
        if len(answer.claims) > self.fits:
            raise StoreUnavailable("its body didn't come in time")
        return answer


@pytest.mark.parametrize("fits", [1, 3])
async def test_claims_that_do_not_fit_into_one_answer_are_asked_for_in_portions(
    bench: Bench, fits: int
) -> None:
    """All of them were asked for at once, again and again, and no answer ever came."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(40)))
    claims = NarrowClaims(await bench.daemon(), fits)
    dispatcher, ran, chance = dispatcher_of(claims), list[str](), Random(7)
    async with serving(dispatcher):
        workers = [asyncio.create_task(work(dispatcher, f"w-{n}", ran, chance)) for n in range(16)]
        while bench.count("done") < 40:
            await asyncio.sleep(0.01)
        dispatcher.stop_claiming()
        await asyncio.wait(workers)
    assert len(ran) == len(set(ran)) == 40
    assert bench.judge_drained() == []


async def test_the_portion_halves_with_each_failure_and_grows_again(bench: Bench) -> None:
    claims = ListedClaims(await bench.daemon())
    dispatcher, ran = dispatcher_of(claims), list[str]()
    workers = [asyncio.create_task(work(dispatcher, f"w-{n}", ran, Random(n))) for n in range(16)]
    await asyncio.sleep(0)
    claims.lose = set(range(5))
    for _ in range(5):
        with pytest.raises(StoreUnavailable):
            await run_once(dispatcher)
    for _ in range(3):
        await run_once(dispatcher)
    asked = [len(slots) for _, slots, _ in claims.exchanges]
    assert asked == [8, 4, 2, 1, 1, 1, 2, 3]
    assert len({name for _, slots, _ in claims.exchanges for name in slots}) <= 16
    [exchanger] = dispatcher.exchangers
    for _ in range(30):
        exchanger.wake()
        await run_once(dispatcher)
    assert exchanger.prefetch.portion == AT_ONCE
    dispatcher.stop_claiming()
    await run_once(dispatcher)
    await asyncio.wait(workers)


async def test_who_settles_more_than_a_portion_claims_the_rest_too(bench: Bench) -> None:
    """No other call comes for what it frees, and no more than a portion is asked for at once."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n % 8}") for n in range(160)))
    claims = ListedClaims(await bench.daemon())
    dispatcher, ran, chance = dispatcher_of(claims), list[str](), Random(3)
    [exchanger] = dispatcher.exchangers
    async with serving(dispatcher):
        workers = [asyncio.create_task(work(dispatcher, f"w-{n}", ran, chance)) for n in range(8)]
        while bench.count("done") < 160:
            exchanger.prefetch.portion = 1
            await asyncio.sleep(0)
        dispatcher.stop_claiming()
        await asyncio.wait(workers)
    assert len(ran) == len(set(ran)) == 160


async def test_large_bodies_are_not_claimed_ahead(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However quick the handlers are: what lies ready is bounded by its bytes."""
    size = len(arrival("t100", "g").envelope.body)
    monkeypatch.setattr(prefetch_module, "PREFETCH_BYTES", 3 * size)
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(100, 400)))
    claims = ListedClaims(await bench.daemon())
    dispatcher, ran = dispatcher_of(claims), list[str]()
    [exchanger] = dispatcher.exchangers
    most = 0

    async def quick(name: str) -> None:
        nonlocal most
        slot, settlement = None, None
        while (slot := await dispatcher.next(name, slot, settlement)) is not None:
            ran.append(slot.held.task.id)
            slot.source.prefetch.handled(1e-6)
            most = max(most, exchanger.held)
            await asyncio.sleep(0)
            settlement = Complete(slot.held)

    async with serving(dispatcher):
        workers = [asyncio.create_task(quick(f"w-{n}")) for n in range(4)]
        while bench.count("done") < 300:
            await asyncio.sleep(0.01)
        dispatcher.stop_claiming()
        await asyncio.wait(workers)
    assert len(ran) == len(set(ran)) == 300
    assert 4 < most <= 4 + 3


@pytest.mark.parametrize("came_whole", [True, False])
async def test_what_is_large_is_settled_a_few_at_a_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, came_whole: bool
) -> None:
    """Redis frees each body while the script goes on, and answers no other client meanwhile."""
    size = len(arrival("t0", "g0").envelope.body)
    monkeypatch.setattr(slots_module, "FREED", 3 * size - 1)
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(8)))
    claims = ListedClaims(await bench.daemon())
    dispatcher, together = dispatcher_of(claims), asyncio.Barrier(8)

    async def large(name: str) -> None:
        slot = await dispatcher.next(name, None, None)
        assert slot is not None
        if not came_whole:
            slot.held.fetched = size
            slot.held.let_go()
        await together.wait()
        await dispatcher.next(name, slot, Complete(slot.held))

    async with serving(dispatcher):
        workers = [asyncio.create_task(large(f"w-{n}")) for n in range(8)]
        while bench.count("done") < 8:
            await asyncio.sleep(0.01)
        dispatcher.stop_claiming()
        await asyncio.wait(workers)
    settled = [len(settlements) for settlements, _, _ in claims.exchanges if settlements]
    assert (sum(settled), max(settled)) == (8, 3)


async def test_a_stop_finds_out_what_a_lost_reply_gave(bench: Bench) -> None:
    """It never began: handed over at the end of the session, it would count as a crash."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(6)))
    daemon = await bench.daemon()
    claims = ListedClaims(daemon)
    claims.lose = {0}
    dispatcher, ran = dispatcher_of(claims), list[str]()
    workers = [asyncio.create_task(work(dispatcher, f"w-{n}", ran, Random(n))) for n in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable):
        await run_once(dispatcher)
    assert bench.count("running_grouped") > 0
    dispatcher.stop_claiming()
    claims.lose = {1}  # the next one is lost too, during the stop
    async with serving(dispatcher):
        await asyncio.wait(workers)
    assert ran == []
    assert bench.count("running_grouped") == 0
    await daemon.sessions.leave()
    found = await (await bench.daemon("d2")).claim("grouped", *(f"v-{n}" for n in range(6)))
    assert [claim.task.crashes for claim in found] == [0] * 6


class AwayClaims(ListedClaims):
    """No reply comes, from the first exchange on."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon)
        self.tried = asyncio.Semaphore(0)

    async def exchange(
        self, settlements: Sequence[Settlement], slots: Sequence[str]
    ) -> ExchangeReply:
        if not (settlements or slots):
            return await super().exchange(settlements, slots)
        self.tried.release()
        raise StoreUnavailable("it is away")


@pytest.mark.parametrize("how", ["lease", "session"])
async def test_a_stop_ends_where_nothing_can_be_found_out(bench: Bench, how: str) -> None:
    """The store is away until the lease is over, or the session gone: others take it from there."""
    claims, lease = AwayClaims(await bench.daemon()), {"holds": True}
    dispatcher, ran = Dispatcher(), list[str]()
    exchanger = Exchanger(dispatcher, claims, lambda: lease["holds"])
    run = asyncio.create_task(exchanger.run())
    try:
        async with asyncio.timeout(deadline()):
            worker = asyncio.create_task(work(dispatcher, "w-0", ran, Random(1)))
            await claims.tried.acquire()
            dispatcher.stop_claiming()
            for _ in range(5):
                await claims.tried.acquire()  # it is asked again and again
            assert not worker.done()
            if how == "lease":
                lease["holds"] = False
            else:
                exchanger.close_session()
            await worker
    finally:
        run.cancel()
        await asyncio.wait([run])


async def test_an_exchange_whose_answer_is_coming_does_not_stand_still(bench: Bench) -> None:
    """The supervisor would end the daemon in the middle of a large answer."""

    class Slow(ListedClaims):
        extended = 0.0
        sent, may_come = asyncio.Event(), asyncio.Event()

        async def exchange(
            self, settlements: Sequence[Settlement], slots: Sequence[str]
        ) -> ExchangeReply:
            self.sent.set()
            await self.may_come.wait()
            return await super().exchange(settlements, slots)

    claims = Slow(await bench.daemon())
    dispatcher, ran = dispatcher_of(claims), list[str]()
    [exchanger] = dispatcher.exchangers
    worker = asyncio.create_task(work(dispatcher, "w-0", ran, Random(1)))
    async with serving(dispatcher):
        await claims.sent.wait()
        assert exchanger.seconds_in_exchange() > 0
        claims.extended = float("inf")
        assert exchanger.seconds_in_exchange() == 0
        claims.may_come.set()
        dispatcher.stop_claiming()
        await worker
