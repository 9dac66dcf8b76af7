"""What leaves Redis of a dead letter, what stays, who moves it, and what a redrive brings back.

The auditor compares what letters count with what they have at the end of each of these tests too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest

from groupflow.broker.archive import Archive
from groupflow.core.errors import LetterArchived, StoreFull
from groupflow.core.task import Place
from groupflow.operate.archiving import LetterBody, archive, beside_of, oldest_bodies, stay
from groupflow.operate.dead import DeadLetters, sweep_letters
from groupflow.operate.reasons import REASON_SHOWN
from groupflow.operate.redrive import Redriver, whole_letter
from groupflow.servers import RedisServer
from groupflow.settings.model import Settings
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.sessions import Session
from groupflow.store.settlements import Advance
from groupflow.upkeep.archive import Archiver
from tests.broker.wires import forget
from tests.running import running
from tests.store.bench import Bench, arrival, bury
from tests.store.story import play
from tests.store.task_state import letter
from tests.store.test_held_bytes import large

ME = Session("d1")
MOST = 10**7
KILO = 1000
STUB = 800  # bytes that stay of an archived letter, with what the test takes beside
REASON = "the body is no JSON: unexpected character: line 1 column 1 (char 0)"


def malformed(n: int) -> Arrival:
    """A tiny message without a route, with its reason twice, as admission writes it."""
    envelope = Envelope("", None, None, None, {}, b"?", "0123456789abcdef")
    return Arrival(f"malformed-{n:06}", envelope, dead=REASON)


async def bodies_for(
    bench: Bench, session: Session, bound: int = 0, most: int = 200, most_bytes: int = MOST
) -> list[LetterBody]:
    return await oldest_bodies(bench.client, session, bound, most=most, most_bytes=most_bytes)


async def archive_all(bench: Bench) -> None:
    """All that may leave, as if it were in the stream."""
    while bodies := await bodies_for(bench, ME):
        places = [Place(n, f"{n:032x}") for n in range(len(bodies))]
        assert await archive(bench.client, bodies, places) == len(bodies)


async def test_small_letters_count_what_they_take_and_leave_little(bench: Bench) -> None:
    await bench.enqueue(malformed(2000))
    await archive_all(bench)  # from here on Redis has all scripts, whose texts count too
    before = bench.used_memory()
    for n in range(0, 2000, 200):
        await bench.enqueue(*(malformed(n + i) for i in range(200)))
    taken = bench.used_memory() - before
    assert taken / 2 < bench.count("dead_bytes") < taken * 2
    await archive_all(bench)
    assert bench.count("dead_bytes") == 0
    assert bench.used_memory() - before < 2000 * STUB


async def test_all_of_a_letter_leaves_once_and_comes_back_by_a_redrive(bench: Bench) -> None:
    """Body, errors, and a context as large as a handler makes it; no list shows those."""
    context, message = orjson.dumps({"seen": "ä\n" * 50_000}), arrival("t", "g")
    await bench.enqueue(message)
    daemon = await bench.daemon()
    await daemon.settle(Advance(await daemon.claim_one(), "second", context, "hold"))
    said = "no such row: " + " ".join(map(str, range(400)))
    await daemon.settle(bury(await daemon.claim_one(), said))
    assert bench.count("dead_bytes") > len(context) + len(said)

    (body,) = await bodies_for(bench, ME)
    assert [await archive(bench.client, [body], [Place(n, f"m{n}")]) for n in (7, 8)] == [1, 0]
    assert (bench.count("dead_bytes"), bench.count("archived")) == (0, 1)
    assert await bodies_for(bench, ME) == []
    task_state: Any = bench.raw.hgetall(bench.keys("task_state", "t"))
    assert sum(map(len, task_state.values())) < 500
    letters, story = DeadLetters(bench.namespace), await letter(bench, "t")
    assert (story.type, story.group, story.errors) == ("t", "g", [])
    assert story.reason == f"{said[:REASON_SHOWN]} …", "it lies in pieces"
    rest, place = await letters.envelope("t")
    assert (rest.body, place) == (b"", Place(7, "m7"))

    beside, back, before = beside_of(body.packed), Envelope.unpack(body.packed), bench.dump()
    assert beside is not None
    assert back == message.envelope
    with pytest.raises(LetterArchived, match="RabbitMQ"):
        await letters.redrive(story)
    with pytest.raises(LetterArchived, match="RabbitMQ"):  # it may have died again meanwhile
        await letters.redrive(story, back, place=Place(1, "old"), beside=beside)
    assert bench.dump() == before
    whole = story.with_beside(beside)
    assert (whole.reason, whole.errors[0]["message"]) == (said, said)
    assert await letters.redrive(story, back, place=place, beside=beside)
    again = await daemon.claim_one()
    assert (again.task.stage, again.task.context) == ("second", orjson.loads(context))
    assert (again.task.body, again.errors) == (message.envelope.body, whole.errors)
    assert await archive(bench.client, [body], [Place(9, "m9")]) == 0, "of a death that is over"
    await daemon.settle(bury(again))
    assert await archive(bench.client, [body], [Place(9, "m9")]) == 0, "nor of another death"
    assert (await letters.envelope("t"))[1] is None
    bench.events.clear()  # a redriven task starts once more, which the history can't know


async def test_one_daemon_archives_at_a_time(bench: Bench) -> None:
    await bench.enqueue(malformed(0), malformed(1))
    one, two = [(await bench.daemon(name)).session for name in ("d1", "d2")]
    (body,) = await bodies_for(bench, one, most=1)
    assert await bodies_for(bench, two) == []
    assert [body] == await bodies_for(bench, one, most=1), "asking again is safe"
    assert await bodies_for(bench, one, most=0) == []  # it gives its turn up
    assert len(await bodies_for(bench, two)) == 2
    assert await bodies_for(bench, one) == []


@pytest.mark.parametrize("how", ["has nothing", "lease", "came back", "turn"])
async def test_a_turn_ends(bench: Bench, how: str) -> None:
    """Of a daemon under its bound, of one whose lease is over, of one that is dead; by itself."""
    await bench.enqueue(malformed(0))
    one, two = [(await bench.daemon(name)).session for name in ("d1", "d2")]
    assert await bodies_for(bench, one)
    match how:
        case "has nothing":
            assert await bodies_for(bench, one, bound=MOST) == []
        case "lease":
            bench.expire("d1")
        case "came back":  # what archived is dead, though its name has a lease
            one = (await bench.daemon("d1")).session
        case _:
            noted: Any = bench.raw.hget(bench.keys("segments"), "archiver")
            bench.raw.hset(bench.keys("segments"), "archiver", b"0" * 16 + noted[16:])
    assert await bodies_for(bench, two)
    assert await bodies_for(bench, one) == []


async def test_what_stays_counts_and_is_handed_to_nobody(bench: Bench) -> None:
    await bench.enqueue(malformed(0), malformed(1))
    first, second = await bodies_for(bench, ME)
    held = bench.count("dead_bytes")
    assert not await stay(bench.client, replace(first, died_at=b"1"))
    assert await stay(bench.client, first)
    assert not await stay(bench.client, first)
    assert await bodies_for(bench, ME) == [second]
    assert await archive(bench.client, [first], [Place(0, "m")]) == 0
    assert (bench.count("dead_bytes"), (await bench.status()).dead_staying) == (held, 1)
    assert await DeadLetters(bench.namespace).drop(await letter(bench, first.id))
    assert (await bench.status()).dead_staying == 0
    assert bench.count("dead_bytes") == held / 2


def held_by(bench: Bench, *named: str) -> int:
    """What dead letters count; the auditor compares it with what they have."""
    keys = [bench.keys("task_state", id_) for id_ in named]
    noted: list[Any] = [bench.raw.hget(key, "dead_bytes") for key in keys]
    return sum(int(each or 0) for each in noted)


async def test_the_oldest_beyond_the_bound_are_told(bench: Bench) -> None:
    for n in range(5):
        await bench.enqueue(large(f"t{n}", dead="no"))
    await bench.enqueue(arrival("small", dead="no"))
    one, small = held_by(bench, "t0"), held_by(bench, "small")
    every = ["t0", "t1", "t2", "t3", "t4", "small"]
    all_of_them = 5 * one + small
    for bound, most, most_bytes, number in (
        *((all_of_them, 100, MOST, 0), (all_of_them - 1, 100, MOST, 1), (0, 100, MOST, 6)),
        *((2 * one + small, 100, MOST, 3), (0, 2, MOST, 2), (0, 100, 10, 1)),
        (0, 100, 3 * KILO + 500, 3),
    ):
        told = await bodies_for(bench, ME, bound, most, most_bytes)
        assert [body.id for body in told] == every[:number]


async def test_an_archived_letter_is_dropped_and_swept_like_others(bench: Bench) -> None:
    await bench.enqueue(large("t", dead="no"), large("u", dead="no"))
    bodies, places = await bodies_for(bench, ME), [Place(n, f"m{n}") for n in range(2)]
    assert await archive(bench.client, bodies, places) == 2
    await play(bench, "drop t")
    assert await sweep_letters(bench.client, -1.0, 10) == ["u"]
    assert await archive(bench.client, bodies, places) == 0


async def test_it_leaves_when_redis_is_full_and_its_headers_with_it(bench: Bench) -> None:
    """That is what it is for."""
    envelope = Envelope("t", None, None, None, {"x": "y" * KILO}, b"z" * 100_000)
    await bench.enqueue(Arrival("t", envelope, dead="no"))
    bodies = await bodies_for(bench, ME)
    with bench.full():
        assert await bodies_for(bench, ME) == bodies
        assert await archive(bench.client, bodies, [Place(1, "m")]) == 1
    left: object = bench.raw.hget(bench.keys("tasks"), "t")
    assert left == replace(envelope, headers={}, body=b"").pack()


# On their way to a stream of RabbitMQ, and back


def settings_of(url: str, queue: str, **redis: Any) -> Settings:
    return Settings.model_validate({"rabbitmq": {"url": url, "queue": queue}, "redis": redis})


def dead(id_: str, size: int) -> Arrival:
    """A dead letter with a body of so many bytes."""
    return Arrival(id_, Envelope("t", None, None, None, {}, b"x" * size), dead="no")


async def archive_by_stream(bench: Bench, url: str, queue: str) -> int:
    stream = Archive(url, queue, retention=60.0, name="test")
    session = (await bench.daemon()).session
    return await Archiver(bench.client, session, stream, 0, lambda: False).archive()


@pytest.fixture
async def queue(rabbitmq_server: Any) -> AsyncIterator[str]:
    """A queue's name; its stream and its exchange are gone when the test is over."""
    queue = f"archiving-{uuid4().hex}"
    yield queue
    await forget(rabbitmq_server.url, queue)


