"""Exchanges: what travels together, and that no worker waits for what could be claimed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from time import monotonic

import pytest

from groupflow.core.errors import StoreUnavailable
from groupflow.flow import exchange as module
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.exchange import Exchanger
from groupflow.flow.prefetch import Asked
from groupflow.flow.slots import Exchange, Slot, Slots
from groupflow.flow.workforce import Holding
from groupflow.operate.groups import Groups
from groupflow.servers import RedisServer
from groupflow.store.claims import Claims, ExchangeReply
from groupflow.store.settlements import Complete, Settlement
from tests.flow.dispatchers import (
    ListedClaims,
    Slow,
    dispatcher_of,
    handle,
    run_once,
    serving,
    work,
)
from tests.store.bench import Bench, Daemon, arrival


async def _drain(bench: Bench, claims: ListedClaims, workers: int, tasks: int) -> list[str]:
    """Run workers, without a single wake, until so many tasks are settled."""
    dispatcher, ran, chance = dispatcher_of(claims), list[str](), Random(7)
    async with serving(dispatcher):
        running = [
            asyncio.create_task(work(dispatcher, f"w-{n}", ran, chance)) for n in range(workers)
        ]
        while bench.count("done") < tasks:
            await asyncio.sleep(0.01)
        dispatcher.stop_claiming()
        await asyncio.wait(running)
    return ran


@pytest.mark.parametrize("workers", [1, 2, 5, 16])
@pytest.mark.parametrize("groups", [1, 3, 40])
async def test_all_is_claimed_without_a_wake(bench: Bench, workers: int, groups: int) -> None:
    """An exchange claims what it frees by settling: no task waits for a wake."""
    tasks = [arrival(f"t{n}", f"g{n % groups}") for n in range(200)]
    await bench.enqueue(*tasks)
    claims = ListedClaims(await bench.daemon())
    ran = await _drain(bench, claims, workers, 200)
    assert len(ran) == len(set(ran)) == 200
    for group in range(groups):
        numbers = [int(id_[1:]) for id_ in ran if int(id_[1:]) % groups == group]
        assert numbers == sorted(numbers)


async def test_a_hot_group_costs_one_small_exchange_a_task(bench: Bench) -> None:
    """While only one group has work, the idle don't ask again and again."""
    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(100)))
    claims = ListedClaims(await bench.daemon())
    assert len(await _drain(bench, claims, 16, 100)) == 100
    asked = sum(len(idle) for _, idle, _ in claims.exchanges)
    assert asked < 100 + 4 * 16


async def test_a_slot_is_never_asked_ahead_of_its_settlement(bench: Bench) -> None:
    """Its last claim would be handed out again, and run twice."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n % 20}") for n in range(300)))
    claims = ListedClaims(await bench.daemon())
    ran = await _drain(bench, claims, 8, 300)
    assert len(set(ran)) == len(ran) == 300
    holds: set[str] = set()
    for settled, idle, served in claims.exchanges:
        assert not set(idle) & holds - settled
        holds = holds - settled | served


@pytest.mark.parametrize("seed", range(4))
async def test_lost_replies_cost_nothing(bench: Bench, seed: int) -> None:
    """Settlements and claims whose reply is lost go into another exchange, and count once."""
    chance = Random(seed)
    await bench.enqueue(*(arrival(f"t{n}", f"g{n % 30}") for n in range(150)))
    claims = ListedClaims(await bench.daemon())
    claims.lose = {0} | {n for n in range(60) if chance.random() < 0.15}
    ran = await _drain(bench, claims, 6, 150)
    assert len(ran) == len(set(ran)) == 150


async def test_what_a_lost_reply_gave_is_handed_back_where_all_workers_went(bench: Bench) -> None:
    """The store says that it runs, but no worker is left to run it, so it has to be found out."""
    await bench.enqueue(arrival("t0", "a"))
    claims = ListedClaims(await bench.daemon())
    claims.lose = {0}
    dispatcher, ran = dispatcher_of(claims), list[str]()
    worker = asyncio.create_task(work(dispatcher, "w-0", ran, Random(1)))
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable):
        await run_once(dispatcher)
    dispatcher.retire({"w-0"})
    await worker
    assert bench.count("running_grouped") == 1
    async with serving(dispatcher):
        while bench.count("running_grouped"):
            await asyncio.sleep(0.01)
    assert ran == []
    assert bench.lane("a") == ["t0"]


async def test_a_worker_that_goes_first_has_its_settlement_written(bench: Bench) -> None:
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(4)))
    claims = ListedClaims(await bench.daemon())
    dispatcher = dispatcher_of(claims)
    worker = asyncio.create_task(dispatcher.next("w-0"))
    await asyncio.sleep(0)
    await run_once(dispatcher)
    slot = await worker
    assert slot is not None
    dispatcher.retire({"w-0"})
    worker = asyncio.create_task(dispatcher.next("w-0", slot, Complete(slot.held)))
    await asyncio.sleep(0.01)
    assert not worker.done()
    await run_once(dispatcher)
    assert await worker is None
    assert bench.count("done") == 1


async def test_a_claim_that_ran_late_comes_to_light(bench: Bench) -> None:
    """A call times out, its workers go on, and its bytes arrive when its slots are long free."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(100)))
    claims = ListedClaims(await bench.daemon())
    dispatcher, slow = dispatcher_of(claims), Slow()
    async with serving(dispatcher):
        workers = [asyncio.create_task(handle(dispatcher, f"w-{n}", 100, slow)) for n in range(4)]
        while bench.count("done") < 100:
            await asyncio.sleep(0.01)
        names = sorted({name for _, idle, _ in claims.exchanges for name in idle})
        await bench.enqueue(*(arrival(f"u{n}", f"h{n}") for n in range(len(names))))
        await Claims.exchange(claims, [], names)
        while bench.count("done") < 100 + len(names):
            dispatcher.wake()
            await asyncio.sleep(0.01)
        dispatcher.stop_claiming()
        await asyncio.wait(workers)
    assert len(names) > 4


