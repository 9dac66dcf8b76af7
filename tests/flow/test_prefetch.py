"""What is asked of a store: nothing in vain, nothing left lying, no more ahead than is begun."""

from __future__ import annotations

import pytest

from groupflow.flow.prefetch import AT_ONCE, MOST, PREFETCH_BYTES, Prefetch

QUICK = 1e-9  # seconds: next to no time at all


@pytest.fixture
def prefetch() -> Prefetch:
    return Prefetch()


@pytest.fixture
def empty(prefetch: Prefetch) -> Prefetch:
    """The same, whose store had nothing for four workers."""
    emptied(prefetch, 4)
    return prefetch


def emptied(prefetch: Prefetch, workers: int) -> None:
    asked = prefetch.ask(prefetch.wanted(workers, 0), 0)
    prefetch.answered(asked, 0, workers, 0.001)
    assert not prefetch.goes_on(asked, 0, workers, 0)


def exchanged(
    prefetch: Prefetch,
    seconds: float,
    workers: int,
    came: int,
    *,
    handled: float | None = None,
    all_came: bool = True,
    largest: int = 0,
) -> int:
    """An exchange that brought so many claims, after an attempt; how many are then ahead."""
    if handled is not None:
        prefetch.handled(handled)
    prefetch.call()  # after a call it is not empty
    asked = prefetch.ask(came if all_came else came + 1, 0)
    prefetch.answered(asked, came, workers, seconds, largest=largest)
    return prefetch.claims


class TestWhatIsWanted:
    def test_as_many_as_workers_have_none(self, prefetch: Prefetch) -> None:
        assert [prefetch.wanted(workers=4, held=held) for held in (1, 6)] == [3, 0]
        prefetch.claims = 8
        assert prefetch.wanted(workers=4, held=6) == 6
        assert prefetch.wanted(workers=0, held=0) == 0

    def test_of_an_empty_store_only_what_is_freed(self, empty: Prefetch) -> None:
        assert empty.wanted(4, 0) == 0
        assert empty.wanted(4, 0, freed=3) == 3
        empty.call()
        assert empty.wanted(4, 0) == 4

    def test_a_claim_for_fewer_than_are_settled_leaves_some(self, empty: Prefetch) -> None:
        """No wake tells of what they free: that is known here alone."""
        empty.ask(2, freed=2)
        assert empty.wanted(4, 0) == 0
        empty.ask(1, freed=2)
        assert empty.wanted(4, 0) == 4

    def test_an_exchange_carries_half_of_what_is_in_play(self, prefetch: Prefetch) -> None:
        shares = [prefetch.share(n) for n in (0, 1, 2, 3, 16, 10_000)]
        assert shares == [1, 1, 1, 2, 8, AT_ONCE]

    @pytest.mark.parametrize(
        ("came", "tasks", "carried"),
        [(4, 4, AT_ONCE), (4, 7, AT_ONCE), (4, 8, 32), (16, 512, 2), (3, 1500, 1), (0, 0, 32)],
    )
    def test_of_runs_it_carries_fewer(
        self, prefetch: Prefetch, came: int, tasks: int, carried: int
    ) -> None:
        """As many tasks together, more or less, as the latest answer says; none says nothing."""
        for brought, of in ((2, 4), (came, tasks)):
            prefetch.answered(prefetch.ask(20, 0), brought, 20, 0.002, tasks=of)
        assert prefetch.share(10_000) == carried