@pytest.mark.parametrize("packed", [b"junk" * 1000, b"5\n" + b"x" * 4000])
async def test_what_is_no_envelope_leaves_and_comes_back(
    bench: Bench, rabbitmq_server: Any, queue: str, packed: bytes
) -> None:
    """A stranger wrote to our keys: that stops no archiving, and not a byte of it is lost."""
    await bench.enqueue(dead("t0", len(packed)), dead("t1", 10_000))
    bench.raw.hset(bench.keys("tasks"), "t0", packed)
    assert (await DeadLetters(bench.namespace).envelope("t0"))[0].body == packed
    assert await archive_by_stream(bench, rabbitmq_server.url, queue) == 2
    story = await letter(bench, "t0")
    assert story.errors[0]["message"] == "no", "that doesn't lie in the body"
    settings = settings_of(rabbitmq_server.url, queue)
    whole = (await whole_letter(settings, bench.namespace, story)).envelope
    assert (whole.body, whole.type) == (packed, "t")


@pytest.mark.parametrize("limit", ["redis.max_memory", "maxmemory"])
async def test_a_redrive_brings_back_no_more_than_there_is_room_for(
    tmp_path: Path, rabbitmq_server: Any, queue: str, limit: str
) -> None:
    url = rabbitmq_server.url
    with running(RedisServer(tmp_path)) as server:  # its memory is this test's alone
        bench = Bench(server.url)
        await bench.enqueue(dead("large", 8_000_000))
        await archive_by_stream(bench, url, queue)
        # The connection that brought the body is closed: Redis frees its buffer before it measures.
        await bench.client.close()
        bench = Bench(server.url, keys=bench.keys)
        story = replace(await letter(bench, "large"), died_at_the_door=False)
        memory = await DeadLetters(bench.namespace).memory()
        room = memory.used + 4_000_000  # less than the body needs
        ours, own = (room, 0) if limit == "redis.max_memory" else (0, room)
        bench.raw.config_set("maxmemory", own)
        redriver = Redriver(settings_of(url, queue, max_memory=ours), bench.namespace)
        with pytest.raises(StoreFull, match=limit):
            await redriver.redrive(story)
        bench.raw.config_set("maxmemory", 0)
        redriver = Redriver(settings_of(url, queue, max_memory=0), bench.namespace)
        assert await redriver.redrive(story)
        await bench.close()