async def test_nothing_is_claimed_without_the_lease(bench: Bench) -> None:
    """What is finished is handed in all the same: whether it still counts is the store's to say."""
    await bench.enqueue(arrival("t0", "a"), arrival("t1", "b"))
    claims, lease = ListedClaims(await bench.daemon()), {"holds": True}
    dispatcher = Dispatcher()
    exchanger = Exchanger(dispatcher, claims, lambda: lease["holds"])
    worker = asyncio.create_task(dispatcher.next("w-0"))
    await asyncio.sleep(0)
    await exchanger.run_once()
    slot = await worker
    assert slot is not None
    lease["holds"] = False
    worker = asyncio.create_task(dispatcher.next("w-0", slot, Complete(slot.held)))
    await asyncio.sleep(0)
    await exchanger.run_once()
    assert claims.exchanges[-1] == ({slot.name}, [], set())
    assert (bench.count("done"), bench.count("running_grouped")) == (1, 0)
    lease["holds"] = True
    await exchanger.run_once()
    assert await worker is not None


async def test_one_hall_is_served_by_any_number_of_stores(redis_server: RedisServer) -> None:
    """Each with a session of its own; no worker waits while any of them has something."""
    benches = [Bench(redis_server.url) for _ in range(3)]
    try:
        stores = [ListedClaims(await each.daemon()) for each in benches]
        for n, each in enumerate(benches):
            await each.enqueue(*(arrival(f"t{n}-{m}", f"g{m % 7}") for m in range(60)))
        dispatcher, ran, chance = dispatcher_of(*stores), list[str](), Random(7)
        async with serving(dispatcher):
            workers = [
                asyncio.create_task(work(dispatcher, f"w-{n}", ran, chance)) for n in range(5)
            ]
            while sum(each.count("done") for each in benches) < 180:
                await asyncio.sleep(0.01)
            dispatcher.exchangers[0].close_session()  # of one store alone
            await benches[1].enqueue(arrival("last", "g"))
            dispatcher.exchangers[1].wake()
            while benches[1].count("done") < 61:
                await asyncio.sleep(0.01)
            dispatcher.stop_claiming()
            await asyncio.wait(workers)
        assert len(ran) == len(set(ran)) == 181
        assert [each.judge_drained() for each in benches[1:]] == [[], []]
    finally:
        for each in benches:
            await each.close()


