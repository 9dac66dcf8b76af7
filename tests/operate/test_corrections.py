"""A dead letter's body is corrected as it is redriven: which may be, what is kept of the old one.

The auditor compares what tasks and letters count with what they have at the end of each test too.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

import orjson
import pytest

from groupflow.core.errors import BodyUnfit
from groupflow.core.events import Told
from groupflow.core.task import Place
from groupflow.operate.archiving import WholeLetter, archive, beside_of, oldest_bodies
from groupflow.operate.corrections import read_corrections
from groupflow.operate.dead import DeadLetters
from groupflow.operate.redrive import KEPT, NewBody, Redriver, note_of
from groupflow.operate.tasks import Tasks
from groupflow.settings.model import Settings
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.sessions import Session
from groupflow.store.settlements import Retry
from tests.operate.spread import Spread
from tests.store.bench import Bench, bury
from tests.store.task_state import FAILURE, found, letter

SETTINGS = Settings.model_validate(
    {
        "rabbitmq": {"max_body": 200_000},
        "fields": {"app": "app", "tenant": "tenant", "type": "type"},
        "groups": [{"name": "crm", "app": "crm", "key": "crm:{tenant}:{entity}"}],
    }
)
BODY = {"app": "crm", "tenant": "42", "type": "t", "entity": "a"}
AT_DOOR = "no entity"


def packed(**facts: Any) -> bytes:
    return orjson.dumps({**BODY, **facts})


def routed(id_: str, body: bytes, dead: str = "") -> Arrival:
    """A message as admission takes it in; one that is dead has no route."""
    if dead:
        return Arrival(id_, Envelope("t", None, None, None, {}, body), dead=dead)
    route = SETTINGS.router().route(body)
    facts = (route.type, route.group, route.tenant, route.rule)
    return Arrival(id_, Envelope(*facts, {}, body, route.scope))


async def die(bench: Bench, body: bytes, id_: str = "a") -> None:
    message = routed(id_, body)
    await bench.enqueue(message)
    daemon = await bench.daemon()
    await daemon.settle(bury(await daemon.claim_one(message.envelope.pool), "no number"))


async def correct(bench: Bench, body: bytes, by: str = "ada") -> bool:
    redriver = Redriver(SETTINGS, bench.namespace)
    return await redriver.redrive(await letter(bench, "a"), NewBody(body, by))


async def test_a_corrected_body_runs_and_the_old_one_stays_known(bench: Bench) -> None:
    """It stays through attempts and another death, and is seen of the task and of the letter."""
    await die(bench, packed(rows="7x"))
    assert await correct(bench, packed(rows=7))
    bench.events.clear()  # a redriven task starts once more, which the history can't know
    daemon = await bench.daemon()
    claim = await daemon.claim_one()
    assert (claim.task.body, claim.task.attempt) == (packed(rows=7), 1)
    await daemon.settle(Retry(claim, 0.0, FAILURE))
    old = packed(rows="7x")
    task = await found(bench, "a")
    [correction] = task.corrections
    assert (correction.by, correction.body, correction.bytes) == ("ada", old.decode(), len(old))
    assert correction.sha256 == sha256(old).hexdigest()
    assert abs(bench.raw.time()[0] - correction.at) < 60
    await daemon.settle(bury(await daemon.claim_one()))
    assert (await letter(bench, "a")).corrections == task.corrections
    assert await correct(bench, packed(rows=8), by="bob")
    assert [each.by for each in (await found(bench, "a")).corrections] == ["ada", "bob"]


@pytest.mark.parametrize(("body", "said"), [
    (packed(entity="b"), "its group would be 'crm:42:b', and was 'crm:42:a': correct that"),
    (packed(tenant="7"), "its tenant would be '7', and was '42': correct that too, or publish"),
    (packed(app="erp"), "its group would be none, and was 'crm:42:a'"),
    (packed(entity=None), "can't be routed"),
    (b"[1]", "the body is not a JSON object"),
    (b'{"rows": 7x}', "not JSON: "),
    (packed(note="x" * 200_000), "over rabbitmq.max_body = 200000: shorten it"),
])  # fmt: skip
async def test_an_unfit_body_changes_nothing(bench: Bench, body: bytes, said: str) -> None:
    await die(bench, packed())
    before = bench.dump()
    with pytest.raises(BodyUnfit, match=said):
        await correct(bench, body)
    assert bench.dump() == before


async def test_another_application_s_id_is_another_task(bench: Bench) -> None:
    """Though the group and the tenant are the same: none, and 42."""
    await die(bench, packed(app="one"))
    with pytest.raises(BodyUnfit, match="its application would be 'two', and was 'one'"):
        await correct(bench, packed(app="two"))


async def test_only_the_death_that_was_looked_at_gets_the_body(bench: Bench) -> None:
    """A call that is made again does nothing more, even if the task has died again since."""
    await die(bench, packed())
    letters, dead = DeadLetters(bench.namespace), await letter(bench, "a")
    envelope = replace(routed("a", packed()).envelope, body=packed(rows=7))

    async def redrive() -> bool:
        return await letters.redrive(dead, envelope, note=note_of(packed(), "ada"))

    assert await redrive()
    before = bench.dump()
    assert not await redrive()
    daemon = await bench.daemon()
    await daemon.settle(bury(await daemon.claim_one()))
    assert not await redrive()
    assert bench.dump() != before
    assert len((await letter(bench, "a")).corrections) == 1
    bench.events.clear()


async def test_a_correction_stays_that_came_while_the_old_body_was_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old body isn't put in its place, though the task has died again."""
    await die(bench, packed())
    (body,) = await oldest_bodies(bench.client, Session("d1"), 0, most=1, most_bytes=10**7)
    await archive(bench.client, [body], [Place(7, "m7")])
    read = WholeLetter(Envelope.unpack(body.packed), Place(7, "m7"), 1, beside_of(body.packed))
    daemon, calls = await bench.daemon(), [1, 2]

    async def whole_letter(*_: object) -> WholeLetter:
        if calls.pop() == 2:
            assert await correct(bench, packed(rows=7))
            await daemon.settle(bury(await daemon.claim_one()))
        return read

    monkeypatch.setattr("groupflow.operate.redrive.whole_letter", whole_letter)
    redriver = Redriver(SETTINGS, bench.namespace)
    assert not await redriver.redrive(await letter(bench, "a"))
    envelope, _ = await DeadLetters(bench.namespace).envelope("a")
    assert envelope.body == packed(rows=7)
    bench.events.clear()


