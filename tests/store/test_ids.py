"""How long an id is known, and whose: scopes may share one, a dead letter gives its own back."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

import pytest

from groupflow.operate.dead import DeadLetters, sweep_letters
from groupflow.store.enqueue import READ_WHOLE, Arrival, Enqueuer
from groupflow.store.envelope import Envelope
from groupflow.store.history import rotate_history, sweep_renamed
from groupflow.store.keys import Keys
from tests.store.bench import Bench
from tests.store.story import Story, play, played
from tests.store.task_state import HOUR, letter

OURS, THEIRS, NOBODYS = "0a0a0a0a", "1b1b1b1b", ""


def of(scope: str, id_: str = "order-1", size: int = 2, **facts: Any) -> Arrival:
    """A message of a scope."""
    body = b"{" + b" " * (size - 2) + b"}"
    return Arrival(id_, Envelope("t", "g", "42", "r", {}, body, scope), **facts)


def garbage(id_: str = "order-1") -> Arrival:
    """A message that doesn't say whose it is."""
    return Arrival(id_, Envelope("", None, None, None, {}, b"\xff"), dead="not UTF-8")


async def taken(bench: Bench, *batch: Arrival) -> list[str | None]:
    """The ids under which messages were taken, ``None`` for duplicates."""
    enqueued = await bench.take_in(*batch)
    named = [enqueued.renamed.get(n, one.id) for n, one in enumerate(batch)]
    return [id_ if new else None for id_, new in zip(named, enqueued.taken, strict=True)]


async def derived(bench: Bench, one: Arrival) -> str:
    """A message is taken under another id than its own, once."""
    [id_] = await taken(bench, one)
    assert id_ is not None
    assert id_.startswith(f"{one.id}~")
    assert await taken(bench, one) == [None]
    return id_


async def rotate_all(bench: Bench) -> None:
    """Let everything that has ended be forgotten."""
    for _ in range(3):
        await rotate_history(bench.client, keep=0, size=1)
    while await sweep_renamed(bench.client):
        pass


def let_death_be_old(bench: Bench, *ids: str) -> None:
    bench.raw.zadd(bench.keys("dead"), dict.fromkeys(ids, 1))


@pytest.mark.parametrize("size", [2, READ_WHOLE + 1, 200_000])
async def test_two_tenants_with_one_id_have_a_task_each(shop: Bench, size: int) -> None:
    """A repeat is one while it waits, runs, and is done."""
    batch = [of(OURS, size=size), of(THEIRS, size=size)]
    first, second = await taken(shop, *batch)
    assert first == "order-1", "the first has the message's id"
    assert second is not None
    assert second.startswith("order-1~")
    assert len(second) == len("order-1~") + 16
    told = await play(shop, "")
    for step in ("", "claim order-1", "done order-1", f"claim {second}", f"done {second}"):
        await told.go_on(step)
        assert await taken(shop, *batch) == [None, None]
    await derived(shop, of(NOBODYS, size=size))


async def test_the_largest_that_is_read_whole_is_known_by_its_envelope(shop: Bench) -> None:
    head = len(of(OURS, size=2).envelope.pack()) - 2
    await shop.enqueue(of(OURS, size=READ_WHOLE - head))
    assert shop.raw.hstrlen(shop.keys("tasks"), "order-1") == READ_WHOLE
    await play(shop, "gone task_state:order-1 | task order-1 queued type=t group=g tenant=42")
    assert await taken(shop, of(OURS)) == [None]
    await derived(shop, of(THEIRS))


async def test_within_one_batch_as_well(shop: Bench) -> None:
    batch = [garbage(), of(OURS), of(OURS), garbage(), of(THEIRS)]
    first = await taken(shop, *batch)
    assert (first[0], first[2:4]) == ("order-1", [None, None])
    assert len({*first} - {None}) == 3
    assert await taken(shop, *batch) == [None] * 5


