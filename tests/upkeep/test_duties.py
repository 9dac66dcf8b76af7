"""The loop of the duties, and when each of them looks again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupflow import App
from groupflow.broker.events import EventPublisher, Published
from groupflow.core.errors import BrokerUnavailable, GroupflowError, StoreUnavailable
from groupflow.core.events import Following, entry_of_done
from groupflow.core.measures import UpkeepMeasures
from groupflow.daemon import Daemon as Process
from groupflow.settings.model import Settings
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys
from groupflow.store.outbox import look
from groupflow.store.sessions import HandedOver, Session, Sessions
from groupflow.store.settlements import Complete
from groupflow.upkeep import expire, promote, reap, sweep
from groupflow.upkeep.duty import Duty
from groupflow.upkeep.expire import Expirer
from groupflow.upkeep.reap import Reaper
from groupflow.upkeep.relay import Relay
from tests.store.bench import Bench, Daemon, arrival, bury
from tests.turns import turns, turns_until


class Passes:
    """Passes of a duty, each with its answer."""

    def __init__(self, *answers: float | Exception) -> None:
        self.answers = list(answers)
        self.duty = Duty("promote", self, again=0.0)

    async def __call__(self) -> float:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def until_done(self) -> None:
        await turns_until(lambda: not self.answers)


async def test_a_duty_sleeps_as_long_as_its_pass_says_or_until_a_wake() -> None:
    passes = Passes(0.0, 3600.0, 3600.0)
    running = asyncio.create_task(passes.duty.run())
    await turns(10)
    assert len(passes.answers) == 1
    passes.duty.wake()  # which cuts one sleep short
    await passes.until_done()
    await turns(10)
    assert not running.done()
    running.cancel()


ERRORS = [
    (GroupflowError("no right to"), "warning"),
    (StoreUnavailable("away"), "debug"),  # which the log is told once for all
]


@pytest.mark.parametrize(("error", "level"), ERRORS)
async def test_a_pass_that_fails_is_tried_again_and_said(error: Exception, level: str) -> None:
    passes = Passes(error, 3600.0)
    with capture_logs() as logs:
        running = asyncio.create_task(passes.duty.run())
        await passes.until_done()
    assert [(each["event"], each["log_level"]) for each in logs] == [("promote.failed", level)]
    running.cancel()


async def test_an_unforeseen_error_ends_it() -> None:
    with pytest.raises(ZeroDivisionError):
        await Passes(ZeroDivisionError()).duty.run()


async def test_promote_sleeps_until_something_is_due(bench: Bench) -> None:
    """And never too long: a wake may have been lost."""
    measures = UpkeepMeasures()
    expirer = Expirer(bench.client, measures)
    assert await promote.promote(bench.client, measures, expirer) == promote.LONGEST
    await bench.enqueue(arrival("late", "g", delay=600.0))
    assert await promote.promote(bench.client, measures, expirer) == promote.LONGEST
    await bench.enqueue(arrival("soon", "h", delay=20.0))
    assert 0 < await promote.promote(bench.client, measures, expirer) <= 20.001
    assert measures.promoted == 0


async def test_what_expires_is_told_of_once_a_second(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it comes, and what a claim has ended too."""
    now, measures = 100.0, UpkeepMeasures()
    monkeypatch.setattr(expire, "monotonic", lambda: now)
    monkeypatch.setattr(expire, "AT_ONCE", 2)
    expirer = Expirer(bench.client, measures)
    with capture_logs() as logs:
        for number in (5, 1):
            ids = [f"{number}-{n}" for n in range(number)]
            await bench.enqueue(*(arrival(id_, "g", expires=60.0) for id_ in ids))
            bench.raw.zadd(bench.keys("expiring"), dict.fromkeys(ids, 1))
            if number == 1:
                assert await (await bench.daemon()).claim("grouped", "w1") == []
            await promote.promote(bench.client, measures, expirer)
        assert await promote.promote(bench.client, measures, expirer) == expire.TOLD
        now += expire.TOLD
        assert await promote.promote(bench.client, measures, expirer) == promote.LONGEST
    told = [each["count"] for each in logs if each["event"] == "task.expired"]
    assert (told, measures.expired) == ([5, 1], 6)