async def test_a_letter_may_be_archived_while_it_is_redriven(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then its body is read from where it lies by now."""
    await die(bench, packed())
    (body,) = await oldest_bodies(bench.client, Session("d1"), 0, most=1, most_bytes=10**7)
    envelope, place = Envelope.unpack(body.packed), Place(7, "m7")
    reads = [WholeLetter(envelope), WholeLetter(envelope, place, 1, beside_of(body.packed))]

    async def whole_letter(*_: object) -> WholeLetter:
        assert await archive(bench.client, [body], [place]) == len(reads) - 1
        return reads.pop(0)

    monkeypatch.setattr("groupflow.operate.redrive.whole_letter", whole_letter)
    assert await correct(bench, packed(rows=7))
    claim = await (await bench.daemon()).claim_one()
    assert (claim.task.body, len(claim.errors)) == (packed(rows=7), 1)
    bench.events.clear()


async def test_what_never_had_a_route_gets_its_first_by_the_corrected_body(spread: Spread) -> None:
    """In the partition of its group, with the old body, which is no UTF-8."""
    await spread.enqueue(routed("a", b"\xff{", dead=AT_DOOR))
    dead = await letter(spread, "a")
    redriver = Redriver(SETTINGS, spread.namespace)
    with pytest.raises(BodyUnfit, match="not JSON"):
        await redriver.redrive(dead, NewBody(b"{", "ada"))
    assert await redriver.redrive(dead, NewBody(packed(), "ada"))
    task = await found(spread.benches[spread.place_of("crm:42:a")], "a")
    assert (task.group, task.tenant) == ("crm:42:a", "42")
    assert (task.corrections[0].body, task.corrections[0].body_base64) == (None, "/3s=")


async def test_who_asked_for_a_reply_gets_it_from_where_its_task_came_to(spread: Spread) -> None:
    """No message that asked for one was taken in there."""
    there = spread.place_of("crm:42:a")
    id_ = next(id_ for id_ in "abcdefgh" if spread.place_of(None, id_) != there)
    message = routed(id_, packed(), dead=AT_DOOR)
    message.envelope.origin = {"reply_to": "answers"}
    await spread.put(message)
    assert await Redriver(SETTINGS, spread.namespace).redrive(await letter(spread, id_))
    assert await Tasks(spread.namespace).cancel(id_, "ada") == "cancelled"
    bench = spread.benches[there]
    entries: Any = bench.raw.lrange(bench.keys("outbox"), 0, -1)
    assert [(each.event, each.reply_to) for each in map(Told.of, entries)] == [
        ("cancelled", "answers")
    ]


async def test_what_is_kept_is_bounded(bench: Bench) -> None:
    """Of each body its first 64 KiB, of all bodies the last four; what they take is counted."""
    long = packed(note="ä" * KEPT)
    await die(bench, long)
    daemon = await bench.daemon()
    for n in range(6):
        assert await correct(bench, packed(n=n), by=f"{n}\N{LINE SEPARATOR}")
        if n == 0:
            [first] = (await found(bench, "a")).corrections
            assert (first.is_cut, first.bytes, first.sha256) == (
                True, len(long), sha256(long).hexdigest(),
            )  # fmt: skip
            assert first.body is not None
            assert long.decode().startswith(first.body)
            assert KEPT - 4 < len(first.body.encode()) <= KEPT
            assert bench.count("carried_bytes") > KEPT
        await daemon.settle(bury(await daemon.claim_one()))
    kept = (await letter(bench, "a")).corrections
    assert [each.by for each in kept] == [f"{n}\N{LINE SEPARATOR}" for n in (2, 3, 4, 5)]
    bench.events.clear()


async def test_old_bodies_leave_with_an_archived_letter_and_come_back(bench: Bench) -> None:
    await die(bench, packed())
    assert await correct(bench, packed(rows=7))
    daemon = await bench.daemon()
    await daemon.settle(bury(await daemon.claim_one()))
    (body,) = await oldest_bodies(bench.client, Session("d1"), 0, most=1, most_bytes=10**7)
    await archive(bench.client, [body], [Place(7, "m7")])
    stub, beside = await letter(bench, "a"), beside_of(body.packed)
    assert stub.corrections == []
    assert beside is not None
    assert stub.with_beside(beside).corrections == read_corrections(beside.corrections)
    old = Envelope.unpack(body.packed)
    new, note = replace(old, body=packed(rows=8)), note_of(old.body, "bob")
    letters, place = DeadLetters(bench.namespace), Place(7, "m7")
    assert await letters.redrive(stub, new, place=place, beside=beside, note=note)
    corrections = (await found(bench, "a")).corrections
    assert [(each.by, each.body) for each in corrections] == [
        ("ada", packed().decode()), ("bob", packed(rows=7).decode()),
    ]  # fmt: skip
    bench.events.clear()
