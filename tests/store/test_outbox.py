"""What is told of ends: written with them, once, and read by one daemon at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from groupflow.core.events import ENDS, Told, entry_of_done
from groupflow.core.limits import Limit, Limits
from groupflow.operate.redrive import Redriver
from groupflow.operate.tasks import Tasks
from groupflow.settings.model import Settings
from groupflow.store.clock import microseconds
from groupflow.store.given import Claim
from groupflow.store.outbox import Outbox, look
from groupflow.store.scripts import Telling, Verb
from groupflow.store.settlements import Complete, Proceed
from tests.store.actors import Worker, pooled, with_envelope
from tests.store.bench import Bench, Daemon, arrival, bury, ids
from tests.store.story import named, play, stories
from tests.store.task_state import letter

MOST = 2000  # bytes that may wait


@pytest.fixture
async def shop(store_server: Any) -> AsyncIterator[Bench]:
    """A store that tells all ends; after each test its structure is sound."""
    async with Bench(store_server.url, telling=Telling(frozenset(ENDS), MOST, MOST)) as shop:
        yield shop
        assert shop.audit() == []


def done(claim: Claim, result: bytes = b"") -> Complete:
    """A task is done, and that is told."""
    known = (claim.task, claim.origin, claim.redriven)
    told = entry_of_done(*known, 0.5, "d1", result, "", (), {})
    return Complete(claim, 0.5, told, b'{"result":%b}' % result if result else b"")


def told(shop: Bench) -> list[Told]:
    """What lies in the outbox."""
    entries: Any = shop.raw.lrange(shop.keys("outbox"), 0, -1)
    return [Told.of(entry) for entry in entries]


def ends(shop: Bench) -> str:
    """The same in short, in its order."""
    return " ".join(f"{each.event}:{each.facts['id']}" for each in told(shop))


ENDINGS = named("""
    a burial:: take a0 | claim a0 | bury a0 | tells dead:a0
    one that fails again after a redrive:: take a0 | claim a0 | bury a0 | redrive a0 | claim a0
        bury a0 | tells dead:a0 dead:a0
    what can't be a task:: take a0! | tells dead:a0
    what finds its group full:: take a0<1 a1<1 | tells dead:a1
    a cancel of what waits:: take a0 a1 p0 | cancel a1 | cancel p0 | tells cancelled:a1 cancelled:p0
    a cancel of what runs:: take a0 | claim a0 | cancel a0 requested | release a0
        tells cancelled:a0
    cancels of many:: take a0 a1 | cancel_all group a 2 | tells cancelled:a1 cancelled:a0
    what a claim finds too late:: take a0? | overdue a0 | none | tells expired:a0
    what is too late:: take a0? p0? | overdue a0 p0 | expired 2 | tells expired:a0 expired:p0
    what a newer one replaces:: take a0^ | take a1^ | tells superseded:a0
    what an operator drops:: take a0 p0 | drop a0 | drop p0 | tells dropped:a0 dropped:p0
    a dead letter that an operator drops:: take a0! | drop a0 | tells dead:a0
    what goes back or waits again:: take a0 a1 | claim a0 | release a0 | claim a0 | retry a0
        tells
