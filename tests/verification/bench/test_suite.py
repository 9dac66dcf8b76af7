"""What the suite says of a run must be able to be bad."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.verification.bench import results, tables
from tests.verification.bench.__main__ import CHART, COMMITTED, DOCUMENT
from tests.verification.bench.bench import Bench, Side, Turn
from tests.verification.bench.load import HOT, Load
from tests.verification.bench.peers.running import PeerFailed
from tests.verification.bench.records import Records
from tests.verification.bench.results import Mixed, Results
from tests.verification.bench.rows import OURS, Goal, Round, Row, Span
from tests.verification.bench.source import Source

COMMIT = "a" * 40
LOAD = Load(4, 2)  # groups 0, 1, 0, 1
SOUND = [(0, 10, 20), (1, 11, 30), (2, 21, 40), (3, 31, 50)]


def _row(*pairs: tuple[float, float], key: str = "drain.16") -> Row:
    row = Row(key, "drain", "tasks/s", Goal("≥ 2", 2.0), "GroupMQ", commit=COMMIT)
    row.rounds = [Round({OURS: ours, "GroupMQ": theirs}) for ours, theirs in pairs]
    return row


def _results(*pairs: tuple[float, float]) -> Results:
    return Results(Source(COMMIT, False), False, "now", {"Python": "3"}, 0.5, rows=[_row(*pairs)])


def test_what_is_broken_is_counted() -> None:
    for rows, word in (
        ([(2, 1, 5), *SOUND[:2], SOUND[3]], "out of order"),
        ([*SOUND[:2], (2, 19, 40), SOUND[3]], "overlapping"),
        (SOUND[:3], "missing"),
        ([*SOUND, (3, 60, 70)], "run twice"),
    ):
        assert word in Records(rows).check(LOAD)
    assert not Records(SOUND).check(LOAD)
    assert not Records(SOUND[:3]).check(LOAD, is_whole=False)
    groups = [group for _, group, _ in Load(100, 10, hot=0.5)]
    assert groups.count(HOT) == 50


def test_a_ratio_is_of_each_round_and_none_is_left_out() -> None:
    row = _row((100, 50), (90, 30), (80, 80))
    row.rounds[2].stolen = 0.5
    row.rounds[0].seconds = 61.0
    assert row.ratio == Span(2.0, 1.0, 3.0)  # 90 ÷ 50, the ratio of the medians, is nobody's
    assert row.ours == Span(90, 80, 100)
    assert row.disturbed == 2
    assert row.is_met
    row.rounds = [Round({OURS: 400.0})]  # without the peer
    assert row.ratio is None
    assert row.is_met is False


def test_rows_of_one_commit_are_added_and_others_make_no_table(tmp_path: Path) -> None:
    whole = _results((100, 50)).joined_to(_results((300, 100)))
    assert [each.figures[OURS] for each in whole.rows[0].rounds] == [300, 100]
    other, dirty, smuggled = _results((1, 1)), _results((1, 1)), _results((1, 1))
    other.source = Source("b" * 40, False)
    other.rows[0].commit = "b" * 40
    dirty.source = Source(COMMIT, True)
    smuggled.rows.append(replace(_row((1, 1), key="drain.64"), commit="b" * 40))
    for mixed in (other, dirty, smuggled):
        with pytest.raises(Mixed):
            mixed.joined_to(_results((1, 1)))


def test_the_committed_table_and_chart_are_of_one_file_of_one_commit(tmp_path: Path) -> None:
    committed = results.read(COMMITTED)
    assert committed
    committed.refuse_unless_whole_cloth()
    assert tables.markdown(committed) in DOCUMENT.read_text()
    assert tables.svg(committed) == CHART.read_text()
    committed.write(tmp_path / "r.json")
    assert (tmp_path / "r.json").read_bytes() == COMMITTED.read_bytes()


async def test_sides_take_turns_and_who_is_first_goes_round(tmp_path: Path) -> None:
    called: list[str] = []

    def side(who: str, figure: float) -> Side:
        async def turn() -> Turn:
            called.append(who)
            if who == "GroupMQ" and len(called) > 4:
                raise PeerFailed("it fell over")
            return Turn({"a": figure, "b": 2 * figure}, beside={"a": {"ideal": figure + 1}})

        return turn

    bench = Bench(tmp_path, rounds=3)
    rows = [Row(key, key, "tasks/s", beside="GroupMQ") for key in "ab"]
    await bench.take_turns(rows, {OURS: side(OURS, 6), "GroupMQ": side("GroupMQ", 3)})
    assert called == [OURS, "GroupMQ", "GroupMQ", OURS, OURS, "GroupMQ"]
    assert rows[0].rounds[0].figures == {OURS: 6, "GroupMQ": 3, "ideal": 4}
    assert rows[1].rounds[2].figures == {OURS: 12}
    assert len(bench.problems) == 1