async def test_each_free_slot_is_asked_in_its_turn(bench: Bench) -> None:
    """So a claim that only the store knows of comes to light."""
    slots = Slots(Exchanger(Dispatcher(), ListedClaims(await bench.daemon())), "grouped")

    def ask(number: int) -> list[Slot]:
        chosen = slots.choose([], number)
        slots.arrive(Exchange(slots, [], chosen, Asked(number, 0, False), 0.0), [])
        return chosen

    ask(6)
    asked = [slot.name for _ in range(3) for slot in ask(2)]
    assert sorted(asked) == [f"grouped-{n}" for n in range(6)]


async def test_all_free_slots_are_asked_where_settles_may_be_lost(bench: Bench) -> None:
    """Nothing else would bring to light what the store holds under them again; and those on their
    way at that time may have been answered before."""
    slots = Slots(Exchanger(Dispatcher(), ListedClaims(await bench.daemon())), "grouped")

    def set_out(number: int, settling: list[Slot]) -> Exchange:
        asking = slots.choose(settling, number)
        return Exchange(slots, settling, asking, Asked(number, 0, False), monotonic())

    slots.arrive(set_out(4, []), [])
    under_way = set_out(1, [])
    slots.doubt()
    doubted = slots.choose([], 0)
    assert sorted(slot.name for slot in doubted) == ["grouped-1", "grouped-2", "grouped-3"]
    slots.arrive(under_way, [])
    assert slots.choose([], 0) == under_way.asking
    slots.arrive(Exchange(slots, [], doubted, Asked(3, 0, False), monotonic()), [])
    assert slots.choose([], 0) == []


async def test_a_claim_that_ran_late_comes_to_light_with_the_next_renewal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel sends again what was written on a connection that has long been given up."""
    monkeypatch.setattr(module, "LATE", 0.0)
    claims = ListedClaims(await bench.daemon())
    claims.lose = {0}
    dispatcher, ran = dispatcher_of(claims), list[str]()
    holding = Holding({"grouped": dispatcher.exchangers[0]}, list, lambda: None)
    async with serving(dispatcher):
        worker = asyncio.create_task(work(dispatcher, "w-0", ran, Random(1)))
        while len(claims.exchanges) < 2:
            await asyncio.sleep(0.01)
        (slot,) = claims.exchanges[0][1]
        await bench.enqueue(arrival("t0", "a"))
        answer = await Claims.exchange(claims, [], [slot])
        assert [claim.task.id for claim in answer.claims] == ["t0"]
        assert ran == []
        holding.claimable(0, 0)
        while bench.count("done") < 1:
            await asyncio.sleep(0.01)
        assert ran == ["t0"]
        asked = len(claims.exchanges)
        holding.claimable(0, 0)  # by now it would have come
        await asyncio.sleep(0.05)
        assert len(claims.exchanges) == asked
        dispatcher.stop_claiming()
        await worker


class HeldClaims(ListedClaims):
    """The reply of each exchange is kept back until there is a word."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon)
        self.go = asyncio.Event()
        self.held = 0

    async def exchange(
        self, settlements: Sequence[Settlement], slots: Sequence[str]
    ) -> ExchangeReply:
        answer = await super().exchange(settlements, slots)
        self.held += 1
        await self.go.wait()
        return answer


