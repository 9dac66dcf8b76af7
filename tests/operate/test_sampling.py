"""Samples: one an interval from all daemons, rings that stay small, what is counted added up."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import Any

import orjson
import pytest

from groupflow.cli.status import rates_line
from groupflow.core.measures import DURATIONS, Types
from groupflow.operate import statistics, types
from groupflow.operate.busy import read_tops
from groupflow.operate.groups import Groups
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import Argument
from groupflow.store.settlements import Advance, Bury, Complete, Release, Retry, Settlement
from tests.store.bench import Bench, arrival, totals

TINY = 1  # µs: so each call begins an interval


async def _sample(
    bench: Bench, interval: int = 3_600_000_000, kept: int = 10**6, thinned: int = 1
) -> int:
    """One sample with an interval of a test's own, in which the clock plays no part.

    So many are kept that two of them do not meet in one place.
    """
    told = orjson.dumps({"times": [[0, 2]] * 3, "busy": 0, "capacity": 0})
    rings = ("", interval, kept, "d", interval * thinned, kept)
    reply = await bench.client.run(OperatorVerb.SAMPLE, told, *rings)
    return int(reply[1])


def sample_at(at: float, total: int) -> statistics.Sample:
    facts: Any = dict.fromkeys(statistics.Sample.__dataclass_fields__, 0)
    totals_then = dict.fromkeys(("taken_total", "done_total", "buried_total"), total)
    return statistics.Sample(**{**facts, **totals_then, "at": at})


MANY = "a second, over the last 60 s: 2.0 in, 2.0 done, 2.0 dead"
RATES: dict[str, Any] = {
    "few": (70, {0: 0, 10: 600, 20: 612}, (0.2, 60), "in the last 60 s: 12 in, 12 done, 12 dead"),
    "begun just now": (24, {20: 611, 22: 612}, (0.25, 4), "in the last 4 s: 1 in, 1 done, 1 dead"),
    "many": (70, {10: 492, 20: 500}, (2, 60), MANY),
    "no daemon has kept any since": (70, {0: 0, 10: 612}, None, ""),
    "none": (70, {}, None, ""),
}


@pytest.mark.parametrize(("now", "samples", "rates", "said"), RATES.values(), ids=[*RATES])
def test_rates_are_those_of_the_last_minute(
    now: float, samples: dict[int, int], rates: tuple[float, float] | None, said: str
) -> None:
    facts: Any = dict.fromkeys(("taken_total", "done_total", "buried_total"), 612)
    kept = [sample_at(at, total) for at, total in samples.items()]
    found = statistics.rates_of(kept, totals(at=now, **facts))
    if rates is None:
        assert found is None
    else:
        rate, span = rates
        assert found == statistics.Rates(rate, rate, rate, span)
        assert rates_line(found).startswith(said)


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
    """From the enqueue to the settle, of completed tasks alone; how long it ran is told apart."""
    await bench.enqueue(arrival("p0"), arrival("p1"))
    daemon = await bench.daemon()
    first, second = await daemon.claim("plain", "w1", "w2")
    latencies = statistics.Latencies()
    latencies.set_clock(100.0)
    latencies.observe([Complete(first, 40.0), Release(second)])
    whole, waited, ran = (types.quantile(each, 0.5) or 0.0 for each in latencies.take())
    assert (85 < whole < 115, 50 < waited < 70, 30 < ran < 50) == (True, True, True)
    assert [sum(counts) for counts in latencies.take()] == [0, 0, 0]
    await daemon.complete(first, second)


def test_a_quantile_is_the_middle_of_its_bucket() -> None:
    """All took 20 s: none is told to have taken 29."""
    quantile, counts = types.quantile, [0] * (len(DURATIONS) + 1)
    assert quantile(counts, 0.5) is None
    counts[bisect_left(DURATIONS, 20.0)], counts[bisect_left(DURATIONS, 900.0)] = 98, 2
    assert quantile(counts, 0.5) == quantile(counts, 0.95) == pytest.approx(20, rel=0.125)
    assert quantile(counts, 0.99) == pytest.approx(900, rel=0.125)
    assert quantile([*counts[:-1], 1000], 0.5) == DURATIONS[-1]


async def test_quantiles_are_of_the_tasks_of_some_minutes(bench: Bench) -> None:
    """Where few are done, those of ten seconds jump."""
    for slow in (9, *[0] * statistics.SMOOTHED):
        times = [[1, *[0] * 79, slow], [1], [1]]
        told = orjson.dumps({"times": times, "busy": 0, "capacity": 0})
        await bench.client.run(OperatorVerb.SAMPLE, told, *("", TINY, 10**6, "d", TINY, 10**6))
    found = [each.latency_p99 for each in await statistics.read_samples(bench.namespace)]
    assert found[0] == found[-2] != found[-1]


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


async def test_types_are_counted_as_they_are_settled(bench: Bench) -> None:
    """What a daemon has settled counts, though it is killed before it tells anything else."""
    nothing = await types.read_types(bench.namespace, 1)
    assert (nothing.types, nothing.utilisation, nothing.hours) == ([], None, 0.0)
    await bench.enqueue(*(arrival(f"p{n}") for n in range(6)))
    daemon = await bench.daemon()
    claims = await daemon.claim("plain", *(f"w{n}" for n in range(6)))
    stranger = replace(claims[0], task=replace(claims[0].task, type="stranger"))
    error = {"attempt": 1, "error": "E", "message": "", "seconds": 4.0}
    ends: list[Settlement] = [
        *(Complete(stranger, 0.02), Complete(claims[1], 20.0), Complete(claims[5], 20.0)),
        *(Retry(claims[2], 600.0, [error]), Bury(claims[3], "E", [error])),
        Advance(claims[4], "next", b"1", after=600.0, seconds=4.0, rows=(70, 5)),
    ]
    for _ in range(2):  # its reply was lost, and it tells all of it again
        await daemon.exchange("plain", ends, [])
    wanted = {"t": (72, 6, 1, 1), "other": (1, 0, 0, 0)}
    for _ in range(2):  # once before a sample moves it, once behind that
        found = await types.read_types(bench.namespace, 6)
        rows = {row.type: (row.done, row.failed, row.dead, row.stages) for row in found.types}
        assert rows == wanted
        (known, _) = found.types
        assert (known.histogram[0][1], known.histogram[-1][1]) == (3, 2)
        assert (known.duration_p50, known.duration_p95) == (4.5, 22.0)
        assert (sum(known.done_steps), len(known.done_steps)) == (72, 72)
        await statistics.take_sample(bench.client, statistics.Latencies())
    assert not bench.raw.exists(bench.keys("tally"))
    bench.events.clear()


async def test_how_busy_workers_are(bench: Bench) -> None:
    measured = Types(["import"])
    workers = [2]
    busyness = statistics.Busyness(measured, lambda: workers[0])
    measured.of("stranger").handling.observe(3600.0)
    for _ in range(2):  # the second time nothing has come
        await statistics.take_sample(bench.client, statistics.Latencies(), busyness)
    assert (await types.read_types(bench.namespace, 24)).utilisation == 1.0
    assert busyness.take()[0] == 0.0
    workers[0] = 0  # a reload
    assert busyness.take()[1] == 0.0


async def test_types_are_bounded_and_intervals_pass(bench: Bench) -> None:
    told = orjson.dumps({"times": [], "busy": 0, "capacity": 0})

    async def count(length: int, kept: int, *names: str) -> None:
        for name in names:
            bench.raw.hset(bench.keys("tally"), f"d09{name}", 1)
        rings: list[Argument] = ["", TINY, statistics.KEPT, "d", TINY, statistics.KEPT]
        await bench.client.run(OperatorVerb.SAMPLE, told, *rings, "f", length, kept)

    names = [f"t{n:03}" for n in range(120)]
    await count(300_000_000, types.RINGS[6].kept, *names[:60])
    await count(300_000_000, types.RINGS[6].kept, *names[60:])
    found = await types.read_types(bench.namespace, 6)
    assert len(found.types) == 51
    assert (found.types[0].type, found.types[0].done) == ("other", 70)
    # An interval so short that each call begins one of its own, in a ring of three.
    for _ in range(9):
        await count(1, 3, "t")
    assert len(bench.raw.hgetall(bench.keys("tallies"))) <= 4