async def test_a_relay_makes_follow_up_tasks_once_while_rabbitmq_is_away(bench: Bench) -> None:
    """By any daemon: their ids are not known for ever. A server that lost them gets them again."""
    daemon, followed = await bench.daemon(), list[str]()
    other = await bench.daemon("d2")  # which may reach RabbitMQ
    await bench.enqueue(arrival("t0"))
    claim = await daemon.claim_one("plain")
    facts = (claim.task, {"reply_to": "amq.q"}, 0, 0.5, "d1", b"", "")
    told = entry_of_done(*facts, [Following("t", "{}", {})], {})
    await daemon.settle(Complete(claim, 0.5, told))
    before = bench.dump()

    async def follow(following: Sequence[tuple[str, Following]], made: dict[str, bool]) -> None:
        followed.extend(id_ for id_, _ in following)
        made |= {id_: True for id_, _ in following}

    def relay_of(one: Daemon) -> Relay:
        events = EventPublisher("amqp://127.0.0.1:1/", "", "test")
        return Relay(bench.client, one.session, events, frozenset(), follow, UpkeepMeasures())

    async def passes(*relays: Relay, times: int) -> None:
        for relay in relays:
            with pytest.raises(BrokerUnavailable):
                await relay.run_once()
            assert followed == ["t0/then/1"] * times

    first = relay_of(daemon)
    await passes(first, first, relay_of(other), first, times=1)
    bench.client._leave()
    await passes(first, times=1)
    bench.restore(before)
    bench.begin_epoch(daemon, other)
    bench.client._leave()
    await asyncio.gather(*(each.sessions.renew() for each in (daemon, other)))
    await passes(first, first, times=2)
    assert (await look(bench.client, other.session, 0)).is_ours


async def test_a_relay_tells_what_stands_in_front_of_a_task_that_can_t_be_made(
    bench: Bench,
) -> None:
    """And what is made meanwhile, as in another partition, is not made again."""
    daemon, asked = await bench.daemon(), list[list[str]]()
    await bench.enqueue(*(arrival(f"t{n}") for n in range(3)))
    then = [Following("t", "{}", {})] * 2
    for n, claim in enumerate(await daemon.claim("plain", "w1", "w2", "w3")):
        told = entry_of_done(claim.task, {}, 0, 0.5, "d1", b"", "", then if n else [], {})
        await daemon.settle(Complete(claim, 0.5, told))

    async def follow(following: Sequence[tuple[str, Following]], made: dict[str, bool]) -> None:
        asked.append([id_ for id_, _ in following])
        if len(asked) == 1:
            made["t1/then/2"] = True
            raise StoreUnavailable("away")
        made |= {id_: True for id_, _ in following}

    events, measures = EventPublisher("amqp://127.0.0.1:1/", "", "test"), UpkeepMeasures()
    relay = Relay(bench.client, daemon.session, events, frozenset(), follow, measures)
    with pytest.raises(StoreUnavailable):
        await relay.run_once()
    assert (bench.raw.llen(bench.keys("outbox")), measures.followed) == (2, 1)
    assert await relay.run_once() == 0.0
    assert await relay.run_once() == 1.0
    assert (bench.raw.llen(bench.keys("outbox")), measures.followed) == (0, 4)
    second = ["t2/then/1", "t2/then/2"]
    assert asked == [["t1/then/1", "t1/then/2", *second], ["t1/then/1", *second]]