async def test_a_hold_hands_back_what_has_not_begun(bench: Bench) -> None:
    """What lies ready, and what an exchange in flight brings; the store decides again."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(4)))
    claims = HeldClaims(await bench.daemon())
    dispatcher, ran = dispatcher_of(claims), list[str]()
    [exchanger] = dispatcher.exchangers
    async with serving(dispatcher):
        worker = asyncio.create_task(work(dispatcher, "w-0", ran, Random(1)))
        while claims.held < 1:
            await asyncio.sleep(0.01)
        await Groups(bench.namespace).pause("g0", "me")
        exchanger.hold_back({"g0"})
        claims.go.set()
        while bench.count("done") < 3:
            await asyncio.sleep(0.01)
        assert ran == ["t1", "t2", "t3"]
        dispatcher.stop_claiming()
        await worker
    assert bench.lane("g0") == ["t0"]


@pytest.mark.parametrize("hold", [{"g1"}, None])
async def test_a_hold_hands_back_what_lies_ready(bench: Bench, hold: set[str] | None) -> None:
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(4)))
    dispatcher = dispatcher_of(ListedClaims(await bench.daemon()))
    [exchanger] = dispatcher.exchangers
    exchanger.prefetch.claims = 3
    worker = asyncio.create_task(dispatcher.next("w-0"))
    await asyncio.sleep(0)
    await run_once(dispatcher)
    slot = await worker
    assert slot is not None
    assert dispatcher.ready > 0
    ready = dispatcher.ready
    exchanger.hold_back({"another"})
    assert dispatcher.ready == ready
    exchanger.hold_back(hold)
    assert dispatcher.ready == 0
    assert slot.held.task.id == "t0"
    await run_once(dispatcher)
    assert bench.count("running_grouped") == 1 + dispatcher.ready
    bench.events.clear()


async def test_a_wake_that_overtakes_a_reply_counts(bench: Bench) -> None:
    """All there is room for is asked for, the script found nothing, and a task came behind it."""
    claims = HeldClaims(await bench.daemon())
    dispatcher, ran = dispatcher_of(claims), list[str]()
    async with serving(dispatcher):
        worker = asyncio.create_task(work(dispatcher, "w-0", ran, Random(1)))
        while not claims.held:
            await asyncio.sleep(0.001)
        await bench.enqueue(arrival("t0", "a"))
        dispatcher.wake()
        await asyncio.sleep(0.01)  # it finds no room to ask for more
        claims.go.set()
        while bench.count("done") < 1:
            await asyncio.sleep(0.01)
        dispatcher.stop_claiming()
        await worker


async def test_workers_that_are_wanted_again_go_on(bench: Bench) -> None:
    """They were to go, and waited for their settlement to be written when that was taken back."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(20)))
    claims = HeldClaims(await bench.daemon())
    claims.go.set()
    dispatcher, slow = dispatcher_of(claims), Slow()
    async with serving(dispatcher):
        workers = [asyncio.create_task(handle(dispatcher, f"w-{n}", 0, slow)) for n in range(4)]
        while slow.running != 4:
            await asyncio.sleep(0.001)
        dispatcher.retire({f"w-{n}" for n in range(4)})
        claims.go.clear()
        held = claims.held
        slow.may_end.set()
        while claims.held == held:
            await asyncio.sleep(0.001)
        dispatcher.retire(set())
        claims.go.set()
        while bench.count("done") < 20:
            dispatcher.wake()
            await asyncio.sleep(0.01)
        dispatcher.stop_claiming()
        await asyncio.wait(workers)


async def test_claims_are_made_ahead_of_quick_workers_and_handed_back_by_slow_ones(
    bench: Bench,
) -> None:
    """What lies ready while all workers are busy goes back, and is for anybody to claim."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(400)))
    claims, slow = ListedClaims(await bench.daemon()), Slow()
    dispatcher = dispatcher_of(claims)
    async with serving(dispatcher):
        workers = [asyncio.create_task(handle(dispatcher, f"w-{n}", 300, slow)) for n in range(4)]
        while bench.count("running_grouped") != 4 or slow.running != 4:
            await asyncio.sleep(0.01)
        held = max(len(served) for _, _, served in claims.exchanges)
        assert held > 4  # that many at once for four workers: some were ahead
        assert bench.count("done") == 300
        assert (await bench.status()).queued_grouped == 96
        slow.may_end.set()
        while bench.count("done") < 400:
            await asyncio.sleep(0.01)
        dispatcher.stop_claiming()
        await asyncio.wait(workers)
    assert slow.most == 4
    assert bench.judge_drained() == []


async def test_nothing_is_claimed_ahead_beside_what_may_have_ended_a_daemon(bench: Bench) -> None:
    """What lies ready when it does so again would be one crash richer, and buried in the end."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(80)))
    crasher, slots = await bench.daemon("crasher"), [f"w-{n}" for n in range(80)]
    held = await Claims(bench.client, crasher.session, "grouped").exchange([], slots)
    assert len(held.claims) == 80
    await crasher.register()
    bench.with_faults = True
    await bench.enqueue(*(arrival(f"u{n}", f"h{n}") for n in range(300)))
    claims, slow = ListedClaims(await bench.daemon()), Slow()
    dispatcher = dispatcher_of(claims)
    async with serving(dispatcher):
        workers = [asyncio.create_task(handle(dispatcher, f"w-{n}", 300, slow)) for n in range(4)]
        while bench.count("done") < 380:
            await asyncio.sleep(0.01)
        dispatcher.stop_claiming()
        await asyncio.wait(workers)
    served = [len(served) for _, _, served in claims.exchanges]
    beside = next(n for n in range(len(served)) if sum(served[:n]) >= 80)
    assert max(served[:beside]) <= 4
    assert max(served) > 4


