"""Whose an id is: two scopes may share one, and a dead letter gives its own back in time."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha1
from typing import Any

import pytest

from groupflow.operate.dead import DeadLetters, remove_expired
from groupflow.operate.tasks import Tasks, find_task
from groupflow.store.enqueue import READ_WHOLE, Arrival, Enqueued, Enqueuer
from groupflow.store.envelope import Envelope
from groupflow.store.history import rotate_history, sweep_renamed
from groupflow.store.keys import Keys
from tests.store.bench import Bench, arrival, bury

OURS, THEIRS, NOBODYS = "0a0a0a0a", "1b1b1b1b", ""


def of(scope: str, id_: str = "order-1", size: int = 2, **facts: Any) -> Arrival:
    """A message of a scope."""
    body = b"{" + b" " * (size - 2) + b"}"
    return Arrival(id_, Envelope("t", "g", "42", "r", {}, body, scope), **facts)


def garbage(id_: str = "order-1") -> Arrival:
    """A message that doesn't say whose it is."""
    return Arrival(id_, Envelope("", None, None, None, {}, b"\xff"), dead="not UTF-8")


async def taken(bench: Bench, one: Arrival) -> str | None:
    """The id under which a message was taken, ``None`` for a duplicate."""
    enqueued: Enqueued = await bench.take_in(one)
    return enqueued.renamed.get(0, one.id) if enqueued.taken[0] else None


async def rotate_all(bench: Bench) -> None:
    """Let everything that has ended be forgotten."""
    for _ in range(3):
        await rotate_history(bench.client, keep=0, size=1)
    while await sweep_renamed(bench.client):
        pass


async def drop(bench: Bench, id_: str) -> None:
    letters = DeadLetters(bench.namespace)
    letter = await letters.find(id_)
    assert letter is not None
    assert await letters.drop(letter)


def let_death_be_old(bench: Bench, *ids: str) -> None:
    bench.raw.zadd(bench.keys("dead"), dict.fromkeys(ids, 1))


@pytest.mark.parametrize("size", [2, READ_WHOLE + 1, 200_000])
async def test_two_tenants_with_one_id_have_a_task_each(bench: Bench, size: int) -> None:
    batch = [of(OURS, size=size), of(THEIRS, size=size)]
    first = await bench.take_in(*batch)
    assert first.taken == [True, True]
    assert list(first.renamed) == [1], "the first has the message's id"
    derived = first.renamed[1]
    assert derived.startswith("order-1~")
    assert len(derived) == len("order-1~") + 16
    again = await bench.take_in(*batch)
    assert (again.taken, again.renamed) == ([False, False], {})
    daemon = await bench.daemon()
    running = await daemon.claim_one()
    assert (await bench.take_in(*batch)).taken == [False, False]
    await daemon.complete(running)
    assert (await bench.take_in(*batch)).taken == [False, False]
    assert await daemon.work_off() == [derived]
    assert (await bench.take_in(*batch)).taken == [False, False]
    assert await taken(bench, of(NOBODYS, size=size)) not in (None, "order-1", derived)


async def test_the_largest_that_is_read_whole_is_known_by_its_envelope(bench: Bench) -> None:
    head = len(of(OURS, size=2).envelope.pack()) - 2
    await bench.enqueue(of(OURS, size=READ_WHOLE - head))
    assert bench.raw.hstrlen(bench.keys("tasks"), "order-1") == READ_WHOLE
    assert not bench.raw.exists(bench.keys("task_state", "order-1"))
    found = await find_task(bench.client, "order-1")
    assert found is not None
    assert (found.type, found.group, found.tenant) == ("t", "g", "42")
    assert await taken(bench, of(OURS)) is None
    assert await taken(bench, of(THEIRS)) is not None


async def test_within_one_batch_as_well(bench: Bench) -> None:
    batch = [garbage(), of(OURS), of(OURS), garbage(), of(THEIRS)]
    first = await bench.take_in(*batch)
    assert first.taken == [True, True, False, False, True]
    assert len({"order-1", *first.renamed.values()}) == 3
    assert (await bench.take_in(*batch)).taken == [False] * 5


async def test_garbage_takes_no_ones_id(bench: Bench) -> None:
    """The letter keeps its id, and can be shown, redriven and dropped as before."""
    assert await taken(bench, garbage()) == "order-1"
    real = await taken(bench, of(OURS))
    assert real is not None
    daemon = await bench.daemon()
    assert await daemon.work_off() == [real]
    letters = DeadLetters(bench.namespace)
    letter = await letters.find("order-1")
    assert letter is not None
    assert (await letters.envelope("order-1"))[0].body == b"\xff"
    assert await letters.redrive(letter, of(THEIRS).envelope)
    assert await taken(bench, of(THEIRS)) is None, "it is theirs now"
    assert await daemon.work_off() == ["order-1"]
    found = await find_task(bench.client, real)
    assert found is not None
    assert (found.state, found.group) == ("done", "g")
    bench.events.clear()  # the letter ran by another route than it came with


