"""What is asked of a store: nothing in vain, nothing left lying, no more ahead than is begun."""

from __future__ import annotations

import pytest

from groupflow.flow.demand import AHEAD_BYTES, AT_ONCE, MOST, Demand


def emptied(demand: Demand, workers: int = 4) -> None:
    """The store had nothing for so many workers."""
    asked = demand.ask(demand.wanted(workers, 0), 0)
    demand.answered(asked, 0, workers, 0.001)
    assert not demand.goes_on(asked, 0, workers, 0)


class TestWhatIsWanted:
    def test_as_many_as_workers_have_none(self) -> None:
        demand = Demand()
        assert demand.wanted(workers=4, held=1) == 3
        assert demand.wanted(workers=4, held=6) == 0
        demand.ahead = 8
        assert demand.wanted(workers=4, held=6) == 6

    def test_nothing_without_workers(self) -> None:
        demand = Demand()
        demand.ahead = 8
        assert demand.wanted(workers=0, held=0) == 0

    def test_of_an_empty_store_only_what_is_freed(self) -> None:
        demand = Demand()
        emptied(demand)
        assert demand.wanted(4, 0) == 0
        assert demand.wanted(4, 0, freed=3) == 3
        demand.call()
        assert demand.wanted(4, 0) == 4

    def test_who_claims_for_fewer_than_it_settles_leaves_some(self) -> None:
        """Nobody calls for what they free: that is known here alone."""
        demand = Demand()
        emptied(demand)
        demand.ask(2, freed=2)
        assert demand.wanted(4, 0) == 0
        demand.ask(1, freed=2)
        assert demand.wanted(4, 0) == 4

    def test_an_exchange_carries_half_of_what_is_in_play(self) -> None:
        demand = Demand()
        assert [demand.share(n) for n in (0, 1, 2, 3, 16)] == [1, 1, 1, 2, 8]
        assert demand.share(10_000) == AT_ONCE

    @pytest.mark.parametrize(
        ("came", "tasks", "carried"),
        [(4, 4, AT_ONCE), (4, 7, AT_ONCE), (4, 8, 32), (16, 512, 2), (3, 1500, 1), (0, 0, 32)],
    )
    def test_of_runs_it_carries_fewer(self, came: int, tasks: int, carried: int) -> None:
        """As many tasks together, more or less, as the latest answer says; none says nothing."""
        demand = Demand()
        demand.answered(demand.ask(20, 0), 2, 20, 0.002, tasks=4)
        demand.answered(demand.ask(20, 0), came, 20, 0.002, tasks=tasks)
        assert demand.share(10_000) == carried


class TestAPortion:
    """What one exchange may ask for, where answers don't come."""

    def test_it_halves_with_each_failure_and_is_never_none(self) -> None:
        demand = Demand()
        assert demand.portion == AT_ONCE
        portions = []
        for _ in range(5):
            demand.failed(demand.ask(min(20, demand.portion), 0))
            portions.append(demand.portion)
        assert portions == [10, 5, 2, 1, 1]

    def test_exchanges_that_fail_together_leave_the_smallest(self) -> None:
        demand = Demand()
        under_way = [demand.ask(number, 0) for number in (32, 8, 16)]
        for asked in under_way:
            demand.failed(asked)
        assert demand.portion == 4

    def test_who_asked_for_nothing_tells_nothing(self) -> None:
        demand = Demand()
        demand.failed(demand.ask(4, 0))
        nothing = demand.ask(0, 3)
        demand.failed(nothing)
        demand.answered(nothing, 0, 4, 0.001)
        assert demand.portion == 2

    def test_it_grows_with_each_answer(self) -> None:
        demand = Demand()
        demand.failed(demand.ask(1, 0))
        portions = []
        while demand.portion < AT_ONCE:
            exchanged(demand, 0.001, 4, 1)
            portions.append(demand.portion)
        assert portions[:5] == [2, 3, 4, 6, 8]
        assert len(portions) < 30

    def test_behind_one_that_was_cut_there_may_be_more(self) -> None:
        """Groups that were freed and not asked for: nobody calls for them."""
        demand = Demand()
        emptied(demand)
        demand.failed(demand.ask(4, 4))
        asked = demand.ask(2, freed=4)
        assert demand.goes_on(asked, 2, workers=4, held=2)