async def test_nothing_is_claimed_ahead_while_the_other_pool_runs_a_suspect(bench: Bench) -> None:
    """A crash would take along what lies ready in either pool."""
    await bench.enqueue(arrival("s", "s"))
    crasher = await bench.daemon("crasher")
    await Claims(bench.client, crasher.session, "grouped").exchange([], ["w-0"])
    await crasher.sessions.leave()
    bench.with_faults = True
    daemon = await bench.daemon()
    (quarantined,) = await daemon.claim("grouped", "grouped-0", "grouped-1")
    await bench.enqueue(*(arrival(f"t{n}") for n in range(300)))
    claims = ListedClaims(daemon, "plain")
    dispatcher = dispatcher_of(claims)
    async with serving(dispatcher):
        workers = [asyncio.create_task(handle(dispatcher, f"w-{n}", 600, Slow())) for n in range(4)]
        while bench.count("done") < 300:
            await asyncio.sleep(0.01)
        beside = len(claims.exchanges)
        assert max(len(served) for _, _, served in claims.exchanges) <= 4
        await daemon.complete(quarantined)
        await bench.enqueue(*(arrival(f"u{n}") for n in range(300)))
        dispatcher.wake()
        while bench.count("done") < 601:
            await asyncio.sleep(0.01)
        dispatcher.stop_claiming()
        await asyncio.wait(workers)
    assert max(len(served) for _, _, served in claims.exchanges[beside:]) > 4


async def test_workers_go_on_beside_a_suspect(bench: Bench) -> None:
    """It comes alone, and without a wake all others are claimed right behind it."""
    await bench.enqueue(arrival("s", "s"))
    crasher = await bench.daemon("crasher")
    await Claims(bench.client, crasher.session, "grouped").exchange([], ["w-0"])
    await crasher.sessions.leave()
    bench.with_faults = True
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(8)))
    dispatcher = dispatcher_of(ListedClaims(await bench.daemon()))
    async with serving(dispatcher):
        held = await asyncio.gather(*(dispatcher.next(f"w-{n}") for n in range(4)))
        assert sorted(slot.held.task.id for slot in held if slot) == ["s", "t0", "t1", "t2"]
        for slot in held:
            if slot is not None and slot.held.task.crashes == 0:
                beside = await dispatcher.next("w-9", slot, Complete(slot.held))
                assert beside is not None
                assert beside.held.task.crashes == 0


async def test_a_stop_hands_back_what_lies_ready(bench: Bench) -> None:
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(400)))
    claims, slow = ListedClaims(await bench.daemon()), Slow()
    dispatcher = dispatcher_of(claims)
    async with serving(dispatcher):
        workers = [asyncio.create_task(handle(dispatcher, f"w-{n}", 300, slow)) for n in range(4)]
        while slow.running != 4 or not dispatcher.ready:
            await asyncio.sleep(0)
        dispatcher.stop_claiming()
        assert not dispatcher.ready
        slow.may_end.set()
        await asyncio.wait(workers)
    assert bench.count("running_grouped") == 0
    assert bench.count("done") == 304


async def test_a_session_that_is_lost_takes_all_claims_along(bench: Bench) -> None:
    """Those that lie ready, those in workers' hands, and those that are on their way."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(400)))
    bench.with_faults = True
    daemon = await bench.daemon()
    claims, slow = ListedClaims(daemon), Slow()
    dispatcher = dispatcher_of(claims)
    async with serving(dispatcher):
        workers = [asyncio.create_task(handle(dispatcher, f"w-{n}", 300, slow)) for n in range(4)]
        while slow.running != 4:
            await asyncio.sleep(0)
        dispatcher.exchangers[0].close_session()
        assert not dispatcher.ready
        lost = dispatcher.measures.lost
        await daemon.register()
        dispatcher.exchangers[0].open_session()
        slow.may_end.set()  # four of them settle what isn't theirs any more
        while bench.count("done") < 400:
            await asyncio.sleep(0.01)
        dispatcher.stop_claiming()
        await asyncio.wait(workers)
    assert lost
    assert dispatcher.measures.lost == lost + 4
    assert bench.count("running_grouped") == 0
