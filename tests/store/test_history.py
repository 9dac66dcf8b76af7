"""The history: what is over is remembered for the dedup window, then forgotten whole."""

from __future__ import annotations

from typing import Any

from groupflow.store.history import rotate_history
from tests.store.bench import Bench, arrival

HOUR = 3600.0


def _age(bench: Bench, seconds: float) -> None:
    """Make the segments older."""
    segments: Any = bench.raw.hgetall(bench.keys("segments"))
    for name, at in segments.items():
        older = int(at) - round(seconds * 1_000_000)
        bench.raw.hset(bench.keys("segments"), name, f"{older:016d}")


async def _run_one(bench: Bench, id_: str) -> None:
    await bench.enqueue(arrival(id_))
    daemon = await bench.daemon()
    assert await daemon.work_off() == [id_]


async def test_id_is_known_for_the_whole_window(bench: Bench) -> None:
    """Over one roll an id is still a duplicate, over the second it is forgotten."""
    await rotate_history(bench.client, keep=HOUR, size=10)
    await _run_one(bench, "p0")
    _age(bench, HOUR)
    assert await rotate_history(bench.client, keep=HOUR, size=10)
    assert await bench.enqueue(arrival("p0")) == [False]
    _age(bench, HOUR / 2)
    assert not await rotate_history(bench.client, keep=HOUR, size=10)
    assert await bench.enqueue(arrival("p0")) == [False]
    _age(bench, HOUR / 2)
    assert await rotate_history(bench.client, keep=HOUR, size=10)
    assert await bench.enqueue(arrival("p0")) == [True]
    bench.events.clear()  # one id, and by right two tasks


async def test_full_segment_rolls_early_but_never_forgets_early(bench: Bench) -> None:
    """A size over the limit closes a segment; the one before stays for its window."""
    await rotate_history(bench.client, keep=HOUR, size=2)
    await bench.enqueue(*(arrival(f"p{n}") for n in range(2)))
    daemon = await bench.daemon()
    await daemon.work_off()
    assert await rotate_history(bench.client, keep=HOUR, size=2)
    await bench.enqueue(*(arrival(f"q{n}") for n in range(2)))
    await daemon.work_off()
    assert not await rotate_history(bench.client, keep=HOUR, size=2)
    assert await bench.enqueue(arrival("p0"), arrival("q0")) == [False, False]
    assert bench.raw.hlen(bench.keys("history_old")) == 2
    assert bench.raw.hlen(bench.keys("history_new")) == 2


async def test_an_empty_segment_that_has_aged_begins_again(bench: Bench) -> None:
    """Nothing is closed by it, and what ends next is not taken for old."""
    await rotate_history(bench.client, keep=HOUR, size=10)
    before: Any = bench.raw.hgetall(bench.keys("segments"))
    assert not await rotate_history(bench.client, keep=HOUR, size=10)
    assert bench.raw.hgetall(bench.keys("segments")) == before
    _age(bench, 2 * HOUR)
    assert not await rotate_history(bench.client, keep=HOUR, size=10)
    assert not bench.raw.hexists(bench.keys("segments"), "closed")
    await _run_one(bench, "p0")
    assert not await rotate_history(bench.client, keep=HOUR, size=10)


async def test_where_no_older_segment_is_kept_a_full_one_rolls_at_once(bench: Bench) -> None:
    await rotate_history(bench.client, keep=HOUR, size=1)
    await _run_one(bench, "p0")
    assert await rotate_history(bench.client, keep=HOUR, size=1)
    _age(bench, HOUR)
    assert await rotate_history(bench.client, keep=HOUR, size=1), "of nothing: the older one goes"
    await _run_one(bench, "q0")
    assert await rotate_history(bench.client, keep=HOUR, size=1)
    bench.events.clear()  # what was forgotten can't be accounted for