async def test_a_relay_tells_nothing_again_behind_what_is_refused(bench: Bench) -> None:
    """It would tell all of it at each try."""
    daemon, asked = await bench.daemon(), list[set[int]]()
    await bench.enqueue(*(arrival(f"t{n}") for n in range(3)))
    for claim in await daemon.claim("plain", "w1", "w2", "w3"):
        told = entry_of_done(claim.task, {}, 0, 0.5, "d1", b"", "", [], {})
        await daemon.settle(Complete(claim, 0.5, told))

    class Refusing(EventPublisher):
        async def publish(self, _events: object, _told: object, published: Published) -> None:
            asked.append({*published.done})
            published.done |= [{1}, {0, 1}, set[int]()][len(asked) - 1]
            raise BrokerUnavailable("refused")

    events, names = Refusing("amqp://127.0.0.1:1/", "", "test"), frozenset[str]()
    follow: Any = None  # there is nothing to follow
    relay = Relay(bench.client, daemon.session, events, names, follow, UpkeepMeasures())
    for _ in range(3):
        with pytest.raises(BrokerUnavailable):
            await relay.run_once()
    assert asked == [set(), {1}, set()]  # two have gone by then, and one is left


@pytest.mark.parametrize("replicas", [0, 1])
async def test_a_relay_that_waits_for_replicas_holds_up_no_other_duty(replicas: int) -> None:
    daemon = Process(Settings.model_validate({"redis": {"replicas": replicas}}), App(), "d1")
    (partition,), (duties,) = daemon._partitions, daemon._duties
    relay = duties["relay"]
    assert isinstance(relay, Relay)
    assert (relay._client is partition.upkeep) == (not replicas)


async def test_a_sweep_goes_on_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "AT_ONCE", 2)
    daemon = await bench.daemon()
    for n in range(3):
        await bench.enqueue(arrival(f"t{n}"))
        await daemon.settle(bury(await daemon.claim_one("plain")))
    measures = UpkeepMeasures()
    pauses = [await sweep.sweep(bench.client, 3600.0, measures)]
    pauses += [await sweep.sweep(bench.client, 0.0, measures) for _ in range(2)]
    assert pauses == [sweep.PAUSE, 0.0, sweep.PAUSE]
    assert measures.swept == 3


LEASE = 8.0


class Reaped(Sessions):
    """A store that says what the test wants, and a reaper before it."""

    def __init__(self) -> None:
        super().__init__(StoreClient("redis://127.0.0.1:1", Keys("none")), Session("d1"), LEASE)
        self.failed_at = 1000.0
        self.wait: float | None = None
        self.passes = 0
        self.measures = UpkeepMeasures()
        self.shortest, since = LEASE, lambda: self.failed_at  # a reload may change it
        self.reaper = Reaper(self, LEASE, since, self.measures, lambda: self.shortest)

    async def reap(self) -> tuple[float | None, list[HandedOver]]:
        self.passes += 1
        taken = [HandedOver(f"t{n}", "g", n, "d2") for n in range(3)]
        # Of a worker that pulls, whose silence is no daemon's death.
        return self.wait, [*taken, HandedOver("t3", None, 3, "pool/couriers/w1")]


LOOKS = [
    # When the next lease may end, and as often as the shortest one ends: a worker that pulls
    # may come, and fall silent, behind its back.
    (None, LEASE, LEASE),
    (1.0, LEASE, 1.05),
    (LEASE, LEASE, LEASE),
    (LEASE + 1, LEASE, LEASE),
    (None, 2.0, 2.0),
    (0.0, LEASE, reap.AGAIN),  # a pass takes so many, and there is more to take
]


@pytest.mark.parametrize(("wait", "shortest", "pause"), LOOKS)
async def test_its_next_look(wait: float | None, shortest: float, pause: float) -> None:
    reaped = Reaped()
    reaped.wait, reaped.shortest = wait, shortest
    assert await reaped.reaper.run_once() == pause
    assert (reaped.passes, reaped.measures.taken_over) == (1, 3)


async def test_an_outage_it_saw_gives_all_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the moment."""
    now = [1000.0]
    monkeypatch.setattr(reap, "monotonic", lambda: now[0])
    reaped = Reaped()
    now[0] = reaped.failed_at = 1100.0
    assert await reaped.reaper.run_once() == LEASE
    now[0] += LEASE - 1.0
    assert await reaped.reaper.run_once() == 1.0
    assert reaped.passes == 0
    now[0] += 1.0
    await reaped.reaper.run_once()
    assert reaped.passes == 1