async def test_a_letter_keeps_its_id_for_the_window_only(bench: Bench) -> None:
    """From then on a message of its own scope is a new task, once."""
    assert await taken(bench, of(OURS, dead="no type")) == "order-1"
    assert await taken(bench, of(OURS)) is None
    let_death_be_old(bench, "order-1")
    real = await taken(bench, of(OURS))
    assert real is not None
    assert real.startswith("order-1~")
    assert await taken(bench, of(OURS)) is None
    daemon = await bench.daemon()
    assert await daemon.work_off() == [real]
    assert await taken(bench, of(OURS)) is None
    letters = DeadLetters(bench.namespace)
    letter = await letters.find("order-1")
    assert letter is not None
    assert (letter.reason, await letters.redrive(letter)) == ("no type", True)
    assert await taken(bench, of(OURS)) is None
    await daemon.work_off()
    bench.events.clear()  # a letter from the door that was redriven without a route


async def test_the_window_is_the_configured_one(bench: Bench) -> None:
    await bench.enqueue(of(OURS, dead="no type"))
    bench.raw.zincrby(bench.keys("dead"), -100e6, "order-1")  # it died 100 seconds earlier
    long, short = (Enqueuer(bench.client, dedup_window=seconds) for seconds in (200.0, 50.0))
    assert (await long.enqueue([of(OURS)])).taken == [False]
    assert (await short.enqueue([of(OURS)])).taken == [True]
    bench.events.clear()


async def test_a_repeat_is_one_when_the_plain_id_is_forgotten(bench: Bench) -> None:
    """While the task with the derived id waits, and until its own end is forgotten."""
    await bench.enqueue(garbage())
    real = await taken(bench, of(OURS))
    await drop(bench, "order-1")
    await rotate_all(bench)
    assert await find_task(bench.client, "order-1") is None
    assert await taken(bench, of(OURS)) is None
    daemon = await bench.daemon()
    assert await daemon.work_off() == [real]
    assert await taken(bench, of(OURS)) is None
    await sweep_renamed(bench.client)
    assert bench.raw.hlen(bench.keys("renamed")) == 1
    await rotate_all(bench)
    assert bench.raw.exists(bench.keys("renamed")) == 0, "nothing is left of it"
    assert await taken(bench, of(OURS)) == "order-1"
    bench.events.clear()  # an id that came again after all that is kept


async def test_what_was_dropped_or_expired_is_still_its_scope_s(bench: Bench) -> None:
    await bench.enqueue(of(OURS, "a", dead="no"), of(OURS, "b", dead="no"))
    daemon = await bench.daemon()
    await drop(bench, "a")
    let_death_be_old(bench, "b")
    assert await remove_expired(bench.client, 60.0, 10) == ["b"]
    for id_ in "ab":
        assert await taken(bench, of(OURS, id_)) is None
        assert await taken(bench, of(THEIRS, id_)) is not None
    await bench.enqueue(of(OURS, "c"))
    await daemon.work_off()
    assert await taken(bench, of(THEIRS, "c")) is not None
    await bench.enqueue(of(OURS, "d"))
    claims = {claim.task.id: claim for claim in await daemon.claim("grouped", "w1")}
    while "d" not in claims:
        await daemon.complete(*claims.values())
        claims = {claim.task.id: claim for claim in await daemon.claim("grouped", "w1")}
    await daemon.settle(bury(claims["d"]))
    assert await taken(bench, of(OURS, "d")) is None
    await drop(bench, "d")
    assert await taken(bench, of(OURS, "d")) is None
    assert await taken(bench, of(THEIRS, "d")) is not None


async def test_what_is_over_is_its_scope_s_in_the_older_history_too(bench: Bench) -> None:
    """Another's message with that id is none that was taken already."""
    await bench.enqueue(of(OURS))
    daemon = await bench.daemon()
    assert await daemon.work_off() == ["order-1"]
    while not bench.raw.exists(bench.keys("history_old")):
        await rotate_history(bench.client, keep=0, size=1)
    assert await taken(bench, of(OURS)) is None
    assert await taken(bench, of(THEIRS)) not in (None, "order-1")
    assert await taken(bench, of(THEIRS)) is None


async def test_what_was_dropped_is_its_scope_s_however_large_it_was(bench: Bench) -> None:
    await bench.enqueue(of(OURS, size=100_000))
    assert await Tasks(bench.namespace).drop("order-1") is None
    assert await taken(bench, of(OURS)) is None
    assert await taken(bench, of(THEIRS)) is not None


