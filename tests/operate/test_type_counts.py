"""What handlers did by type: added up over daemons and intervals, bounded, and read by the hour."""

from __future__ import annotations

import orjson

from groupflow.core.measures import Types
from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.statistics import TYPES_KEPT, TypeCounter, count_types, read_types
from tests.store.bench import Bench


async def test_daemons_add_up_and_are_asked_for_what_is_new(bench: Bench) -> None:
    one, two = Types(["import"]), Types(["import", "mail"])
    counters = TypeCounter(one, 2), TypeCounter(two, 2)
    for types, name, seconds in ((one, "import", 0.02), (two, "import", 0.02), (two, "mail", 4.0)):
        types.of(name).settled["complete"] += 1
        types.of(name).handling.observe(seconds)
    two.of("mail").settled["bury"] += 2
    two.of("nobody's").settled["retry"] += 3
    for counter in (*counters, *counters):  # the second time nothing has come
        assert await count_types(bench.client, counter) > 0
    found = await read_types(bench.client, 1.0)
    rows = {row.type: (row.done, row.failed, row.dead) for row in found.types}
    assert rows == {"import": (2, 0, 0), "mail": (1, 0, 2), "other": (0, 3, 0)}
    (mail,) = (row for row in found.types if row.type == "mail")
    assert mail.duration_p50 is not None
    assert 2.5 < mail.duration_p50 <= mail.duration_p95 <= 5.0  # type: ignore[operator]
    assert found.utilisation is not None
    assert 0.0 < found.utilisation <= 1.0


async def test_types_are_bounded_and_intervals_pass(bench: Bench) -> None:
    verb = OperatorVerb.COUNT_TYPES
    for n in range(120):
        told = {"busy": 0, "capacity": 1, "types": {f"t{n:03}": [1, 0, 0]}}
        await bench.client.run(verb, 300_000_000, TYPES_KEPT, orjson.dumps(told))
    found = await read_types(bench.client, 24.0)
    assert len(found.types) == 101
    assert found.types[0].type == "other"
    assert sum(row.done for row in found.types) == 120
    # An interval so short that each call begins one of its own, in a ring of three.
    for _ in range(9):
        await bench.client.run(verb, 1, 3, orjson.dumps(told))
    assert len(bench.raw.hgetall(bench.keys("tallies"))) <= 4


async def test_nothing_is_known_of_an_empty_store(bench: Bench) -> None:
    found = await read_types(bench.client, 6.0)
    assert (found.types, found.utilisation, found.hours) == ([], None, 0.0)
