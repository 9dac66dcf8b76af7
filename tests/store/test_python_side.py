"""What the store's Python makes of calls and answers: each script's reply is given by the test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from groupflow.core.errors import SessionLost, SessionReplaced
from groupflow.core.task import Task
from groupflow.store import enqueue, history, settlements
from groupflow.store.claims import Claims
from groupflow.store.client import Call, StoreClient
from groupflow.store.clock import microseconds, seconds
from groupflow.store.enqueue import Arrival, Enqueuer, bound_of_delays
from groupflow.store.envelope import Envelope
from groupflow.store.epochs import NEVER, Epoch
from groupflow.store.given import Claim
from groupflow.store.keys import Keys, split_checkpoint, split_entry
from groupflow.store.scripts import Verb
from groupflow.store.sessions import HandedOver, Session, Sessions
from groupflow.store.settlements import Complete, Settlement, calls_of
from groupflow.store.task_state import TaskState
from groupflow.store.wire import Wires


class Redis(StoreClient):
    """Answers each call with what the test says."""

    def __init__(self, *answers: Any) -> None:
        super().__init__("redis://127.0.0.1:1", Keys("n"))
        self._replies = list(answers)
        self.calls: list[Call] = []

    async def run_all(self, calls: Sequence[Call], epoch: Epoch | None = None) -> list[Any]:
        self.calls += calls
        return [self._replies.pop(0) for _ in calls]

    async def run_replicated(self, verb: Any, arguments: Any, *_: Any) -> tuple[Any, int, Any]:
        return (await self.run_all([(verb, arguments)]))[0], 0, None


def session_of(number: str = "5") -> Session:
    session = Session("d1")
    session.number = number
    return session


def claim_of(n: int, **facts: Any) -> Claim:
    return Claim(f"s{n}", n, b"e", Task(f"t{n}", "t", f"g{n}"), None, **facts)


def _proof(n: int) -> tuple[Any, ...]:
    """What says whose a settlement of `claim_of` is."""
    return f"s{n}", b"%016d" % n, b"e", f"g{n}"


class TestSessions:
    @pytest.mark.parametrize(
        ("state", "error"), [(b"LOST", SessionLost), (b"REPLACED", SessionReplaced)]
    )
    def test_a_state_is_an_error_of_its_session(self, state: bytes, error: type[Exception]) -> None:
        session = session_of()
        session.check(b"OK")
        with pytest.raises(error):
            session.check(state)

    async def test_each_verb_says_that_the_session_is_lost(self) -> None:
        redis = Redis([b"LOST", 0, 0, b"", b"", 0, -1], [b"LOST"])
        sessions = Sessions(redis, session_of(), 8.0)
        with pytest.raises(SessionLost):
            await sessions.renew()
        with pytest.raises(SessionLost):
            await sessions.tell({}, {})

    async def test_a_register_shows_the_newest_session_and_keeps_the_next(self) -> None:
        """Where the name was taken over, there is no next one."""
        session = session_of("5")
        redis = Redis([b"6", [[b"t1", b"", b"7"]], b"e1", 1], [b"REPLACED", [], b"", 0])
        sessions = Sessions(redis, session, 8.0)
        assert await sessions.register({}) == [HandedOver("t1", None, 7, "d1")]
        assert session.number == "6"
        with pytest.raises(SessionReplaced):
            await sessions.register({})
        assert [call[1][3:] for call in redis.calls] == [
            (session.process, "5", "", b"", "", 0, 0, NEVER, ""),
            (session.process, "6", "", b"", "e1", 0, 0, "6", ""),
        ]

    @pytest.mark.parametrize(("told", "wait"), [(-1, None), (0, 0.0), (2_500_000, 2.5)])
    async def test_a_reap_tells_when_the_next_lease_may_end(
        self, told: int, wait: float | None
    ) -> None:
        redis = Redis([told, [[b"d2", b"t1", b"g", b"7"]]])
        assert await Sessions(redis, session_of(), 8.0).reap() == (
            wait,
            [HandedOver("t1", "g", 7, "d2")],
        )


class TestExchange:
    def _row(self, slot: bytes, **facts: bytes) -> list[Any]:
        task_state = [each for name, value in facts.items() for each in (name.encode(), value)]
        packed = Envelope("t", "g", "42", None, {}, b"body").pack()
        return [slot, b"7", b"0000000001000000:a", b"g", packed, task_state, []]

    async def test_what_was_refused_is_told_from_what_was_settled(self) -> None:
        accepted: list[Settlement] = []
        first, second, third = (Complete(claim_of(n)) for n in range(3))
        redis = Redis([b"OK", [1, 0, 1], [], 0, 0, 0, []])
        claims = Claims(redis, session_of(), "plain", accepted.extend)
        answer = await claims.exchange([first, second, third], [])
        assert answer.refused == [second]
        assert accepted == [first, third]
        assert answer.claims == []

    async def test_nothing_is_no_call(self) -> None:
        redis = Redis()
        assert (await Claims(redis, session_of(), "plain").exchange([], [])).claims == []
        assert redis.calls == []

    async def test_one_call_that_lost_the_session_loses_all(self) -> None:
        accepted: list[Settlement] = []
        redis = Redis([b"OK", [1]], [b"LOST", [], [], 0, 0, 0, []])
        claims = Claims(redis, session_of(), "plain", accepted.extend)
        first, second = settlements.Retry(claim_of(1), 2.5, []), Complete(claim_of(2))
        with pytest.raises(SessionLost):
            await claims.exchange([first, second], ["w"])
        assert accepted == []

    async def test_a_suspect_is_remembered_until_a_claim_says_otherwise(self) -> None:
        claimed, settled = [b"OK", [], [], 0, 1, 0, []], [b"OK", [1], [], 0, 0, 0, []]
        redis = Redis(claimed, settled, [b"OK", [], [], 0, 0, 0, []])
        claims = Claims(redis, session_of(), "plain")
        beside = [(await claims.exchange([], ["w"])).beside_quarantined]
        beside.append((await claims.exchange([Complete(claim_of(1))], [])).beside_quarantined)
        beside.append((await claims.exchange([], [])).beside_quarantined)
        beside.append((await claims.exchange([], ["w"])).beside_quarantined)
        assert beside == [True, True, True, False]

    async def test_a_claim_is_what_its_row_says(self) -> None:
        rows = [
            *self._row(b"w"),
            *self._row(b"v", due=b"3000000"),
            *self._row(b"u", attempt=b"2", enqueued=b"500000"),
        ]
        redis = Redis([b"OK", [], rows, 4_000_000, 0, 0, []])
        first, second, third = (
            await Claims(redis, session_of(), "grouped").exchange([], ["w", "v", "u"])
        ).claims
        assert (first.slot, first.fence, first.task.id, first.task.group) == ("w", 7, "a", "g")
        assert (first.waited, second.waited, third.waited) == (3.0, 1.0, None)
        assert (first.task.enqueued_at, third.task.enqueued_at) == (1.0, 0.5)
        assert (first.task.attempt, third.task.attempt) == (1, 2)

    async def test_a_clock_that_went_back_makes_no_wait_negative(self) -> None:
        redis = Redis([b"OK", [], self._row(b"w"), 900_000, 0, 0, []])
        [claim] = (await Claims(redis, session_of(), "grouped").exchange([], ["w"])).claims
        assert claim.waited == 0.0


class TestSettlements:
    async def test_each_answer_is_of_its_settlement(self) -> None:
        """In any order in which they travel."""
        every: list[Settlement] = [
            settlements.Release(claim_of(1)),
            Complete(claim_of(2)),
            settlements.Bury(claim_of(3), "broken", []),
            settlements.Proceed([Complete(claim_of(4))], None),
        ]
        told: tuple[list[Any], ...] = ([b"OK", [1], [], 0, 0, 0, []], [b"OK", [1]])
        for wrong, verdicts in ((0, [1, 0]), (1, [0, 1])):
            redis = Redis(*told, [b"OK", verdicts, [], 0, 0, 0, []])
            answer = await Claims(redis, session_of(), "plain").exchange(every, [])
            assert answer.refused == [every[wrong]]

    def test_what_is_done_goes_back_or_is_claimed_for_is_one_call(self) -> None:
        done = [Complete(claim_of(n)) for n in (1, 2)]
        back = settlements.Release(claim_of(3))
        every: list[Settlement] = [back, *done]
        ordered, calls = calls_of(["d1", "5"], "grouped", every, ["w", "v"], runs=b"{}")
        assert ordered == [*done, back]
        expected: list[Any] = ["d1", "5", "grouped", 2, 1, b"{}", 0]
        for n in (1, 2):
            expected += [*_proof(n), settlements.history_line("done", "t", f"g{n}", 1, scope="")]
        assert calls == [(Verb.EXCHANGE, [*expected, *_proof(3), "w", "v"])]

    def test_what_is_rare_travels_alone_in_front_of_the_rest(self) -> None:
        claim = claim_of(1)
        every: list[Settlement] = [
            settlements.Bury(claim, "broken", [], park=True),
            settlements.Release(claim),
            settlements.Retry(claim, 2.5, [{"error": "E"}], "step-aside"),
            Complete(claim),
            settlements.Advance(claim, "next", b"{}"),
            settlements.Proceed([Complete(claim)], None),
        ]
        ordered, calls = calls_of(["d1", "5"], "plain", every, ["w"])
        verbs = [Verb.EXCHANGE, Verb.BURY, Verb.RETRY, Verb.ADVANCE, Verb.EXCHANGE]
        assert [verb for verb, _ in calls] == verbs
        assert ordered == [every[n] for n in (5, 0, 2, 4, 3, 1)]
        assert [tuple(call[1][2:6]) for call in calls[1:4]] == [_proof(1)] * 3
        assert calls[2][1][6:11] == [2, 2_500_000, "step-aside", b'[{"error":"E"}]', "task"]
        assert calls[1][1][6:] == ["broken", b"[]", "park", 1, "t", "", "", ""]

    def test_a_burial_counts_attempts_and_names_the_last_error(self) -> None:
        """What a message died of at the door was none; of many attempts only some errors stay."""
        errors = [{"error": enqueue.REJECTED}, {"error": "A"}, {"error": "B"}]
        for attempt, expected in ((1, 2), (9, 9)):
            claim = claim_of(1, scope="crm")
            claim.task = Task("t1", "t", attempt=attempt, tenant="42")
            buried = settlements.Bury(claim, "r", errors)
            [(_, arguments)] = calls_of([], "plain", [buried], [])[1]
            assert list(arguments[6:]) == ["skip", expected, "t", "42", "B", "crm"]

    def test_a_line_of_the_history_ends_with_its_scope(self) -> None:
        line = settlements.history_line
        assert orjson.loads(line("done", "t", "g", 2, 1)) == ["done", "t", "g", 2, 1]
        assert orjson.loads(line("done", "t", None, scope="")) == ["done", "t", None, 0, 0, ""]


class TestEnqueue:
    async def test_places_and_names_are_those_of_the_batch(self) -> None:
        """The script counts from 1."""
        redis = Redis([9, [1, 0, b"c-2"], [1, 3], 0, 2])
        batch = [Arrival(name, Envelope("t", None, None, None, {}, b"")) for name in "abc"]
        enqueued = await Enqueuer(redis).enqueue(batch)
        assert enqueued.queued == 9
        assert enqueued.taken == [True, False, True]
        assert enqueued.renamed == {2: "c-2"}
        assert enqueued.crowded_out == {0, 2}
        assert enqueued.superseded == 2
        assert len(redis.calls[0][1]) == 5 + 10 * 3

    def test_facts_lie_apart_where_an_envelope_is_not_read_whole(self) -> None:
        def facts(size: int = 0, **more: Any) -> Any:
            envelope = Envelope("t", None, "42", None, {}, b"")
            body = b"x" * (size - len(envelope.pack())) if size else b""
            whole = Envelope("t", None, "42", None, {}, body)
            return Arrival("a", whole, **more).arguments()[8]

        assert facts() == facts(enqueue.READ_WHOLE) == b""
        kept = b'["t","42"]'
        assert facts(enqueue.READ_WHOLE + 1) == kept
        assert facts(delay=1.0) == facts(dead="broken") == kept

    def test_only_the_dead_bring_an_error(self) -> None:
        envelope = Envelope("t", None, None, None, {}, b"")
        assert Arrival("a", envelope).arguments()[6] == b""
        dead = Arrival("a", envelope, dead="broken", steps_aside=True).arguments()
        assert isinstance(dead[6], bytes)
        assert orjson.loads(dead[6]) == [{"error": enqueue.REJECTED, "message": "broken"}]
        assert dead[4] == "aside"

    def test_delays_have_half_of_the_least_memory(self) -> None:
        assert bound_of_delays(100) == bound_of_delays(100, 0, 0) == 100
        assert bound_of_delays(100, 0, 120) == bound_of_delays(100, 120, 500) == 60


@pytest.mark.parametrize(("forgotten", "is_more"), [(0, False), (125, False), (126, True)])
async def test_a_sweep_goes_on_while_a_quarter_of_a_look_went(
    forgotten: int, is_more: bool
) -> None:
    redis = Redis(forgotten, 0, 1)
    assert await history.sweep_renamed(redis) is is_more
    assert redis.calls[0][1] == (500,)
    began = [await history.rotate_history(redis, keep=1.5, size=9) for _ in range(2)]
    assert began == [False, True]
    assert redis.calls[1][1] == (1_500_000, 9)


def test_times_are_microseconds() -> None:
    assert microseconds(1.5) == 1_500_000
    assert seconds(2_500_000) == 2.5


def test_elements_and_checkpoints_are_cut_where_their_parts_begin() -> None:
    assert split_entry(b"0000000000000017:a:b") == (17, "a:b")
    head = b"L" + b"%016d" % 7 + b"%016d" % 5 + b"%016d" % 9 + b"%04d" % 3
    assert split_checkpoint(head + b"abcgroup") == (7, 9, b"abc", "group")


def test_what_others_wrote_is_a_bare_body() -> None:
    for packed in (b"no json", b'{"type": "t"}\nbody', b'["t"]\nbody'):
        found = Envelope.unpack_any(packed, "g")
        assert (found.type, found.group, found.body, found.scope) == ("", "g", packed, "")


def test_an_envelope_comes_back_as_it_went() -> None:
    for headers, scope in (({}, ""), ({"a": 1}, "crm")):
        envelope = Envelope("t", "g", None, "rule", headers, b"body\nmore", scope)
        assert Envelope.unpack(envelope.pack()) == envelope
    assert Envelope("t", "g", None, None, {}, b"").pool == "grouped"
    assert Envelope("t", None, None, None, {}, b"").pool == "plain"


def test_a_life_says_whether_its_task_was_claimed() -> None:
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
