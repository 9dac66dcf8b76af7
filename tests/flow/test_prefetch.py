"""What is asked of a store: nothing in vain, nothing left lying, no more ahead than is begun."""

from __future__ import annotations

import pytest

from groupflow.flow.prefetch import AT_ONCE, MOST, PREFETCH_BYTES, Prefetch


def emptied(prefetch: Prefetch, workers: int = 4) -> None:
    """The store had nothing for so many workers."""
    asked = prefetch.ask(prefetch.wanted(workers, 0), 0)
    prefetch.answered(asked, 0, workers, 0.001)
    assert not prefetch.goes_on(asked, 0, workers, 0)


class TestWhatIsWanted:
    def test_as_many_as_workers_have_none(self) -> None:
        prefetch = Prefetch()
        assert prefetch.wanted(workers=4, held=1) == 3
        assert prefetch.wanted(workers=4, held=6) == 0
        prefetch.claims = 8
        assert prefetch.wanted(workers=4, held=6) == 6

    def test_nothing_without_workers(self) -> None:
        prefetch = Prefetch()
        prefetch.claims = 8
        assert prefetch.wanted(workers=0, held=0) == 0

    def test_of_an_empty_store_only_what_is_freed(self) -> None:
        prefetch = Prefetch()
        emptied(prefetch)
        assert prefetch.wanted(4, 0) == 0
        assert prefetch.wanted(4, 0, freed=3) == 3
        prefetch.call()
        assert prefetch.wanted(4, 0) == 4

    def test_who_claims_for_fewer_than_it_settles_leaves_some(self) -> None:
        """No wake tells of what they free: that is known here alone."""
        prefetch = Prefetch()
        emptied(prefetch)
        prefetch.ask(2, freed=2)
        assert prefetch.wanted(4, 0) == 0
        prefetch.ask(1, freed=2)
        assert prefetch.wanted(4, 0) == 4

    def test_an_exchange_carries_half_of_what_is_in_play(self) -> None:
        prefetch = Prefetch()
        assert [prefetch.share(n) for n in (0, 1, 2, 3, 16)] == [1, 1, 1, 2, 8]
        assert prefetch.share(10_000) == AT_ONCE

    @pytest.mark.parametrize(
        ("came", "tasks", "carried"),
        [(4, 4, AT_ONCE), (4, 7, AT_ONCE), (4, 8, 32), (16, 512, 2), (3, 1500, 1), (0, 0, 32)],
    )
    def test_of_runs_it_carries_fewer(self, came: int, tasks: int, carried: int) -> None:
        """As many tasks together, more or less, as the latest answer says; none says nothing."""
        prefetch = Prefetch()
        prefetch.answered(prefetch.ask(20, 0), 2, 20, 0.002, tasks=4)
        prefetch.answered(prefetch.ask(20, 0), came, 20, 0.002, tasks=tasks)
        assert prefetch.share(10_000) == carried


class TestAPortion:
    """What one exchange may ask for, where answers don't come."""

    def test_it_halves_with_each_failure_and_is_never_none(self) -> None:
        prefetch = Prefetch()
        assert prefetch.portion == AT_ONCE
        portions = []
        for _ in range(5):
            prefetch.failed(prefetch.ask(min(20, prefetch.portion), 0))
            portions.append(prefetch.portion)
        assert portions == [10, 5, 2, 1, 1]

    def test_exchanges_that_fail_together_leave_the_smallest(self) -> None:
        prefetch = Prefetch()
        under_way = [prefetch.ask(number, 0) for number in (32, 8, 16)]
        for asked in under_way:
            prefetch.failed(asked)
        assert prefetch.portion == 4

    def test_who_asked_for_nothing_tells_nothing(self) -> None:
        prefetch = Prefetch()
        prefetch.failed(prefetch.ask(4, 0))
        nothing = prefetch.ask(0, 3)
        prefetch.failed(nothing)
        prefetch.answered(nothing, 0, 4, 0.001)
        assert prefetch.portion == 2

    def test_it_grows_with_each_answer(self) -> None:
        prefetch = Prefetch()
        prefetch.failed(prefetch.ask(1, 0))
        portions = []
        while prefetch.portion < AT_ONCE:
            exchanged(prefetch, 0.001, 4, 1)
            portions.append(prefetch.portion)
        assert portions[:5] == [2, 3, 4, 6, 8]
        assert len(portions) < 30

    def test_behind_one_that_was_cut_there_may_be_more(self) -> None:
        """Groups that were freed and not asked for: no wake tells of them."""
        prefetch = Prefetch()
        emptied(prefetch)
        prefetch.failed(prefetch.ask(4, 4))
        asked = prefetch.ask(2, freed=4)
        assert prefetch.goes_on(asked, 2, workers=4, held=2)


