"""What the store's Python makes of calls, answers, and of what lies in Redis."""

from __future__ import annotations

import pytest

from groupflow.core.errors import SessionLost
from groupflow.core.task import Task
from groupflow.store import enqueue, settlements
from groupflow.store.claims import Claims
from groupflow.store.enqueue import bound_of_delays
from groupflow.store.envelope import Envelope
from groupflow.store.given import Claim
from groupflow.store.settlements import Complete, Proceed, Release, Settlement, calls_of
from tests.store.bench import Bench, bury, with_fence
from tests.store.story import play
from tests.store.task_state import promote


async def test_each_answer_is_of_its_settlement_however_they_travel(shop: Bench) -> None:
    """What was settled is told on; nothing is, where the session is lost."""
    told = await play(shop, "take a0 b0 c0 d0 | claim a0 b0 c0 d0")
    accepted = list[Settlement]()
    claims = Claims(shop.client, (await told.daemon()).session, "plain", accepted.extend)
    a, b, c, d = (told.claim_of(id_)[1] for id_ in ("a0", "b0", "c0", "d0"))
    w, x, y, z = (with_fence(each, each.fence - 1) for each in (a, b, c, d))
    lost: list[Settlement] = [Release(w), Complete(x), bury(y), Proceed([Complete(z)], None)]
    every: list[Settlement] = [Release(a), lost[1], bury(c), lost[3]]
    for settled, stale in ((lost, lost), (every, [lost[1], lost[3]])):
        refused = (await claims.exchange(settled, [])).refused
        assert {*map(id, refused)} == {*map(id, stale)}
    assert {*map(id, accepted)} == {id(every[0]), id(every[2])}
    await told.go_on("lose")
    with pytest.raises(SessionLost):
        await claims.exchange([Complete(b), Complete(d)], ["w"])
    assert len(accepted) == 2


async def test_how_long_a_task_waited(shop: Bench) -> None:
    """Since it came, or was due; of a retry nothing is told, and no clock makes it negative."""
    told = await play(shop, "take p0 | claim p0 | take p1@0.05")
    while not await promote(shop):
        pass
    await told.go_on("claim p1 | retry p0 | time | claim p0")
    first, late, again = (told.claim_of(id_)[1] for id_ in ("p0'", "p1", "p0"))
    assert 0.0 <= (first.waited or 0.0) < 60.0
    assert late.waited is not None
    assert late.waited <= shop.server_time() / 1e6 - late.task.enqueued_at - 0.05
    assert (again.waited, again.task.enqueued_at) == (None, first.task.enqueued_at)
    ahead = shop.server_time() + 3_600_000_000
    shop.raw.hset(shop.keys("count"), "sequence", f"{ahead:016d}")
    await told.go_on("take p2 | claim p2")
    assert told.claim_of("p2")[1].waited == 0.0


def test_a_burial_counts_attempts_and_names_the_last_error() -> None:
    """What a message died of at the door was none; of many attempts only some errors stay."""
    errors = [{"error": enqueue.REJECTED}, {"error": "A"}, {"error": "B"}]
    for attempt, expected in ((1, 2), (9, 9)):
        task = Task("t1", "t", attempt=attempt, tenant="42")
        claim = Claim("s", 1, b"e", task, None, scope="crm")
        [(_, arguments)] = calls_of([], "plain", [settlements.Bury(claim, "r", errors)], [])[1]
        assert list(arguments[6:]) == ["skip", expected, "t", "42", "B", "crm"]


def test_delays_have_half_of_the_least_memory() -> None:
    assert bound_of_delays(100) == bound_of_delays(100, 0, 0) == 100
    assert bound_of_delays(100, 0, 120) == bound_of_delays(100, 120, 500) == 60


def test_an_envelope_comes_back_as_it_went_and_what_others_wrote_is_a_bare_body() -> None:
    for headers, scope in (({}, ""), ({"a": 1}, "crm")):
        envelope = Envelope("t", "g", None, "rule", headers, b"body\nmore", scope)
        assert Envelope.unpack(envelope.pack()) == envelope
    for packed in (b"no json", b'{"type": "t"}\nbody', b'["t"]\nbody'):
        found = Envelope.unpack_any(packed, "g")
        assert (found.type, found.group, found.body, found.scope) == ("", "g", packed, "")
