"""What waits for delays and what dead letters hold is counted to the byte; bodies leave when told.

The auditor compares the counters with the lives at the end of each of these tests too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from groupflow.core.errors import LetterArchived, NoRoomForDelay
from groupflow.core.task import Place
from groupflow.operate.archiving import LetterBody, archive, beside_of, oldest_bodies
from groupflow.operate.dead import DeadLetters, remove_expired
from groupflow.operate.tasks import Tasks
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.scripts import Verb
from groupflow.store.sessions import Session
from tests.history.held_bytes import DELAY_COSTS
from tests.store.bench import Bench, arrival
from tests.store.story import Story, named, play, stories
from tests.store.task_state import found, letter
from tests.store.words import made

YEAR = 31_536_000.0
KILO = 1000
ME = Session("d1")  # who archives
LATE = KILO + DELAY_COSTS  # what such a message counts that waits for a delay


def large(id_: str, group: str | None = None, size: int = KILO, **facts: object) -> Arrival:
    """A message whose envelope has so many bytes."""
    plain = arrival(id_, group, **facts)
    head = replace(plain.envelope, body=b"").pack()
    return replace(plain, envelope=replace(plain.envelope, body=b"x" * (size - len(head))))


class Bytes(Story):
    """A store whose delayed bytes are looked at."""

    async def late(self, number: str) -> None:
        """So many tasks count as waiting for a delay, all of one kind."""
        one, *_ = [each for each in self.shop.events if each.kind == "published"]
        each = DELAY_COSTS + len(made(one.id).envelope.pack())
        assert self.shop.count("delayed_bytes") == int(number) * each

    async def crowd(self, room: str, out: str, *words: str) -> None:
        """A batch comes where so many may wait for a delay; and which of it find no room."""
        batch = [made(word) for word in words]
        each = DELAY_COSTS + len(batch[0].envelope.pack())
        done = await self.shop.enqueuer.enqueue(batch, int(room) * each)
        assert (",".join(batch[n].id for n in sorted(done.crowded_out)) or "-") == out

    async def passes(self, seconds: str) -> None:
        """So much time, by the server's clock."""
        over = self.shop.server_time() + float(seconds) * 1e6
        while self.shop.server_time() < over:
            pass


STORIES = named(
    """
    a retry does not count, nor what comes behind it::
        take a0 b0@ | claim a0 | retry a0 | late 1 | take a1 | late 1
    what comes behind a delay waits for it too::
        take a0 a1@ | take a2 a3 b0 | late 3 | all a0 b0 | done a0 b0 | drop a1
        drain a2 a3 | late 0
    until it is over, or an operator ends it: {id}{aside}::
        take {id}0@{aside} {id}1@{aside} {id}2@{aside} | duplicates {id}0@{aside} | late 3
        drop {id}1 | late 2 | run_now {id}0 | run_now {id}2 | late 0
    one that an operator ends delays no task::
        take a0 | claim a0 | take a1@ a2 | take a3@1800 | drop a1 | late 2 | take a4
        late 3 | sound | drop a3 | take a5 | late 2 | done a0 | drain a2 a4 a5 | late 0
    a letter from the door waits for no delay, and keeps its reason where there is no room::
        crowd 1 - a0@ a1@! a2! | task a1 dead reason=no | task a2 dead reason=no
    whose delay is over runs at once, and holds a group that is ready where it isn't::
        crowd 0 a0,b0 a0@0.001 b0@ | take b1 | passes 0.002 | why b ready | redrive a0 | late 0
        redrive b0 | why a ready | why b delayed head=b0
    {id}: what is promoted or claimed counts no more, and delays nothing when it is due::
        take {id}0@0.001 {id}1@0.001 | passes 0.002 | take {id}2 | late 2 | promote | promote
        late 0 | drain {id}0 {id}1 {id}2
    """,
    id=("a", "q"),
    aside=("", "~"),
)


@stories(STORIES)
async def test_delays_count(shop: Bench, story: str) -> None:
    await Bytes(shop).go_on(story)


