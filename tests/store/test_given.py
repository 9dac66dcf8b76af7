"""What a run has behind its first task: read one by one, when its turn has come."""

from __future__ import annotations

from typing import Any

import pytest

from groupflow.flow.run import GroupRun
from groupflow.store import given
from groupflow.store.envelope import Envelope
from groupflow.store.given import NO_REST, Rest
from tests.store.bench import Bench, arrival, ids

NOW = 2_000_000  # µs


def rest_of(number: int) -> Rest:
    told: list[bytes] = []
    for n in range(number):
        envelope = Envelope("t", "g", None, "rule", {}, b"%d" % n)
        told += [b"%016d.t%d" % (1_000_000 + n * 500_000, n), envelope.pack()]
    return Rest("w1", "g", 7, told, NOW)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of what has been read, in order."""
    seen: list[str] = []
    claim_of = given.claim_of

    def read(*facts: Any) -> Any:
        claim = claim_of(*facts)
        seen.append(claim.task.id)
        return claim

    monkeypatch.setattr(given, "claim_of", read)
    return seen


def test_it_is_a_list_of_claims() -> None:
    rest = rest_of(3)
    assert ids(rest) == ids(rest[:]) == ["t0", "t1", "t2"]
    assert [claim.fence for claim in rest] == [7, 8, 9]
    assert (rest[-1].task.body, rest[-1].slot, rest[-1].task.group) == (b"2", "w1", "g")
    assert ids(rest[1:]) == ["t1", "t2"]
    with pytest.raises(IndexError):
        rest[3]


def test_what_can_be_told_without_a_look_into_it(reads: list[str]) -> None:
    rest = rest_of(4)
    assert (len(rest), rest.last_fence) == (4, 10)
    assert list(rest.waits()) == [1.0, 0.5, 0.0, 0.0]  # a clock that was set back is no wait
    assert rest.bytes == 4 * len(Envelope("t", "g", None, "rule", {}, b"0").pack())
    assert reads == []
    assert [claim.waited for claim in rest] == list(rest.waits())


def test_of_nothing_there_is_nothing() -> None:
    assert (list(NO_REST), NO_REST.last_fence, NO_REST.bytes) == ([], 0, 0)


def test_a_run_reads_each_once_at_its_turn_or_when_it_tells(reads: list[str]) -> None:
    [before], rest = rest_of(1), rest_of(5)
    reads.clear()
    run = GroupRun(rest, 60.0)
    claim = run.next(before)
    assert reads == ["t0"]
    run.tell(claim)
    run.told(arrived=True)
    run.tell(claim)
    run.told(arrived=True)
    assert reads == ["t0", "t1"]
    claim = run.next(claim)
    assert (claim.task.id, reads) == ("t1", ["t0", "t1"])
    assert ids(run.rest) == ["t2", "t3", "t4"]
    while run.goes_on:
        claim = run.next(claim)
    assert (claim.task.id, reads) == ("t4", ["t0", "t1", "t2", "t3", "t4"])
    run.tell(claim)


async def test_the_highest_fence_is_that_of_its_last(bench: Bench) -> None:
    """By which a server is known that has lost writes."""
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(4)))
    daemon = await bench.daemon()
    daemon.claims("grouped").adopt({"rule": 4})
    claim = await daemon.claim_one()
    assert claim.last_fence == claim.run[-1].fence == claim.fence + 3
    assert daemon.session.seen.fence >= claim.last_fence
