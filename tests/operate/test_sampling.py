"""Samples: one an interval from all daemons, a ring that stays small, latencies added up."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from groupflow.core.measures import HANDLING, Types
from groupflow.operate import statistics
from groupflow.operate.busy import read_tops
from groupflow.operate.groups import Groups
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.settlements import Complete, Release
from tests.store.bench import Bench, arrival

TINY = 1  # µs: so each call begins an interval


async def _sample(
    bench: Bench, interval: int = 3_600_000_000, kept: int = statistics.KEPT, thinned: int = 1
) -> int:
    """One sample with an interval of a test's own, in which the clock plays no part."""
    counts = orjson.dumps([0, 2])
    reply = await bench.client.run(OperatorVerb.SAMPLE, interval, kept, counts, thinned)
    return int(reply[1])


def sample_at(at: float, rate: float | None) -> statistics.Sample:
    facts: Any = dict.fromkeys(statistics.Sample.__dataclass_fields__, 0)
    rates = dict.fromkeys(("taken_in", "done", "buried", "crashed"), rate)
    return statistics.Sample(**{**facts, **rates, "at": at})


def test_rates_are_those_of_the_last_minute() -> None:
    samples = [sample_at(0.0, None), sample_at(10.0, 900.0), sample_at(70.0, 2.0)]
    rates_of, minute = statistics.rates_of, statistics.MINUTE
    assert rates_of(samples, 10.0 + minute) == statistics.Rates(2.0, 2.0, 2.0)
    later = [*samples, sample_at(75.0, 4.0)]
    assert rates_of(later, 75.0) == statistics.Rates(3.0, 3.0, 3.0)
    assert rates_of(samples, 70.0 + minute) is None, "no daemon has kept any since"
    assert rates_of(samples[:1], 1.0) is None, "a first one has no rate"


async def test_one_sample_an_interval(bench: Bench) -> None:
    """The second call of an interval adds its latencies and changes no total."""
    await bench.enqueue(arrival("a"), arrival("b", "g"))
    assert await _sample(bench) == 1
    await bench.enqueue(arrival("c"))
    assert await _sample(bench) == 0
    (sample,) = await statistics.read_samples(bench.namespace)
    assert (sample.queued, sample.running, sample.ready, sample.measured) == (2, 0, 1, 4)
    assert sample.taken_in is None


async def test_rates_are_between_two_samples(bench: Bench) -> None:
    await _sample(bench, TINY)
    await bench.enqueue(*(arrival(f"p{n}") for n in range(10)))
    daemon = await bench.daemon()
    await daemon.work_off()
    await _sample(bench, TINY)
    before, after = await statistics.read_samples(bench.namespace)
    assert before.done is None
    assert (after.done or 0) * (after.at - before.at) == pytest.approx(10, rel=0.01)
    assert after.taken_in == after.done


async def test_the_ring_stays_small_and_what_is_too_old_is_not_shown(bench: Bench) -> None:
    key = bench.keys("samples")
    for _ in range(20):
        await _sample(bench, TINY, kept=3)
    assert {*bench.raw.hkeys(key)} <= {b"0", b"1", b"2", b"d0", b"d1", b"d2"}
    bench.raw.delete(key)
    await _sample(bench)
    rows = {name: orjson.loads(packed) for name, packed in bench.raw.hgetall(key).items()}
    hour, day = statistics.KEPT * statistics.INTERVAL, statistics.THINNED
    for age, found in ((hour, (0, 1)), (day * hour, (0, 0))):
        for name, row in rows.items():
            aged = row["day"] if isinstance(row, dict) else row
            aged[0] = f"{int(aged[0]) - round((age + 60) * 1e6):016d}"
            bench.raw.hset(key, name, orjson.dumps(row))
        shown = [await statistics.read_samples(bench.namespace, of_day=of) for of in (False, True)]
        assert tuple(map(len, shown)) == found


async def test_a_day_has_fewer_samples_and_loses_no_measure(bench: Bench) -> None:
    """One of many intervals has the latencies of all of them; the newest of all comes last."""
    for n in range(4):
        await bench.enqueue(arrival(f"p{n}"))
        await _sample(bench, TINY, thinned=3_600_000_000)
    hour = await statistics.read_samples(bench.namespace)
    first, newest = await statistics.read_samples(bench.namespace, of_day=True)
    assert [sample.measured for sample in (*hour, first)] == [2, 2, 2, 2, 8]
    assert (first.queued, newest.queued, newest.at) == (1, 4, hour[-1].at)
    assert newest.taken_in == pytest.approx(3 / (newest.at - first.at), rel=0.01)