class TestAPortion:
    """What one exchange may ask for, where answers don't come."""

    def test_it_halves_with_each_failure_and_is_never_none(self, prefetch: Prefetch) -> None:
        portions = [prefetch.portion]
        for _ in range(5):
            prefetch.failed(prefetch.ask(min(20, prefetch.portion), 0))
            portions.append(prefetch.portion)
        assert portions == [AT_ONCE, 10, 5, 2, 1, 1]
        nothing = prefetch.ask(0, 3)  # what asked for nothing tells nothing
        prefetch.failed(nothing)
        prefetch.answered(nothing, 0, 4, 0.001)
        assert prefetch.portion == 1

    def test_exchanges_that_fail_together_leave_the_smallest(self, prefetch: Prefetch) -> None:
        for asked in [prefetch.ask(number, 0) for number in (32, 8, 16)]:
            prefetch.failed(asked)
        assert prefetch.portion == 4

    def test_it_grows_with_each_answer(self, prefetch: Prefetch) -> None:
        prefetch.failed(prefetch.ask(1, 0))
        portions = []
        while prefetch.portion < AT_ONCE:
            exchanged(prefetch, 0.001, 4, 1)
            portions.append(prefetch.portion)
        assert portions[:5] == [2, 3, 4, 6, 8]
        assert len(portions) < 30

    def test_behind_one_that_was_cut_there_may_be_more(self, empty: Prefetch) -> None:
        """Groups that were freed and not asked for: no wake tells of them."""
        empty.failed(empty.ask(4, 4))
        assert empty.goes_on(empty.ask(2, freed=4), 2, workers=4, held=2)


class TestWhatAnAnswerTells:
    @pytest.mark.parametrize(
        ("told", "goes_on", "wanted"),
        [
            ((4, 0, 3, 3), False, 0),  # a short one: there is nothing more
            ((2, 0, 2, 2), True, 2),  # a whole one: there may be more,
            ((2, 0, 2, 4), False, 0),  # but no room for it
            ((2, 3, 1, 1), False, 0),  # who frees and asks for some knows of all that it freed
        ],
    )
    def test_short_and_whole_ones(
        self, prefetch: Prefetch, told: tuple[int, int, int, int], goes_on: bool, wanted: int
    ) -> None:
        number, freed, came, held = told
        asked = prefetch.ask(number, freed)
        assert prefetch.goes_on(asked, came, workers=4, held=held) == goes_on
        assert prefetch.wanted(4, held) == wanted

    def test_a_whole_one_of_an_empty_store_is_what_was_freed(self, empty: Prefetch) -> None:
        assert not empty.goes_on(empty.ask(2, freed=2), 2, workers=4, held=2)

    def test_a_call_on_its_way_counts_beside_each_answer(self, prefetch: Prefetch) -> None:
        asked = [prefetch.ask(number, 0) for number in (4, 0)]
        prefetch.call()
        # One that asked for nothing tells nothing.
        assert [prefetch.goes_on(each, 0, workers=4, held=0) for each in asked] == [True, False]
        assert prefetch.wanted(4, 0) == 4

    def test_a_whole_one_counts_for_those_beside_it(self, prefetch: Prefetch) -> None:
        """The store had more when it answered: a short one that was asked before says little."""
        whole, short = prefetch.ask(2, 0), prefetch.ask(2, 0)
        assert prefetch.goes_on(whole, 2, workers=8, held=4)
        assert prefetch.goes_on(short, 1, workers=8, held=3)
        assert prefetch.wanted(8, 3) == 5

    def test_what_is_freed_behind_a_question_is_unknown_to_it(self, prefetch: Prefetch) -> None:
        """Its short answer says nothing of a group that was freed meanwhile, and not asked for."""
        before = prefetch.ask(4, 0)
        prefetch.ask(0, freed=2)
        assert prefetch.goes_on(before, 1, workers=4, held=1)
        assert prefetch.wanted(4, 1) == 3


@pytest.mark.parametrize(
    ("attempt", "exchange", "workers", "expected"),
    [
        (60.0, 0.002, 64, 0),
        (0.05, 0.002, 64, 0),  # 4 % of a worker's time, and each claim keeps its group from others
        (0.02, 0.002, 64, 13),
        (0.005, 0.002, 64, 51),
        (QUICK, 0.002, 1, MOST),
        (1.0, 1 / 16, 16, 0),  # less than a sixteenth of an attempt is none to save
        (1.0, 1 / 16 + 0.001, 16, 2),
        (0.01, 0.001, 5, 1),
    ],
)
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