async def test_garbage_takes_no_ones_id(shop: Bench) -> None:
    """The letter keeps its id, and can be shown, redriven and dropped as before."""
    assert await taken(shop, garbage()) == ["order-1"]
    real = await derived(shop, of(OURS))
    told = await play(shop, f"drain {real}")
    letters, dead = DeadLetters(shop.namespace), await letter(shop, "order-1")
    assert (await letters.envelope("order-1"))[0].body == b"\xff"
    assert await letters.redrive(dead, of(THEIRS).envelope)
    assert await taken(shop, of(THEIRS)) == [None], "it is theirs now"
    await told.go_on(f"drain order-1 | task {real} done group=g")


async def test_a_letter_keeps_its_id_for_the_window_only(shop: Bench) -> None:
    """From then on a message of its own scope is a new task, once."""
    assert await taken(shop, of(OURS, dead="no type")) == ["order-1"]
    shop.raw.zincrby(shop.keys("dead"), -100e6, "order-1")  # it died 100 seconds earlier
    for window, new in ((200.0, False), (50.0, True)):
        enqueuer = Enqueuer(shop.client, dedup_window=window)
        assert (await enqueuer.enqueue([of(OURS)])).taken == [new]
    let_death_be_old(shop, "order-1")
    assert await taken(shop, of(OURS)) == [None]
    [real] = await (await shop.daemon()).work_off()
    assert real.startswith("order-1~")
    assert await taken(shop, of(OURS)) == [None]
    assert (await letter(shop, "order-1")).reason == "no type"
    await play(shop, "redrive order-1")
    assert await taken(shop, of(OURS)) == [None]


async def test_a_repeat_is_one_when_the_plain_id_is_forgotten(shop: Bench) -> None:
    """While the task with the derived id waits, and until its own end is forgotten."""
    await shop.enqueue(garbage())
    real = await derived(shop, of(OURS))
    told = await play(shop, "drop order-1")
    await rotate_all(shop)
    assert await taken(shop, of(OURS)) == [None]
    await told.go_on(f"drain {real}")
    assert await taken(shop, of(OURS)) == [None]
    await sweep_renamed(shop.client)
    await told.go_on("size renamed=1")
    await rotate_all(shop)
    await told.go_on("gone renamed")
    assert await taken(shop, of(OURS)) == ["order-1"]


@pytest.mark.parametrize("ends", ["done", "bury", "bury {} | drop", "drop", "swept", "refused"])
@pytest.mark.parametrize("size", [2, 100_000])
async def test_what_is_over_is_still_its_scope_s(shop: Bench, ends: str, size: int) -> None:
    """However it ended, in the history's newer part and in its older one."""
    facts = {"dead": "no"} if ends in ("swept", "refused") else {}
    assert await taken(shop, of(OURS, size=size, **facts)) == ["order-1"]
    if ends == "swept":
        let_death_be_old(shop, "order-1")
        assert await sweep_letters(shop.client, 60.0, 10) == ["order-1"]
    elif ends in ("drop", "refused"):
        await play(shop, "drop order-1")
    else:
        await play(shop, f"claim order-1 | {ends.format('order-1')} order-1")
    assert await taken(shop, of(OURS)) == [None]
    if ends != "bury":
        await rotate_history(shop.client, keep=0, size=1)
        assert await taken(shop, of(OURS)) == [None]
    await derived(shop, of(THEIRS))


async def test_a_body_can_not_say_whose_its_id_is(shop: Bench) -> None:
    """It may end as the facts of another scope's message do."""
    body = b'["x","%s"]' % OURS.encode()
    theirs = Arrival("order-1", Envelope("t", "g", "42", "r", {}, body, THEIRS))
    assert await taken(shop, theirs) == ["order-1"]
    await derived(shop, of(OURS))


async def test_an_id_that_dies_for_ever_is_taken_each_time(shop: Bench) -> None:
    """With any number of letters of it, and any of them dropped."""
    names: list[str] = []

    async def another() -> None:
        [id_] = await taken(shop, of(OURS, dead="no"))
        assert id_ is not None
        assert await taken(shop, of(OURS, dead="no")) == [None]
        let_death_be_old(shop, id_)
        names.append(id_)

    for _ in range(40):
        await another()
    assert len(set(names)) == 40
    for id_ in names[20:]:
        await play(shop, f"drop {id_}")
    await rotate_all(shop)
    for _ in range(20):
        await another()
    assert len({*names[:20], *names[40:]}) == 40