""")


@stories(ENDINGS)
async def test_each_end_is_told(shop: Bench, story: str) -> None:
    """By the script that it ends with."""
    steps, _, wanted = story.rpartition("tells")
    await play(shop, steps.rstrip(" |\n"))
    assert sorted(ends(shop).split()) == sorted(wanted.split())


async def test_an_end_says_whose_and_how(shop: Bench) -> None:
    """Facts of the message, and of the attempts; numbers are times, and rise."""
    daemon = await shop.daemon()
    origin = {"app": "crm", "correlation_id": "c1"}
    await shop.enqueue(with_envelope(arrival("t0", "g"), tenant="7", origin=origin))
    claim = await daemon.claim_one()
    error = {"attempt": 1, "error": "E", "message": "m", "seconds": 0.25, "daemon": "d1"}
    await daemon.settle(replace(bury(claim, "no such table"), errors=[error]))
    [one] = told(shop)
    body = orjson.loads(one.body)
    assert body == {
        "event": "dead", "id": "t0", "type": "t", "app": "crm", "tenant": "7", "group": "g",
        "at": pytest.approx(shop.server_time() / 1e6, abs=60), "seq": one.number, "attempts": 1,
        "crashes": 0, "seconds": 0.25, "daemon": "d1", "reason": "no such table", "result": None,
    }  # fmt: skip
    assert one.facts["correlation_id"] == "c1"


@pytest.mark.parametrize("size", [0, 70_000], ids=["small", "large"])
async def test_what_died_at_the_door_says_who_asked(shop: Bench, size: int) -> None:
    """After its redrive, by which it comes to have an application too."""
    group = {"name": "crm", "app": "crm", "key": "{id}"}
    rules = {"fields": {"app": "app"}, "groups": [group], "events": {"exchange": "ends"}}
    redriver = Redriver(Settings.model_validate(rules), shop.namespace)
    asks = {"correlation_id": "c1", "reply_to": "answers"}
    for id_ in ("a", "b"):
        body = orjson.dumps({"app": "crm", "id": id_, "note": "x" * size})
        await shop.enqueue(with_envelope(arrival(id_, dead="no"), body=body, origin=asks))
        assert await redriver.redrive(await letter(shop, id_))
    shop.raw.delete(shop.keys("outbox"))
    shop.raw.hdel(shop.keys("count"), "outbox_bytes")
    assert await Tasks(shop.namespace).cancel("b", "ada") == "cancelled"
    await (daemon := await shop.daemon()).settle(done(await daemon.claim_one()))
    assert ends(shop) == "cancelled:b done:a"
    for each in told(shop):
        assert {**asks, "app": "crm"}.items() <= each.facts.items()
        assert each.reply_to == "answers"


@pytest.mark.parametrize("limits", [None, Limits({"rule": Limit(2)})], ids=["bulk", "rules"])
async def test_what_is_done_is_told_once(shop: Bench, limits: Limits | None) -> None:
    """In bulk and by the rules, with its result; a repeat and a stale settle tell nothing."""
    shop.limits = limits
    daemon = await shop.daemon()
    await shop.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(3)), arrival("p", None))
    claims = await daemon.claim("grouped", "w1", "w2", "w3")
    settlements = [done(claims[0], b"[1]"), Complete(claims[1]), done(claims[2])]
    for _ in range(2):
        assert await daemon.settle(*settlements) == []
    assert ends(shop) == "done:t0 done:t2"
    kept: Any = shop.raw.hgetall(shop.keys("results_new"))
    assert kept == {b"t0": b'{"result":[1]}'}
    [plain] = await daemon.claim("plain", "w1")
    shop.expire("d1")
    other = await shop.daemon("d2")
    await other.sessions.reap()
    shop.with_faults = True
    await other.claims("plain").exchange([done(plain)], [])
    assert ends(shop) == "done:t0 done:t2"


async def test_a_run_tells_each_of_its_tasks(shop: Bench) -> None:
    """In their order."""
    daemon = await shop.daemon()
    daemon.claims("grouped").adopt({"rule": 3})
    await shop.enqueue(*(arrival(f"t{n}", "g") for n in range(3)))
    [first] = await daemon.claim("grouped", "w1")
    every = [first, *first.run]
    await daemon.exchange("grouped", [Proceed([done(each) for each in every], None)], ["w1"])
    assert ends(shop) == "done:t0 done:t1 done:t2"


async def test_a_drained_group_is_told(shop: Bench) -> None:
    """With how its tasks ended, by the script that ends the last of them."""
    shop.limits = Limits(on_drained={"rule": ("", "drained")})
    daemon = await shop.daemon()
    await shop.enqueue(arrival("t0", "g"))
    await daemon.settle(done(await daemon.claim_one()))
    [_, drained] = told(shop)
    assert (drained.event, drained.facts["group"], drained.facts["ends"]["done"]) == (
        "drained",
        "g",
        1,
    )
    assert orjson.loads(drained.body)["ends"] == drained.facts["ends"]


async def test_only_what_is_asked_for_is_told(store_server: Any) -> None:
    """No end where none is named; but to what asked for a reply."""
    async with Bench(store_server.url) as shop:
        daemon = await shop.daemon()
        await shop.enqueue(arrival("t0", "g"), arrival("t1", "h"))
        for claim in await daemon.claim("grouped", "w1", "w2"):
            await daemon.settle(bury(claim))
        assert told(shop) == []
        asks = {"reply_to": "answers", "correlation_id": "c"}
        await shop.enqueue(*(with_envelope(arrival(id_, id_), origin=asks) for id_ in ("u0", "u1")))
        large = replace(arrival("u2", "u2"), envelope=replace(
            arrival("u2", "u2").envelope, body=b'"' + b"x" * 80_000 + b'"', origin=asks
        ))  # fmt: skip
        await shop.enqueue(large)
        for claim in await daemon.claim("grouped", "w1", "w2", "w3"):
            await daemon.settle(bury(claim))
        assert [each.reply_to for each in told(shop)] == ["answers"] * 3
        assert shop.audit() == []


async def test_a_worker_that_pulls_tells_as_well(shop: Bench) -> None:
    """What it has done, and what it gives up."""
    worker = Worker(shop)
    await shop.enqueue(pooled("p0"), pooled("p1"))
    one, two = await worker.claim(2)
    await worker.settle(done(one), bury(two))
    assert sorted(ends(shop).split()) == ["dead:p1", "done:p0"]


async def filled(shop: Bench, number: int) -> tuple[Daemon, list[Told]]:
    """A daemon, and so many tasks that are done."""
    daemon = await shop.daemon()
    await shop.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(number)))
    claims = await daemon.claim("grouped", *(f"w{n}" for n in range(number)))
    await daemon.settle(*map(done, claims))
    return daemon, told(shop)


async def seen(daemon: Daemon, confirmed: int = 0) -> Outbox:
    return await look(daemon.bench.client, daemon.session, confirmed)


async def test_one_daemon_relays_at_a_time(shop: Bench) -> None:
    """What it confirms goes; another one has the rest once its time or its session is over."""
    daemon, every = await filled(shop, 3)
    other = await shop.daemon("d2")
    found = await seen(daemon)
    assert (found.is_ours, [Told.of(each) for each in found.entries]) == (True, every)
    assert await seen(other, every[2].number) == Outbox(False, [])
    for _ in range(2):  # its reply may be lost
        left = await seen(daemon, every[1].number)
        assert [Told.of(each) for each in left.entries] == every[2:]
    shop.raw.hset(
        shop.keys("segments"), "relay", f"{shop.server_time() - 1:016d} {daemon.session.number} d1"
    )
    assert (await seen(other)).is_ours
    await other.sessions.leave()
    again = await seen(daemon, every[2].number)
    assert (again.is_ours, again.entries) == (True, [])


async def test_what_ends_by_an_earlier_clock_is_told(shop: Bench) -> None:
    """Another server leads, which has lost what was confirmed, and whose clock is late."""
    daemon, every = await filled(shop, 2)
    found = await seen(daemon, every[1].number + 1)
    assert [Told.of(each) for each in found.entries] == every


async def test_a_relay_gets_only_so_much_at_once(shop: Bench) -> None:
    """Entries, and bytes; the first may have more."""
    daemon, every = await filled(shop, 4)
    front = (daemon.name, daemon.session.shown, microseconds(5))
    sizes: Sequence[tuple[int, int, int]] = [(2, 9999, 2), (9, 1, 1), (9, 9999, 4)]
    for most, size, number in sizes:
        _, _, entries, _ = await shop.client.run(Verb.RELAY, *front, 0, most, size, 0)
        assert [Told.of(each) for each in entries] == every[:number]


async def test_a_full_outbox_holds_claims_until_it_is_told(shop: Bench) -> None:
    """What runs still ends, and is told; intake hears of it."""
    (daemon, _), anna = await filled(shop, 8), Worker(shop)
    await shop.enqueue(arrival("a", "a"), arrival("p"), pooled("q"))
    running = await daemon.claim("grouped", "v1")
    while not shop.raw.exists(shop.keys("outbox_full")):
        await shop.enqueue(arrival(f"x{shop.count('told')}", "x"))
        await daemon.settle(done((await daemon.claim("grouped", "v2"))[0]))
    assert (await shop.take_in(arrival("b", "b"))).is_outbox_full
    assert await daemon.claim("grouped", "v2") == await daemon.claim("plain", "w1") == []
    assert [*(await anna.poll(1)).heads] == []
    assert await daemon.settle(*map(done, running)) == []
    number = told(shop)[-1].number
    await seen(daemon)
    assert (await seen(daemon, number)).entries == []
    assert ids([*await daemon.claim("grouped", "v2"), *await anna.claim(1)]) == ["b", "q"]
    assert not (await shop.take_in(arrival("c", "c"))).is_outbox_full


async def test_results_are_kept_within_their_bytes(shop: Bench) -> None:
    """The oldest go first; and all of them with the history."""
    daemon = await shop.daemon()
    for n in range(9):
        await shop.enqueue(arrival(f"t{n}", "g"))
        await daemon.settle(done(await daemon.claim_one(), b'"' + b"x" * 400 + b'"'))
        await seen(daemon, told(shop)[-1].number)
    kept = [*shop.raw.hkeys(shop.keys("results_old")), *shop.raw.hkeys(shop.keys("results_new"))]
    assert b"t8" in kept
    assert 2 <= len(kept) <= MOST // 400
    for _ in range(2):
        assert await shop.client.run(Verb.ROTATE, 0, 1) in (0, 1)
    assert shop.raw.hlen(shop.keys("results_new")) == 0