class TestWhatAnAnswerTells:
    def test_a_short_one_says_that_there_is_nothing_more(self) -> None:
        demand = Demand()
        asked = demand.ask(4, 0)
        assert not demand.goes_on(asked, 3, workers=4, held=3)
        assert demand.wanted(4, 3) == 0

    def test_a_whole_one_says_that_there_may_be_more(self) -> None:
        demand = Demand()
        assert demand.goes_on(demand.ask(2, 0), 2, workers=4, held=2)
        assert not demand.goes_on(demand.ask(2, 0), 2, workers=4, held=4)  # but no room for it

    def test_a_whole_one_of_an_empty_store_is_what_was_freed(self) -> None:
        demand = Demand()
        emptied(demand)
        asked = demand.ask(2, freed=2)
        assert not demand.goes_on(asked, 2, workers=4, held=2)

    def test_a_call_on_its_way_counts_whatever_came(self) -> None:
        demand = Demand()
        asked = demand.ask(4, 0)
        demand.call()
        assert demand.goes_on(asked, 0, workers=4, held=0)
        assert demand.wanted(4, 0) == 4

    def test_a_whole_one_counts_for_those_beside_it(self) -> None:
        """The store had more when it answered: a short one that was asked before says little."""
        demand = Demand()
        whole, short = demand.ask(2, 0), demand.ask(2, 0)
        assert demand.goes_on(whole, 2, workers=8, held=4)
        assert demand.goes_on(short, 1, workers=8, held=3)
        assert demand.wanted(8, 3) == 5

    def test_who_has_asked_before_does_not_know_of_what_is_freed_now(self) -> None:
        """Its short answer says nothing of a group that was freed behind it, and not asked for."""
        demand = Demand()
        before = demand.ask(4, 0)
        demand.ask(0, freed=2)
        assert demand.goes_on(before, 1, workers=4, held=1)
        assert demand.wanted(4, 1) == 3

    def test_who_frees_and_asks_for_some_knows_of_all_that_it_freed(self) -> None:
        demand = Demand()
        asked = demand.ask(2, freed=3)
        assert not demand.goes_on(asked, 1, workers=4, held=1)
        assert demand.wanted(4, 1) == 0

    def test_one_that_asked_for_nothing_tells_nothing(self) -> None:
        demand = Demand()
        asked = demand.ask(0, 0)
        demand.call()
        assert not demand.goes_on(asked, 0, workers=4, held=0)


def exchanged(
    demand: Demand,
    seconds: float,
    workers: int,
    came: int,
    *,
    all_came: bool = True,
    largest: int = 0,
) -> None:
    """An exchange that brought so many claims."""
    demand.call()  # whoever is called is not empty
    asked = demand.ask(came if all_came else came + 1, 0)
    demand.answered(asked, came, workers, seconds, largest=largest)


@pytest.mark.parametrize(
    ("attempt", "exchange", "workers", "expected"),
    [
        (60.0, 0.002, 64, 0),
        (0.05, 0.002, 64, 0),  # 4 % of a worker's time, and each claim keeps its group from others
        (0.02, 0.002, 64, 13),
        (0.005, 0.002, 64, 51),
        (1e-9, 0.002, 1, MOST),  # next to no time at all
    ],
)
def test_as_many_are_ahead_as_are_begun_meanwhile(
    attempt: float, exchange: float, workers: int, expected: int
) -> None:
    demand = Demand()
    exchanged(demand, exchange, workers, 500)
    assert demand.ahead == 0  # nothing is known yet
    for _ in range(3):
        demand.handled(attempt)
        exchanged(demand, exchange, workers, 500)
    assert demand.ahead == expected
    demand.refrain()
    assert demand.ahead == 0


def test_what_is_ahead_grows_with_what_comes() -> None:
    """Where the store has little, little is asked for; where it has more, soon more."""
    demand, numbers = Demand(), []
    came = [(16, True), (16, True), (24, True), (0, True), (60, True), (3, False), (0, False)]
    for number, all_came in came:
        demand.handled(1e-9)
        exchanged(demand, 0.002, 16, number, all_came=all_came)
        numbers.append(demand.ahead)
    assert numbers == [32, 64, 128, 128, MOST, 6, 0]
    demand.handled(1e-9)
    exchanged(demand, 0.002, 16, 8, all_came=False)
    assert demand.ahead == 16
    exchanged(demand, 0.002, 16, 0, all_came=False)  # nothing was handled meanwhile
    assert demand.ahead == 0