@pytest.mark.parametrize("holds", ["claim g0", "pause g"])
async def test_a_delay_that_is_over_delays_no_task(shop: Bench, holds: str) -> None:
    """Be its group busy or paused: it waits for that, and not for a delay any more."""
    await shop.enqueue(large("g0", "g"))
    told = Bytes(shop)
    await told.go_on(holds)
    await shop.enqueue(large("g1", "g", delay=0.05), large("g2", "g"))  # at one moment
    assert shop.count("delayed_bytes") == 2 * LATE
    await told.go_on("passes 0.1")
    done = await shop.enqueuer.enqueue([large(f"g{n}", "g") for n in (3, 4)], 0)
    assert not done.crowded_out
    assert shop.count("delayed_bytes") == 2 * LATE
    for _ in range(2):
        assert (await shop.client.run(Verb.PROMOTE, 1))[0] == 0
    assert shop.count("delayed_bytes") == 0
    await told.go_on(
        "done g0 | drain g1 g2 g3 g4" if "claim" in holds else "resume g | drain g0 g1 g2 g3 g4"
    )


@pytest.mark.parametrize("aside", [True, False])
async def test_what_waits_for_delays_pauses_no_intake(shop: Bench, aside: bool) -> None:
    """Its bytes are bounded; its number would count towards `redis.max_waiting` for a year."""
    late = [large(f"t{n}", "g", delay=YEAR, steps_aside=aside) for n in range(3)]
    assert (await shop.take_in(*late, large("u"), large("v", "h"))).queued == 2


async def test_small_delayed_tasks_count_what_they_take(shop: Bench) -> None:
    tasks = [arrival(f"t{n:06}", "g", delay=YEAR, steps_aside=True) for n in range(2000)]
    before = shop.used_memory()
    for n in range(0, 2000, 200):
        await shop.enqueue(*tasks[n : n + 200])
    taken = shop.used_memory() - before
    assert taken / 2 < shop.count("delayed_bytes") < taken * 2


@pytest.mark.parametrize("aside", [True, False])
@pytest.mark.parametrize("group", ["g", None])
async def test_beyond_the_bound_it_is_a_dead_letter_that_keeps_its_delay(
    shop: Bench, group: str | None, aside: bool
) -> None:
    messages = [large(f"t{n}", group, delay=YEAR, steps_aside=aside) for n in range(3)]
    done = await shop.enqueuer.enqueue([*messages, large("now", "h")], 2 * LATE)
    assert (done.taken, done.crowded_out) == ([True] * 4, frozenset({2}))
    assert shop.count("delayed_bytes") == 2 * LATE
    letters, dead = DeadLetters(shop.namespace), await letter(shop, "t2")
    assert "redis.delayed_memory" in dead.reason
    assert (dead.type, dead.group, dead.tenant) == ("t", group, "42")
    assert (dead.attempts, dead.died_at_the_door) == (0, False)
    before = shop.dump()
    with pytest.raises(NoRoomForDelay, match=r"redis\.delayed_memory"):
        await letters.redrive(dead, delayed_memory=3 * LATE - 1)
    assert shop.dump() == before
    await Tasks(shop.namespace).drop("t0")
    await Tasks(shop.namespace).drop("t1")
    assert await letters.redrive(dead)
    assert not await letters.redrive(dead)
    assert shop.count("delayed_bytes") == LATE
    told = await found(shop, "t2")
    assert (told.state, told.until is not None) == ("delayed", True)
    stands_aside = shop.raw.zcard(shop.keys("delayed"))
    assert stands_aside == (aside or group is None), "as its message said"
    await play(shop, "drain now | run_now t2")
    assert await (await shop.daemon("d2")).work_off() == ["t2"]


@pytest.mark.parametrize("size", [KILO, 70 * KILO])
async def test_what_is_crowded_out_is_known_without_its_body(shop: Bench, size: int) -> None:
    """Behind a delay as well; or where it is too large to be read."""
    batch = [large("late", "g", delay=YEAR), large("behind", "g", size)]
    await shop.enqueuer.enqueue(batch, 2 * LATE - 1)
    dead = await letter(shop, "behind")
    assert (dead.type, dead.group, dead.tenant) == ("t", "g", "42")
    task_state: Any = shop.raw.hgetall(shop.keys("task_state", "behind"))
    assert {b"type": b"t", b"tenant": b"42"}.items() <= task_state.items()


# Dead letters


def held_by(bench: Bench, *named: str) -> int:
    """What dead letters count; the auditor compares it with what they have."""
    noted: list[Any] = [
        bench.raw.hget(bench.keys("task_state", id_), "dead_bytes") for id_ in named
    ]
    return sum(int(each or 0) for each in noted)