async def test_latency_of_what_was_accepted(bench: Bench) -> None:
    """From the enqueue to the settle, of completed tasks alone."""
    await bench.enqueue(arrival("p0"), arrival("p1"))
    daemon = await bench.daemon()
    first, second = await daemon.claim("plain", "w1", "w2")
    latencies = statistics.Latencies()
    latencies.set_clock(100.0)
    latencies.observe([Complete(first), Release(second)])
    counts = latencies.take()
    assert sum(counts) == 1
    assert 60 < (statistics.quantile(counts, 0.5) or 0) < 170
    assert sum(latencies.take()) == 0
    await daemon.complete(first, second)


def test_quantiles() -> None:
    quantile, counts = statistics.quantile, [0] * (len(statistics.BOUNDS) + 1)
    assert quantile(counts, 0.5) is None
    counts[15] = 98  # 0.63 to 1 s
    counts[20] = 2  # 6.3 to 10 s
    assert 0.63 < (quantile(counts, 0.5) or 0) < 1.0
    assert 6.3 < (quantile(counts, 0.99) or 0) <= 10.0
    durations = [0] * (len(HANDLING) + 1)
    durations[HANDLING.index(0.1)] = 10
    assert 0.05 < (quantile(durations, 0.5, HANDLING, None) or 0) <= 0.1
    durations[-1] = 1000
    assert quantile(durations, 0.95, HANDLING, None) == HANDLING[-1]


async def test_the_longest_are_found_in_steps(bench: Bench) -> None:
    """Few groups a call: after enough calls the longest lane of all is known."""
    for n in range(12):
        await bench.enqueue(*(arrival(f"g{n}-{i}", f"g{n:02}") for i in range(2 if n != 9 else 5)))
    for _ in range(5):
        await bench.client.run(OperatorVerb.FIND_LONGEST, 3, 4)
    tops = await read_tops(bench.namespace)
    assert (tops.longest[0].group, tops.longest[0].waiting) == ("g09", 5)
    assert (tops.slowest[0].group, tops.slowest[0].state) == ("g00", "ready")
    assert (len(tops.longest), tops.looked_at) == (4, 12)


async def test_tops_of_every_state(bench: Bench) -> None:
    """Each group under its own; what is over is forgotten."""
    await bench.enqueue(arrival("r0", "run"), arrival("r1", "run"))
    daemon = await bench.daemon()
    claim = await daemon.claim_one()
    await bench.enqueue(arrival("p0", "pause"), arrival("h0", "hold", delay=600.0))
    await Groups(bench.namespace).pause("pause", "me")
    await statistics.find_longest(bench.client)
    tops = await read_tops(bench.namespace)
    states = {"run": "running", "hold": "delayed", "pause": "paused"}
    assert {top.group: top.state for top in tops.slowest} == states
    assert {top.group: top.state for top in tops.longest} == states
    await daemon.complete(claim)
    await daemon.work_off()
    tops = await read_tops(bench.namespace)
    assert {top.group for top in (*tops.longest, *tops.slowest)} == {"hold", "pause"}


async def test_daemons_add_up_and_are_asked_for_what_is_new(bench: Bench) -> None:
    nothing = await statistics.read_types(bench.client, 6.0)
    assert (nothing.types, nothing.utilisation, nothing.hours) == ([], None, 0.0)
    one, two = Types(["import"]), Types(["import", "mail"])
    counters = statistics.TypeCounter(one, 2), statistics.TypeCounter(two, 2)
    for types, name, seconds in ((one, "import", 0.02), (two, "import", 0.02), (two, "mail", 4.0)):
        types.of(name).settled["complete"] += 1
        types.of(name).handling.observe(seconds)
    two.of("mail").settled["bury"] += 2
    two.of("stranger").settled["retry"] += 3
    for counter in (*counters, *counters):  # the second time nothing has come
        assert await statistics.count_types(bench.client, counter) > 0
    found = await statistics.read_types(bench.client, 1.0)
    rows = {row.type: (row.done, row.failed, row.dead) for row in found.types}
    assert rows == {"import": (2, 0, 0), "mail": (1, 0, 2), "other": (0, 3, 0)}
    (mail,) = (row for row in found.types if row.type == "mail")
    assert 2.5 < (mail.duration_p50 or 0) <= (mail.duration_p95 or 0) <= 5.0
    assert 0.0 < (found.utilisation or 0) <= 1.0


async def test_types_are_bounded_and_intervals_pass(bench: Bench) -> None:
    verb = OperatorVerb.COUNT_TYPES
    for n in range(120):
        told = {"busy": 0, "capacity": 1, "types": {f"t{n:03}": [1, 0, 0]}}
        await bench.client.run(verb, 300_000_000, statistics.TYPES_KEPT, orjson.dumps(told))
    found = await statistics.read_types(bench.client, 24.0)
    assert len(found.types) == 101
    assert found.types[0].type == "other"
    assert sum(row.done for row in found.types) == 120
    # An interval so short that each call begins one of its own, in a ring of three.
    for _ in range(9):
        await bench.client.run(verb, 1, 3, orjson.dumps(told))
    assert len(bench.raw.hgetall(bench.keys("tallies"))) <= 4