async def test_a_derived_id_can_not_be_named_beforehand(shop: Bench) -> None:
    """Each namespace has a secret of its own; and who has seen one gains nothing by it."""
    await shop.enqueue(of(OURS))
    theirs = await derived(shop, of(THEIRS))
    async with Bench(shop.url, keys=Keys("another")) as other:
        await other.enqueue(of(OURS))
        assert await derived(other, of(THEIRS)) != theirs
    salt: Any = shop.raw.hget(shop.keys("segments"), "salt")
    assert len(salt) == 32, "128 bits"
    await Enqueuer(shop.client).enqueue([of(NOBODYS)])
    assert shop.raw.hget(shop.keys("segments"), "salt") == salt, "the first one stays"
    await derived(shop, of(NOBODYS, theirs))
    assert await taken(shop, of(THEIRS)) == [None]


async def test_a_sweep_goes_on_where_the_last_one_ended(shop: Bench) -> None:
    """However many are known, by any salt, that stand in front of what may be forgotten."""
    salt, known = "5" * 32, [f"order-{n}" for n in range(1000)]
    waiting: dict[Any, Any] = {
        f"{id_}~{sha1(f'{salt} {OURS} 1 {id_}'.encode()).hexdigest()[:16]}": "" for id_ in known
    }
    shop.raw.hset(shop.keys("segments"), "salt", f"{'4' * 32} {salt}")  # after a move
    shop.raw.hset(shop.keys("tasks"), mapping=waiting)
    forgotten = [f"gone-{n}" for n in range(20)]
    names: dict[Any, Any] = {f"{OURS} {id_}": "1" for id_ in [*known, *forgotten]}
    shop.raw.hset(shop.keys("renamed"), mapping=names)
    for _ in range(100):
        await sweep_renamed(shop.client)
    left: Any = shop.raw.hkeys(shop.keys("renamed"))
    assert sorted(name.decode() for name in left) == sorted(f"{OURS} {id_}" for id_ in known)
    shop.raw.delete(shop.keys("tasks"), shop.keys("renamed"))


class Rotated(Story):
    """A store whose history is kept for an hour."""

    async def rotate(self, size: str, is_done: str) -> None:
        """A rotation where so many are enough for a segment, and whether it does anything."""
        done = await rotate_history(self.shop.client, keep=HOUR, size=int(size))
        assert str(done).lower() == is_done

    async def age(self, seconds: str) -> None:
        """Segments are so much older."""
        key = self.shop.keys("segments")
        segments: Any = self.shop.raw.hgetall(key)
        for name, at in segments.items():
            self.shop.raw.hset(key, name, f"{int(at) - int(seconds) * 1_000_000:016d}")


test_rotation = played(
    """
    an id is known for the whole window::
        rotate 10 false | take p0 | drain p0 | age 1800 | rotate 10 false | age 1800
        rotate 10 true | duplicates p0 | unchanged rotate 10 false | age 1800 | rotate 10 false
        duplicates p0 | age 1800 | rotate 10 true | gone history_new history_old | take p0
    a full segment closes early, and the one before stays for its window::
        rotate 2 false | take p0 p1 | drain p0 p1 | rotate 2 true | take q0 q1 | drain q0 q1
        rotate 2 false | duplicates p0 q0 | size history_old=2 history_new=2
    an empty segment that has aged begins again: what ends next is not old::
        rotate 10 false | unchanged rotate 10 false | age 7200 | rotate 10 false | take p0
        drain p0 | rotate 10 false
    where no older segment is kept a full one closes at once::
        rotate 1 false | take p0 | drain p0 | rotate 1 true | age 3600 | rotate 1 true | take q0
        drain q0 | rotate 1 true
    """,
    Rotated,
)