async def bodies_of(
    shop: Bench, bound: int = 0, most: int = 10, most_bytes: int = 10**6
) -> list[LetterBody]:
    """The oldest bodies beyond a bound."""
    return await oldest_bodies(shop.client, ME, bound, most=most, most_bytes=most_bytes)


async def test_letters_count_until_they_end(shop: Bench) -> None:
    await shop.enqueue(large("door", dead="no tenant"), large("t", "g"), large("u", "h"))
    told = await play(shop, "claim t u | bury t u")
    assert shop.count("dead_bytes") == held_by(shop, "door", "t", "u") > 3 * KILO
    await told.go_on("drop t | redrive u")
    assert shop.count("dead_bytes") == held_by(shop, "door")
    await remove_expired(shop.client, -1.0, 10)
    assert shop.count("dead_bytes") == 0


async def test_the_oldest_beyond_the_bound_are_told(shop: Bench) -> None:
    for n in range(5):
        await shop.enqueue(large(f"t{n}", dead="no"))
    await shop.enqueue(arrival("small", dead="no"))
    one, small = held_by(shop, "t0"), held_by(shop, "small")
    every = ["t0", "t1", "t2", "t3", "t4", "small"]
    for bound, most, most_bytes, number in (
        (5 * one + small, 100, 10**6, 0),
        (5 * one + small - 1, 100, 10**6, 1),
        (2 * one + small, 100, 10**6, 3),
        (0, 100, 10**6, 6),
        (0, 2, 10**6, 2),
        (0, 100, 10, 1),
        (0, 100, 3 * KILO + 500, 3),
    ):
        told = await bodies_of(shop, bound, most, most_bytes)
        assert [body.id for body in told] == every[:number]


async def test_a_body_leaves_once_and_comes_back_by_a_redrive(shop: Bench) -> None:
    message = large("t", "g")
    await shop.enqueue(message)
    told = await play(shop, "claim t | bury t")
    (body,) = await bodies_of(shop)
    assert Envelope.unpack(body.packed) == message.envelope
    assert await archive(shop.client, [body], [Place(7, "m7")]) == 1
    assert await archive(shop.client, [body], [Place(8, "m8")]) == 0
    await told.go_on("count dead_bytes=0 archived=1")
    assert await bodies_of(shop) == []
    letters, dead = DeadLetters(shop.namespace), await letter(shop, "t")
    assert (dead.type, dead.group, dead.reason) == ("t", "g", "broken")
    rest, place = await letters.envelope("t")
    assert (rest.body, place) == (b"", Place(7, "m7"))
    before = shop.dump()
    with pytest.raises(LetterArchived, match="RabbitMQ"):
        await letters.redrive(dead)
    assert shop.dump() == before
    beside, back = beside_of(body.packed), Envelope.unpack(body.packed)
    assert await letters.redrive(dead, back, place=place, beside=beside)
    await told.go_on("claim t")
    assert told.claim_of("t")[1].task.body == message.envelope.body
    assert await archive(shop.client, [body], [Place(9, "m9")]) == 0, "of a death that is over"
    await told.go_on("bury t")
    assert await archive(shop.client, [body], [Place(9, "m9")]) == 0, "nor of another death"
    assert (await letters.envelope("t"))[1] is None
    assert shop.count("dead_bytes") == held_by(shop, "t") > KILO


async def test_an_archived_letter_is_dropped_and_swept_like_others(shop: Bench) -> None:
    await shop.enqueue(large("t", dead="no"), large("u", dead="no"))
    bodies, places = await bodies_of(shop), [Place(n, f"m{n}") for n in range(2)]
    assert await archive(shop.client, bodies, places) == 2
    await play(shop, "drop t")
    assert await remove_expired(shop.client, -1.0, 10) == ["u"]
    assert await archive(shop.client, bodies, places) == 0


async def test_it_leaves_when_redis_is_full_and_its_headers_with_it(shop: Bench) -> None:
    """That is what it is for."""
    envelope = Envelope("t", None, None, None, {"x": "y" * KILO}, b"z" * 100_000)
    await shop.enqueue(Arrival("t", envelope, dead="no"))
    bodies = await bodies_of(shop)
    shop.raw.config_set("maxmemory", 1)
    try:
        assert await bodies_of(shop) == bodies
        assert await archive(shop.client, bodies, [Place(1, "m")]) == 1
    finally:
        shop.raw.config_set("maxmemory", 0)
    left: object = shop.raw.hget(shop.keys("tasks"), "t")
    assert left == replace(envelope, headers={}, body=b"").pack()