def test_what_is_ahead_grows_with_what_comes(prefetch: Prefetch) -> None:
    """Where the store has little, little is asked for; where it has more, soon more."""
    came = [(16, True), (16, True), (24, True), (0, True), (60, True), (3, False), (0, False)]
    numbers = [
        exchanged(prefetch, 0.002, 16, number, handled=QUICK, all_came=all_came)
        for number, all_came in came
    ]
    assert numbers == [32, 64, 128, 128, MOST, 6, 0]
    assert exchanged(prefetch, 0.002, 16, 8, handled=QUICK, all_came=False) == 16
    assert exchanged(prefetch, 0.002, 16, 0, all_came=False) == 0  # nothing was handled meanwhile


def test_fewer_are_ahead_only_once_half_as_many_are_enough(prefetch: Prefetch) -> None:
    """A claim for fewer than are settled wakes every daemon. More are ahead at once."""
    numbers = [exchanged(prefetch, 0.01, 16, 500, handled=0.01 * (1 + n / 20)) for n in range(40)]
    assert (numbers[0], len(set(numbers))) == (32, 2)
    assert numbers[-1] < 16
    prefetch._attempt = prefetch._exchange = 1.0
    numbers = [exchanged(prefetch, 1.0, n, 500, handled=1.0) for n in (8, 9, 5, 4, 16)]
    assert numbers == [16, 18, 18, 8, 32]


@pytest.mark.parametrize(
    ("largest", "ahead"),
    [(1_000, MOST), (PREFETCH_BYTES // 64, 64), (PREFETCH_BYTES, 1), (1 << 30, 0)],
)
def test_no_more_is_ahead_than_fits_into_memory(
    prefetch: Prefetch, largest: int, ahead: int
) -> None:
    for _ in range(3):
        exchanged(prefetch, 0.002, 64, 64, handled=QUICK, largest=largest)
    assert prefetch.claims == ahead


def test_one_large_body_counts_for_a_while(prefetch: Prefetch) -> None:
    """Where there was one there may be more; without any the number grows again."""
    for _ in range(3):
        exchanged(prefetch, 0.002, 64, 64, handled=QUICK, largest=1_000)
    large = exchanged(prefetch, 0.002, 64, 1, all_came=False, largest=PREFETCH_BYTES // 4)
    assert large == 2  # one came; and no more than four would be, however many come
    numbers = [exchanged(prefetch, 0.002, 64, 64, handled=QUICK, largest=1_000) for _ in range(40)]
    assert numbers[0] == 5
    assert numbers == sorted(numbers)
    assert numbers[-1] == MOST


def test_what_comes_of_an_empty_store_is_no_reason_to_ask_for_more(prefetch: Prefetch) -> None:
    """All that came was what the settled had freed."""
    assert exchanged(prefetch, 0.002, 16, 16, handled=QUICK) == 32
    asked = prefetch.ask(prefetch.wanted(16, 0), 0)
    assert not prefetch.goes_on(asked, 0, 16, 0)
    prefetch.handled(QUICK)
    prefetch.answered(prefetch.ask(4, freed=4), 4, 16, 0.002)
    assert prefetch.claims == 8


def test_a_short_one_makes_less_ahead_at_once(prefetch: Prefetch) -> None:
    """Even if no attempt has ended meanwhile; a whole one changes nothing then."""
    prefetch.claims = 32
    assert exchanged(prefetch, 0.002, 16, 20) == 32
    assert exchanged(prefetch, 0.002, 16, 5, all_came=False) == 10
    prefetch.refrain()
    assert prefetch.claims == 0


def test_averages_follow_slowly(prefetch: Prefetch) -> None:
    """One slow exchange, or attempt, is no trend: a fifth of it counts."""
    assert exchanged(prefetch, 0.005, 16, 500, handled=0.01) == 16
    for seconds in (0.01, 0.01):
        prefetch.handled(seconds)
    exchanged(prefetch, 0.005, 16, 500, handled=0.04)
    # Attempts: 0.01 + (0.02 - 0.01) / 5 = 0.012 on average.
    assert prefetch._attempt == pytest.approx(0.012)
    assert prefetch._exchange == pytest.approx(0.005)
    assert exchanged(prefetch, 0.055, 16, 500, handled=0.012) == 40
    assert prefetch._exchange == pytest.approx(0.015)
