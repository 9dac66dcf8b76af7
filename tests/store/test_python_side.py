"""What the store's Python makes of calls, answers, and of what lies in Redis."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from groupflow.core.errors import SessionLost
from groupflow.core.task import Task
from groupflow.store import enqueue, history, settlements
from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds, seconds
from groupflow.store.enqueue import bound_of_delays
from groupflow.store.envelope import Envelope
from groupflow.store.given import Claim
from groupflow.store.keys import Keys, split_checkpoint, split_entry
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Complete, Settlement, calls_of
from groupflow.store.task_state import TaskState
from groupflow.store.wire import Wires
from tests.store.bench import Bench, bury, with_fence
from tests.store.story import play
from tests.store.task_state import promote


async def test_each_answer_is_of_its_settlement_however_they_travel(shop: Bench) -> None:
    """What was settled is told on; nothing is, where the session is lost."""
    told = await play(shop, "take a0 b0 c0 d0 | claim a0 b0 c0 d0")
    daemon, accepted = await told.daemon(), list[Settlement]()
    claims = Claims(shop.client, daemon.session, "plain", accepted.extend)
    a, b, c, d = (told.claim_of(id_)[1] for id_ in ("a0", "b0", "c0", "d0"))
    stale = [with_fence(each, each.fence - 1) for each in (a, b, c, d)]
    lost: list[Settlement] = [
        settlements.Release(stale[0]),
        Complete(stale[1]),
        bury(stale[2]),
        settlements.Proceed([Complete(stale[3])], None),
    ]
    refused = (await claims.exchange(lost, [])).refused
    assert {*map(id, refused)} == {*map(id, lost)}
    every: list[Settlement] = [settlements.Release(a), lost[1], bury(c), lost[3]]
    refused = (await claims.exchange(every, [])).refused
    assert {*map(id, refused)} == {id(lost[1]), id(lost[3])}
    assert {*map(id, accepted)} == {id(every[0]), id(every[2])}
    assert (await claims.exchange([], [])).claims == []
    await told.go_on("lose")
    with pytest.raises(SessionLost):
        await claims.exchange([Complete(b), Complete(d)], ["w"])
    assert len(accepted) == 2


async def test_how_long_a_task_waited(shop: Bench) -> None:
    """Since it came, or was due; of a retry nothing is told, and no clock makes it negative."""
    told = await play(shop, "take p0 | claim p0 | take p1@0.05")
    while not await promote(shop):
        pass
    await told.go_on("claim p1")
    first, late = (told.claim_of(id_)[1] for id_ in ("p0", "p1"))
    assert 0.0 <= (first.waited or 0.0) < 60.0
    since = shop.server_time() / 1e6 - late.task.enqueued_at
    assert late.waited is not None
    assert late.waited <= since - 0.05
    await told.go_on("retry p0 | time | claim p0/2")
    again = told.claim_of("p0")[1]
    assert (again.waited, again.task.enqueued_at) == (None, first.task.enqueued_at)
    ahead = shop.server_time() + 3_600_000_000
    shop.raw.hset(shop.keys("count"), "sequence", f"{ahead:016d}")
    await told.go_on("take p2 | claim p2")
    assert told.claim_of("p2")[1].waited == 0.0


def claim_of(n: int, **facts: Any) -> Claim:
    return Claim(f"s{n}", n, b"e", Task(f"t{n}", "t", f"g{n}"), None, **facts)


def test_what_is_rare_travels_alone_in_front_of_the_rest() -> None:
    every: list[Settlement] = [
        settlements.Bury(claim_of(1), "broken", [], park=True),
        settlements.Release(claim_of(2)),
        settlements.Retry(claim_of(3), 2.5, [], "step-aside"),
        Complete(claim_of(4)),
        settlements.Advance(claim_of(5), "next", b"{}"),
        settlements.Proceed([Complete(claim_of(6))], None),
    ]
    ordered, calls = calls_of(["d1", "5"], "plain", every, ["w"])
    verbs = [Verb.EXCHANGE, Verb.BURY, Verb.RETRY, Verb.ADVANCE, Verb.EXCHANGE]
    assert [verb for verb, _ in calls] == verbs
    assert ordered == [every[n] for n in (5, 0, 2, 4, 3, 1)]


def test_a_burial_counts_attempts_and_names_the_last_error() -> None:
    """What a message died of at the door was none; of many attempts only some errors stay."""
    errors = [{"error": enqueue.REJECTED}, {"error": "A"}, {"error": "B"}]
    for attempt, expected in ((1, 2), (9, 9)):
        claim = claim_of(1, scope="crm")
        claim.task = Task("t1", "t", attempt=attempt, tenant="42")
        [(_, arguments)] = calls_of([], "plain", [settlements.Bury(claim, "r", errors)], [])[1]
        assert list(arguments[6:]) == ["skip", expected, "t", "42", "B", "crm"]


def test_a_line_of_the_history_ends_with_its_scope() -> None:
    line = settlements.history_line
    assert orjson.loads(line("done", "t", "g", 2, 1)) == ["done", "t", "g", 2, 1]
    assert orjson.loads(line("done", "t", None, scope="")) == ["done", "t", None, 0, 0, ""]


def test_delays_have_half_of_the_least_memory() -> None:
    assert bound_of_delays(100) == bound_of_delays(100, 0, 0) == 100
    assert bound_of_delays(100, 0, 120) == bound_of_delays(100, 120, 500) == 60


@pytest.mark.parametrize(("forgotten", "is_more"), [(0, False), (125, False), (126, True)])
async def test_a_sweep_goes_on_while_a_quarter_of_a_look_went(
    monkeypatch: pytest.MonkeyPatch, forgotten: int, is_more: bool
) -> None:
    async def run(_: StoreClient, verb: Verb, most: int) -> int:
        assert (verb, most) == (Verb.SWEEP_RENAMED, 500)
        return forgotten

    monkeypatch.setattr(StoreClient, "run", run)
    client = StoreClient("redis://127.0.0.1:1", Keys("n"))
    assert await history.sweep_renamed(client) is is_more


def test_what_lies_in_redis_is_cut_where_its_parts_begin() -> None:
    assert (microseconds(1.5), seconds(2_500_000)) == (1_500_000, 2.5)
    assert split_entry(b"0000000000000017:a:b") == (17, "a:b")
    head = b"L" + b"%016d" % 7 + b"%016d" % 5 + b"%016d" % 9 + b"%04d" % 3
    assert split_checkpoint(head + b"abcgroup") == (7, 9, b"abc", "group")


def test_an_envelope_comes_back_as_it_went_and_what_others_wrote_is_a_bare_body() -> None:
    for headers, scope in (({}, ""), ({"a": 1}, "crm")):
        envelope = Envelope("t", "g", None, "rule", headers, b"body\nmore", scope)
        assert Envelope.unpack(envelope.pack()) == envelope
    for packed in (b"no json", b'{"type": "t"}\nbody', b'["t"]\nbody'):
        found = Envelope.unpack_any(packed, "g")
        assert (found.type, found.group, found.body, found.scope) == ("", "g", packed, "")


def test_a_task_state_says_whether_its_task_was_claimed() -> None:
    assert TaskState.of([]) == TaskState()
    assert not TaskState.of([b"due", b"5", b"enqueued", b"4"]).was_claimed
    for name in (b"attempt", b"crashes"):
        assert TaskState.of([name, b"1"]).was_claimed
    found = TaskState.of([b"stage", b"s", b"context", b"[1]", b"due", b"5", b"enqueued", b"4"])
    assert (found.stage, found.context, found.due, found.enqueued) == ("s", [1], 5, 4)
    assert (found.attempt, found.crashes, found.was_claimed) == (1, 0, True)


def test_a_url_without_a_port_has_redis_own() -> None:
    wires = Wires("redis://host")
    assert (wires._host, wires._port, wires._database) == ("host", 6379, 0)