async def test_a_body_can_not_say_whose_its_id_is(bench: Bench) -> None:
    """It may end as the facts of another scope's message do."""
    body = b'["x","%s"]' % OURS.encode()
    assert await taken(bench, Arrival("order-1", Envelope("t", "g", "42", "r", {}, body, THEIRS)))
    assert await taken(bench, of(OURS)) is not None
    assert await taken(bench, of(OURS)) is None


async def test_a_repeat_is_one_after_the_loss_of_what_renamed_knew(bench: Bench) -> None:
    """It is kept as long as needed; should it be gone, the derived id itself is still known."""
    await bench.enqueue(of(OURS))
    derived = await taken(bench, of(THEIRS))
    bench.raw.delete(bench.keys("renamed"))
    assert await taken(bench, of(THEIRS)) is None
    daemon = await bench.daemon()
    assert await daemon.work_off() == ["order-1", derived]
    bench.raw.delete(bench.keys("renamed"))
    assert await taken(bench, of(THEIRS)) is None


async def test_an_id_that_dies_for_ever_is_taken_each_time(bench: Bench) -> None:
    """With any number of letters of it, and any of them dropped."""
    names: list[str] = []

    async def another() -> None:
        id_ = await taken(bench, of(OURS, dead="no"))
        assert id_ is not None
        assert await taken(bench, of(OURS, dead="no")) is None
        let_death_be_old(bench, id_)
        names.append(id_)

    for _ in range(40):
        await another()
    assert len(set(names)) == 40
    for id_ in names[20:]:
        await drop(bench, id_)
    await rotate_all(bench)
    for _ in range(20):
        await another()
    assert len({*names[:20], *names[40:]}) == 40
    bench.events.clear()  # some were forgotten


async def test_a_derived_id_can_not_be_named_beforehand(bench: Bench) -> None:
    """Each namespace has a secret of its own; and who has seen one gains nothing by it."""
    await bench.enqueue(of(OURS))
    theirs = await taken(bench, of(THEIRS))
    assert theirs is not None
    other = Bench(bench.url, keys=Keys("another"))
    try:
        await other.enqueue(of(OURS))
        assert await taken(other, of(THEIRS)) != theirs
    finally:
        await other.close()
    salt: Any = bench.raw.hget(bench.keys("segments"), "salt")
    assert len(salt) == 32, "128 bits"
    await Enqueuer(bench.client).enqueue([of(NOBODYS)])
    assert bench.raw.hget(bench.keys("segments"), "salt") == salt, "the first one stays"
    seen = await taken(bench, of(NOBODYS, theirs))
    assert seen is not None
    assert seen.startswith(f"{theirs}~")
    assert await taken(bench, of(THEIRS)) is None
    assert await taken(bench, of(NOBODYS, theirs)) is None
    bench.events.clear()  # one was taken in behind the bench's back


async def test_where_nothing_clashes_nothing_is_kept(bench: Bench) -> None:
    await bench.enqueue(*(of(OURS, f"a{n}") for n in range(5)), arrival("b"))
    await bench.enqueue(*(of(OURS, f"a{n}") for n in range(5)), arrival("b"))
    assert await sweep_renamed(bench.client) == 0
    assert bench.raw.exists(bench.keys("renamed"), bench.keys("segments")) == 0
    assert replace(of(OURS).envelope) == Envelope.unpack(of(OURS).envelope.pack())


async def test_a_sweep_goes_on_where_the_last_one_ended(bench: Bench) -> None:
    """However many are known that stand in front of what may be forgotten."""
    salt, known = "5" * 32, [f"order-{n}" for n in range(1000)]
    derived: dict[Any, Any] = {
        f"{id_}~{sha1(f'{salt} {OURS} 1 {id_}'.encode()).hexdigest()[:16]}": "" for id_ in known
    }
    bench.raw.hset(bench.keys("segments"), "salt", salt)
    bench.raw.hset(bench.keys("tasks"), mapping=derived)
    forgotten = [f"gone-{n}" for n in range(20)]
    names: dict[Any, Any] = {f"{OURS} {id_}": "1" for id_ in [*known, *forgotten]}
    bench.raw.hset(bench.keys("renamed"), mapping=names)
    for _ in range(100):
        await sweep_renamed(bench.client)
    left: Any = bench.raw.hkeys(bench.keys("renamed"))
    assert sorted(name.decode() for name in left) == sorted(f"{OURS} {id_}" for id_ in known)
    bench.raw.delete(bench.keys("tasks"), bench.keys("renamed"))