class TestWhatAnAnswerTells:
    def test_a_short_one_says_that_there_is_nothing_more(self) -> None:
        prefetch = Prefetch()
        asked = prefetch.ask(4, 0)
        assert not prefetch.goes_on(asked, 3, workers=4, held=3)
        assert prefetch.wanted(4, 3) == 0

    def test_a_whole_one_says_that_there_may_be_more(self) -> None:
        prefetch = Prefetch()
        assert prefetch.goes_on(prefetch.ask(2, 0), 2, workers=4, held=2)
        assert not prefetch.goes_on(prefetch.ask(2, 0), 2, workers=4, held=4)  # but no room for it

    def test_a_whole_one_of_an_empty_store_is_what_was_freed(self) -> None:
        prefetch = Prefetch()
        emptied(prefetch)
        asked = prefetch.ask(2, freed=2)
        assert not prefetch.goes_on(asked, 2, workers=4, held=2)

    def test_a_call_on_its_way_counts_beside_each_answer(self) -> None:
        prefetch = Prefetch()
        asked = prefetch.ask(4, 0)
        prefetch.call()
        assert prefetch.goes_on(asked, 0, workers=4, held=0)
        assert prefetch.wanted(4, 0) == 4

    def test_a_whole_one_counts_for_those_beside_it(self) -> None:
        """The store had more when it answered: a short one that was asked before says little."""
        prefetch = Prefetch()
        whole, short = prefetch.ask(2, 0), prefetch.ask(2, 0)
        assert prefetch.goes_on(whole, 2, workers=8, held=4)
        assert prefetch.goes_on(short, 1, workers=8, held=3)
        assert prefetch.wanted(8, 3) == 5

    def test_who_has_asked_before_does_not_know_of_what_is_freed_now(self) -> None:
        """Its short answer says nothing of a group that was freed behind it, and not asked for."""
        prefetch = Prefetch()
        before = prefetch.ask(4, 0)
        prefetch.ask(0, freed=2)
        assert prefetch.goes_on(before, 1, workers=4, held=1)
        assert prefetch.wanted(4, 1) == 3

    def test_who_frees_and_asks_for_some_knows_of_all_that_it_freed(self) -> None:
        prefetch = Prefetch()
        asked = prefetch.ask(2, freed=3)
        assert not prefetch.goes_on(asked, 1, workers=4, held=1)
        assert prefetch.wanted(4, 1) == 0

    def test_one_that_asked_for_nothing_tells_nothing(self) -> None:
        prefetch = Prefetch()
        asked = prefetch.ask(0, 0)
        prefetch.call()
        assert not prefetch.goes_on(asked, 0, workers=4, held=0)


def exchanged(
    prefetch: Prefetch,
    seconds: float,
    workers: int,
    came: int,
    *,
    all_came: bool = True,
    largest: int = 0,
) -> None:
    """An exchange that brought so many claims."""
    prefetch.call()  # after a call it is not empty
    asked = prefetch.ask(came if all_came else came + 1, 0)
    prefetch.answered(asked, came, workers, seconds, largest=largest)


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
    prefetch = Prefetch()
    exchanged(prefetch, exchange, workers, 500)
    assert prefetch.claims == 0  # nothing is known yet
    for _ in range(3):
        prefetch.handled(attempt)
        exchanged(prefetch, exchange, workers, 500)
    assert prefetch.claims == expected
    prefetch.refrain()
    assert prefetch.claims == 0


def test_what_is_ahead_grows_with_what_comes() -> None:
    """Where the store has little, little is asked for; where it has more, soon more."""
    prefetch, numbers = Prefetch(), []
    came = [(16, True), (16, True), (24, True), (0, True), (60, True), (3, False), (0, False)]
    for number, all_came in came:
        prefetch.handled(1e-9)
        exchanged(prefetch, 0.002, 16, number, all_came=all_came)
        numbers.append(prefetch.claims)
    assert numbers == [32, 64, 128, 128, MOST, 6, 0]
    prefetch.handled(1e-9)
    exchanged(prefetch, 0.002, 16, 8, all_came=False)
    assert prefetch.claims == 16
    exchanged(prefetch, 0.002, 16, 0, all_came=False)  # nothing was handled meanwhile
    assert prefetch.claims == 0


def test_fewer_are_ahead_only_once_half_as_many_are_enough() -> None:
    """A claim for fewer than are settled wakes every daemon."""
    prefetch = Prefetch()
    numbers = []
    for n in range(40):
        prefetch.handled(0.01 * (1 + n / 20))
        exchanged(prefetch, 0.01, 16, 500)
        numbers.append(prefetch.claims)
    assert len(set(numbers)) == 2
    assert numbers[0] == 32
    assert numbers[-1] < 16


