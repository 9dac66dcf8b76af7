"""What leaves Redis of a dead letter, what stays, who moves it, and what a redrive brings back.

The auditor compares what letters count with what they have at the end of each of these tests too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from groupflow.core.errors import LetterArchived
from groupflow.core.task import Place
from groupflow.operate.archiving import (
    REASON_SHOWN,
    LetterBody,
    archive,
    beside_of,
    oldest_bodies,
    stay,
)
from groupflow.operate.dead import DeadLetters
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.sessions import Session
from groupflow.store.settlements import Advance
from tests.store.bench import Bench, arrival, bury
from tests.store.task_state import letter

MOST = 10**7
STUB = 800  # bytes that stay of an archived letter, with what the test takes beside
REASON = "the body is no JSON: unexpected character: line 1 column 1 (char 0)"


def malformed(n: int) -> Arrival:
    """A tiny message that nobody can route, with its reason twice, as admission writes it."""
    envelope = Envelope("", None, None, None, {}, b"?", "0123456789abcdef")
    return Arrival(f"malformed-{n:06}", envelope, dead=REASON)


async def bodies_for(
    bench: Bench, session: Session, bound: int = 0, most: int = 200
) -> list[LetterBody]:
    return await oldest_bodies(bench.client, session, bound, most=most, most_bytes=MOST)


async def archive_all(bench: Bench) -> None:
    """All that may leave, as if it were in the stream."""
    while bodies := await bodies_for(bench, Session("d1")):
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


async def test_errors_and_context_count_leave_and_come_back(bench: Bench) -> None:
    """A context is as large as a handler makes it, and no list shows it."""
    context = orjson.dumps({"seen": "ä\n" * 50_000})
    await bench.enqueue(arrival("t", "g"))
    daemon = await bench.daemon()
    await daemon.settle(Advance(await daemon.claim_one(), "second", context, "hold"))
    said = "no such row: " + " ".join(map(str, range(400)))
    await daemon.settle(bury(await daemon.claim_one(), said))
    assert bench.count("dead_bytes") > len(context) + len(said)

    (body,) = await bodies_for(bench, Session("d1"))
    await archive(bench.client, [body], [Place(7, "m7")])
    task_state: Any = bench.raw.hgetall(bench.keys("task_state", "t"))
    assert sum(map(len, task_state.values())) < 500
    letters, story = DeadLetters(bench.namespace), await letter(bench, "t")
    assert story.reason == f"{said[:REASON_SHOWN]} …", "it lies in pieces"
    assert story.errors == []
    assert (await letters.envelope("t"))[1] == Place(7, "m7")

    beside = beside_of(body.packed)
    assert beside is not None
    whole = story.with_beside(beside)
    assert (whole.reason, whole.errors[0]["message"]) == (said, said)
    back = Envelope.unpack(body.packed)
    assert back == arrival("t", "g").envelope
    assert await letters.redrive(story, back, place=Place(7, "m7"), beside=beside)
    again = await daemon.claim_one()
    assert (again.task.stage, again.task.context) == ("second", orjson.loads(context))
    assert again.errors == whole.errors
    await daemon.complete(again)
    bench.events.clear()  # a redriven task starts once more, which the history can't know


async def test_a_redrive_wants_what_lies_where_the_letter_says(bench: Bench) -> None:
    """It may have died again meanwhile, with another context, and have been archived elsewhere."""
    await bench.enqueue(arrival("t", dead="no"))
    (body,) = await bodies_for(bench, Session("d1"))
    await archive(bench.client, [body], [Place(2, "new")])
    letters, before = DeadLetters(bench.namespace), bench.dump()
    envelope = Envelope.unpack(body.packed)
    with pytest.raises(LetterArchived, match="RabbitMQ"):
        await letters.redrive(await letter(bench, "t"), envelope, place=Place(1, "old"))
    assert bench.dump() == before


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
    me = Session("d1")
    first, second = await bodies_for(bench, me)
    held = bench.count("dead_bytes")
    assert not await stay(bench.client, replace(first, died_at=b"1"))
    assert await stay(bench.client, first)
    assert not await stay(bench.client, first)
    assert await bodies_for(bench, me) == [second]
    assert await archive(bench.client, [first], [Place(0, "m")]) == 0
    assert (bench.count("dead_bytes"), (await bench.status()).dead_staying) == (held, 1)
    assert await DeadLetters(bench.namespace).drop(await letter(bench, first.id))
    assert (await bench.status()).dead_staying == 0
    assert bench.count("dead_bytes") == held / 2
