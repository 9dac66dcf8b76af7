"""All dead letters that match a filter, in bounded steps, while others die and go."""

from __future__ import annotations

import pytest

from groupflow.core.errors import StoreUnavailable
from groupflow.core.task import Place
from groupflow.operate.archiving import archive, oldest_bodies
from groupflow.operate.bulk import count, each_step, step
from groupflow.operate.dead import DeadLetters, Filter
from groupflow.operate.pages import UnknownCursor
from groupflow.store.sessions import Session
from tests.operate.spread import Spread
from tests.store.bench import Bench, arrival

ROWS = Filter(reason="ROW")


async def _die(bench: Bench, *ids: str, reason: str = "no such row") -> None:
    for id_ in ids:
        await bench.enqueue(arrival(id_, dead=reason))


async def test_a_step_is_not_moved_by_letters_that_die_or_go(bench: Bench) -> None:
    """A letter that dies again behind its redrive is not met again; nor is one passed over."""
    await _die(bench, "a", "b", "c", "d", "e")
    letters, met = DeadLetters(bench.namespace), list[str]()
    cursor: str | None = "0"
    while cursor is not None:
        some = await step(bench.namespace, ROWS, cursor, most=2)
        met += [letter.id for letter in some.letters]
        assert await letters.drop(some.letters[0])
        await _die(bench, f"{some.letters[0].id} again")
        cursor = some.next
    assert met == ["e", "d", "c", "b", "a"]


async def test_a_step_looks_at_a_bounded_number(bench: Bench) -> None:
    """Where few pass the filter it ends without them, and the next goes on behind."""
    await _die(bench, "a")
    await bench.enqueue(*(arrival(f"other-{n}", dead="full") for n in range(1000)))
    first = await step(bench.namespace, ROWS)
    assert (first.letters, first.next) == ([], "0.1")
    last = await step(bench.namespace, ROWS, "0.1")
    assert ([letter.id for letter in last.letters], last.next) == (["a"], None)
    for wanted, number in ((ROWS, 1), (Filter(), 1001), (Filter(since=3600.0), 1001)):
        assert await count(bench.namespace, wanted) == number


async def test_what_died_earlier_is_not_looked_at(bench: Bench) -> None:
    await _die(bench, "old", "new")
    bench.raw.zadd(bench.keys("dead"), {"old": 1_000_000})
    for since, ids in ((3600.0, ["new"]), (1e9, ["new"]), (9e9, ["new", "old"])):
        found = await step(bench.namespace, Filter(since=since))
        assert [letter.id for letter in found.letters] == ids
        assert found.next is None


async def test_an_archived_letter_is_found_by_what_its_stub_says(bench: Bench) -> None:
    await _die(bench, "a")
    (body,) = await oldest_bodies(bench.client, Session("d1"), 0, most=1, most_bytes=10**6)
    await archive(bench.client, [body], [Place(1, "m1")])
    for wanted, number in (
        (ROWS, 1),
        (Filter(reason="such", since=60.0), 1),
        (Filter(type="u"), 0),
    ):
        assert await count(bench.namespace, wanted) == number


async def test_steps_go_over_all_partitions(spread: Spread) -> None:
    """One that is away is passed over, and named; a cursor of more partitions is refused."""
    for n in range(20):
        await spread.enqueue(arrival(f"t{n}", dead="no such row"))
    met = [letter.id async for some in each_step(spread.namespace, ROWS) for letter in some]
    assert sorted(met) == sorted(f"t{n}" for n in range(20))
    namespace = spread.without(0)
    assert 0 < await count(namespace, ROWS) < 20
    assert [each.partition for each in namespace.away] == [0]
    with pytest.raises(StoreUnavailable):
        await count(spread.without(0, 1, 2, 3), ROWS)
    with pytest.raises(UnknownCursor, match="more partitions"):
        await step(spread.namespace, ROWS, "9.3")