def test_the_last_one_ahead_goes_too() -> None:
    prefetch = Prefetch()
    prefetch.handled(0.01)
    exchanged(prefetch, 0.001, 5, 500)
    assert prefetch.claims == 1
    for _ in range(40):
        prefetch.handled(1.0)
        exchanged(prefetch, 0.001, 5, 500)
    assert prefetch.claims == 0


@pytest.mark.parametrize(
    ("largest", "ahead"),
    [(1_000, MOST), (PREFETCH_BYTES // 64, 64), (PREFETCH_BYTES, 1), (1 << 30, 0)],
)
def test_no_more_is_ahead_than_fits_into_memory(largest: int, ahead: int) -> None:
    prefetch = Prefetch()
    for _ in range(3):
        prefetch.handled(1e-9)
        exchanged(prefetch, 0.002, 64, 64, largest=largest)
    assert prefetch.claims == ahead


def test_one_large_body_counts_for_a_while() -> None:
    """Where there was one there may be more; without any the number grows again."""
    prefetch = Prefetch()
    for _ in range(3):
        prefetch.handled(1e-9)
        exchanged(prefetch, 0.002, 64, 64, largest=1_000)
    assert prefetch.claims == MOST
    exchanged(prefetch, 0.002, 64, 1, all_came=False, largest=PREFETCH_BYTES // 4)
    numbers = [prefetch.claims]
    assert numbers == [2]  # one came; and no more than four would be, however many come
    for _ in range(40):
        prefetch.handled(1e-9)
        exchanged(prefetch, 0.002, 64, 64, largest=1_000)
        numbers.append(prefetch.claims)
    assert numbers[1] == 5
    assert numbers == sorted(numbers)
    assert numbers[-1] == MOST


def test_what_comes_of_an_empty_store_is_no_reason_to_ask_for_more() -> None:
    """All that came was what the settled had freed."""
    prefetch = Prefetch()
    prefetch.handled(1e-9)
    exchanged(prefetch, 0.002, 16, 16)
    assert prefetch.claims == 32
    emptied_one = prefetch.ask(prefetch.wanted(16, 0), 0)
    assert not prefetch.goes_on(emptied_one, 0, 16, 0)
    prefetch.handled(1e-9)
    asked = prefetch.ask(4, freed=4)
    prefetch.answered(asked, 4, 16, 0.002)
    assert prefetch.claims == 8


def test_a_short_one_or_one_of_nothing_makes_less_ahead_at_once() -> None:
    """Even if no attempt has ended meanwhile; a whole one changes nothing then."""
    prefetch = Prefetch()
    prefetch.claims = 32
    exchanged(prefetch, 0.002, 16, 20)
    assert prefetch.claims == 32
    exchanged(prefetch, 0.002, 16, 5, all_came=False)
    assert prefetch.claims == 10


def test_averages_follow_slowly() -> None:
    """One slow exchange, or attempt, is no trend: a fifth of it counts."""
    prefetch = Prefetch()
    prefetch.handled(0.01)
    exchanged(prefetch, 0.005, 16, 500)
    assert prefetch.claims == 16
    for _ in range(2):
        prefetch.handled(0.01)
    prefetch.handled(0.04)
    exchanged(prefetch, 0.005, 16, 500)
    # Attempts: 0.01 + (0.02 - 0.01) / 5 = 0.012 on average.
    assert prefetch._attempt == pytest.approx(0.012)
    assert prefetch._exchange == pytest.approx(0.005)
    prefetch.handled(0.012)
    exchanged(prefetch, 0.055, 16, 500)
    assert prefetch._exchange == pytest.approx(0.015)
    assert prefetch.claims == 40


def test_an_exchange_of_less_than_a_sixteenth_of_an_attempt_is_none_to_save() -> None:
    for seconds, expected in ((1 / 16, 0), (1 / 16 + 0.001, 2)):
        prefetch = Prefetch()
        prefetch.handled(1.0)
        exchanged(prefetch, seconds, 16, 500)
        assert prefetch.claims == expected


def test_small_changes_are_none() -> None:
    """More at once, fewer only below half."""
    prefetch = Prefetch()
    prefetch._attempt = prefetch._exchange = 1.0
    numbers = []
    for workers in (8, 9, 5, 4, 16):
        prefetch.handled(1.0)
        exchanged(prefetch, 1.0, workers, 500)
        numbers.append(prefetch.claims)
    assert numbers == [16, 18, 18, 8, 32]
