"""What is asked of a store: nothing in vain, nothing left lying, no more ahead than is begun.

That nothing is left lying where no wake tells of it: `test_exchange` and `test_sharing`.
"""

from __future__ import annotations

import pytest

from groupflow.flow.prefetch import AT_ONCE, MOST, PREFETCH_BYTES, Prefetch

QUICK = 1e-9  # seconds: next to no time at all


@pytest.fixture
def prefetch() -> Prefetch:
    return Prefetch()


def exchanged(
    prefetch: Prefetch,
    seconds: float,
    workers: int,
    came: int,
    *,
    handled: float | None = None,
    largest: int = 0,
) -> int:
    """An exchange that brought so many claims, after an attempt; how many are then ahead."""
    if handled is not None:
        prefetch.handled(handled)
    prefetch.call()  # after a call it is not empty
    asked = prefetch.ask(came, 0)
    prefetch.answered(asked, came, workers, seconds, largest=largest)
    return prefetch.claims


def test_as_many_are_wanted_as_workers_have_none(prefetch: Prefetch) -> None:
    """Of an empty store only what is freed."""
    assert [prefetch.wanted(workers=4, held=held) for held in (1, 6)] == [3, 0]
    prefetch.claims = 8
    assert prefetch.wanted(workers=4, held=6) == 6
    assert prefetch.wanted(workers=0, held=0) == 0
    prefetch.claims = 0
    assert not prefetch.goes_on(prefetch.ask(4, 0), 0, workers=4, held=0)
    assert [prefetch.wanted(4, 0, freed=freed) for freed in (0, 3)] == [0, 3]
    # Who asks for fewer than it settles leaves some: no wake tells of what they free.
    prefetch.ask(1, freed=2)
    assert prefetch.wanted(4, 0) == 4


@pytest.mark.parametrize(
    ("came", "tasks", "carried"),
    [(4, 4, AT_ONCE), (4, 7, AT_ONCE), (4, 8, 32), (16, 512, 2), (3, 1500, 1), (0, 0, 32)],
)
def test_fewer_runs_are_carried(prefetch: Prefetch, came: int, tasks: int, carried: int) -> None:
    """As many tasks together, more or less, as the latest answer says; none says nothing."""
    for brought, of in ((2, 4), (came, tasks)):
        prefetch.answered(prefetch.ask(20, 0), brought, 20, 0.002, tasks=of)
    assert prefetch.share(10_000) == carried


ANSWERS = [
    ((4, 0, 3, 3), False, 0),  # a short one: there is nothing more
    ((2, 0, 2, 2), True, 2),  # a whole one: there may be more,
    ((2, 0, 2, 4), False, 0),  # but no room for it
    ((2, 3, 1, 1), False, 0),  # who frees and asks for some knows of all that it freed
]


@pytest.mark.parametrize(("told", "goes_on", "wanted"), ANSWERS)
def test_what_short_and_whole_answers_tell(
    prefetch: Prefetch, told: tuple[int, int, int, int], goes_on: bool, wanted: int
) -> None:
    number, freed, came, held = told
    asked = prefetch.ask(number, freed)
    assert prefetch.goes_on(asked, came, workers=4, held=held) == goes_on
    assert prefetch.wanted(4, held) == wanted


def test_what_is_known_beside_an_answer(prefetch: Prefetch) -> None:
    """A call on its way counts beside each, but one that asked for nothing tells nothing."""
    asked = [prefetch.ask(number, 0) for number in (4, 0)]
    prefetch.call()
    assert [prefetch.goes_on(each, 0, workers=4, held=0) for each in asked] == [True, False]
    assert prefetch.wanted(4, 0) == 4
    # The store had more when it answered a whole one: a short one from before says little.
    whole, short = prefetch.ask(2, 0), prefetch.ask(2, 0)
    assert prefetch.goes_on(whole, 2, workers=8, held=4)
    assert prefetch.goes_on(short, 1, workers=8, held=3)
    # Nor does it of a group that was freed meanwhile, and not asked for.
    before = prefetch.ask(4, 0)
    prefetch.ask(0, freed=2)
    assert prefetch.goes_on(before, 1, workers=4, held=1)
    assert prefetch.wanted(4, 1) == 3
    assert not prefetch.goes_on(prefetch.ask(4, 0), 0, 4, 0)  # it is empty
    assert not prefetch.goes_on(prefetch.ask(2, freed=2), 2, workers=4, held=2)
    prefetch.failed(prefetch.ask(4, 4))  # behind a portion that was cut there may be more
    assert prefetch.goes_on(prefetch.ask(2, freed=4), 2, workers=4, held=2)


AHEAD = [
    (60.0, 0.002, 64, 0),
    (0.05, 0.002, 64, 0),  # 4 % of a worker's time, and each claim keeps its group from others
    (0.02, 0.002, 64, 13),
    (0.005, 0.002, 64, 51),
    (QUICK, 0.002, 1, MOST),
    (1.0, 1 / 16, 16, 0),  # less than a sixteenth of an attempt is none to save
    (1.0, 1 / 16 + 0.001, 16, 2),
    (0.01, 0.001, 5, 1),
]


@pytest.mark.parametrize(("attempt", "exchange", "workers", "expected"), AHEAD)
def test_as_many_are_ahead_as_are_begun_meanwhile(
    prefetch: Prefetch, attempt: float, exchange: float, workers: int, expected: int
) -> None:
    assert exchanged(prefetch, exchange, workers, 500) == 0  # nothing is known yet
    for _ in range(3):
        exchanged(prefetch, exchange, workers, 500, handled=attempt)
    assert prefetch.claims == expected
    for _ in range(60):  # the last one goes too
        exchanged(prefetch, exchange, workers, 500, handled=10.0)
    assert prefetch.claims == 0


@pytest.mark.parametrize(
    ("largest", "ahead"),
    [(1_000, MOST), (PREFETCH_BYTES // 64, 64), (PREFETCH_BYTES, 1), (1 << 30, 0)],
)
def test_no_more_is_ahead_than_fits_memory(prefetch: Prefetch, largest: int, ahead: int) -> None:
    """Where one was large there may be more for a while."""
    for size in (largest, largest, largest, 1_000):
        exchanged(prefetch, 0.002, 64, 64, handled=QUICK, largest=size)
    assert (prefetch.claims == MOST) == (largest == 1_000)
    for _ in range(3):
        exchanged(prefetch, 0.002, 64, 64, handled=QUICK, largest=largest)
    assert prefetch.claims == ahead