def test_fewer_are_ahead_only_once_half_as_many_are_enough() -> None:
    """A claim for fewer than are settled wakes every daemon."""
    demand = Demand()
    numbers = []
    for n in range(40):
        demand.handled(0.01 * (1 + n / 20))
        exchanged(demand, 0.01, 16, 500)
        numbers.append(demand.ahead)
    assert len(set(numbers)) == 2
    assert numbers[0] == 32
    assert numbers[-1] < 16


def test_the_last_one_ahead_goes_too() -> None:
    demand = Demand()
    demand.handled(0.01)
    exchanged(demand, 0.001, 5, 500)
    assert demand.ahead == 1
    for _ in range(40):
        demand.handled(1.0)
        exchanged(demand, 0.001, 5, 500)
    assert demand.ahead == 0


@pytest.mark.parametrize(
    ("largest", "ahead"), [(1_000, MOST), (AHEAD_BYTES // 64, 64), (AHEAD_BYTES, 1), (1 << 30, 0)]
)
def test_no_more_is_ahead_than_fits_into_memory(largest: int, ahead: int) -> None:
    demand = Demand()
    for _ in range(3):
        demand.handled(1e-9)
        exchanged(demand, 0.002, 64, 64, largest=largest)
    assert demand.ahead == ahead


def test_one_large_body_counts_for_a_while() -> None:
    """Where there was one there may be more; without any the number grows again."""
    demand = Demand()
    for _ in range(3):
        demand.handled(1e-9)
        exchanged(demand, 0.002, 64, 64, largest=1_000)
    assert demand.ahead == MOST
    exchanged(demand, 0.002, 64, 1, all_came=False, largest=AHEAD_BYTES // 4)
    numbers = [demand.ahead]
    assert numbers == [2]  # one came; and no more than four would be, however many come
    for _ in range(40):
        demand.handled(1e-9)
        exchanged(demand, 0.002, 64, 64, largest=1_000)
        numbers.append(demand.ahead)
    assert numbers[1] == 5
    assert numbers == sorted(numbers)
    assert numbers[-1] == MOST


def test_what_comes_of_an_empty_store_is_no_reason_to_ask_for_more() -> None:
    """All that came was what the settled had freed."""
    demand = Demand()
    demand.handled(1e-9)
    exchanged(demand, 0.002, 16, 16)
    assert demand.ahead == 32
    emptied_one = demand.ask(demand.wanted(16, 0), 0)
    assert not demand.goes_on(emptied_one, 0, 16, 0)
    demand.handled(1e-9)
    asked = demand.ask(4, freed=4)
    demand.answered(asked, 4, 16, 0.002)
    assert demand.ahead == 8


def test_a_short_one_or_one_of_nothing_makes_less_ahead_at_once() -> None:
    """Even if no attempt has ended meanwhile; a whole one changes nothing then."""
    demand = Demand()
    demand.ahead = 32
    exchanged(demand, 0.002, 16, 20)
    assert demand.ahead == 32
    exchanged(demand, 0.002, 16, 5, all_came=False)
    assert demand.ahead == 10


def test_averages_follow_slowly() -> None:
    """One slow exchange, or attempt, is no trend: a fifth of it counts."""
    demand = Demand()
    demand.handled(0.01)
    exchanged(demand, 0.005, 16, 500)
    assert demand.ahead == 16
    for _ in range(2):
        demand.handled(0.01)
    demand.handled(0.04)
    exchanged(demand, 0.005, 16, 500)
    # Attempts: 0.01 + (0.02 - 0.01) / 5 = 0.012 on average.
    assert demand._attempt == pytest.approx(0.012)
    assert demand._exchange == pytest.approx(0.005)
    demand.handled(0.012)
    exchanged(demand, 0.055, 16, 500)
    assert demand._exchange == pytest.approx(0.015)
    assert demand.ahead == 40


def test_an_exchange_of_less_than_a_sixteenth_of_an_attempt_is_none_to_save() -> None:
    for seconds, expected in ((1 / 16, 0), (1 / 16 + 0.001, 2)):
        demand = Demand()
        demand.handled(1.0)
        exchanged(demand, seconds, 16, 500)
        assert demand.ahead == expected


def test_small_changes_are_none() -> None:
    """More at once, fewer only below half."""
    demand = Demand()
    demand._attempt = demand._exchange = 1.0
    numbers = []
    for workers in (8, 9, 5, 4, 16):
        demand.handled(1.0)
        exchanged(demand, 1.0, workers, 500)
        numbers.append(demand.ahead)
    assert numbers == [16, 18, 18, 8, 32]
