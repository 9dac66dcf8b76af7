"""What the suite says of a run must be able to be bad."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.verification.bench import chart, clocks, results, source, tables
from tests.verification.bench.__main__ import CHART, COMMITTED, DOCUMENT
from tests.verification.bench.bench import Bench
from tests.verification.bench.load import HOT, Load, number_in
from tests.verification.bench.peers.running import PeerFailed
from tests.verification.bench.records import Recorder, Records
from tests.verification.bench.results import Mixed, Results
from tests.verification.bench.rounds import Side, Turn, take_turns
from tests.verification.bench.rows import OURS, Goal, Round, Row, Span
from tests.verification.bench.source import Source

COMMIT = "a" * 40
LOAD = Load(4, 2)  # groups 0, 1, 0, 1
SOUND = [(0, 10, 20), (1, 11, 30), (2, 21, 40), (3, 31, 50)]


def _row(*pairs: tuple[float, float], key: str = "drain.16") -> Row:
    row = Row(key, "drain <16>", "tasks/s", Goal("≥ 2", 2.0), "GroupMQ", commit=COMMIT)
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
        assert word in str(Records(rows).check(LOAD))
    assert Records(SOUND).check(LOAD).is_clean
    assert Records(SOUND[:3]).check(LOAD, is_whole=False).is_clean


def test_a_load_is_as_it_says() -> None:
    """Half of it is hot and the rest even; a body has its size and its number."""
    load = [*Load(100, 10, hot=0.5)]
    groups = [group for _, group, _ in load]
    assert groups.count(HOT) == 50
    assert {groups.count(n) for n in range(10)} == {5}
    assert all((len(body), number_in(body)) == (200, number) for number, _, body in load)


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


def test_a_fall_is_named_and_a_small_one_is_not() -> None:
    older = _results((100, 100), (110, 100), (90, 100))
    assert _results((85, 100)).fallen_below(older) == []
    (fallen,) = _results((75, 100)).fallen_below(older)
    assert "-25%" in fallen
    # Within what the older rounds themselves were apart, it is no fall.
    assert _results((75, 100)).fallen_below(_results((100, 100), (110, 100), (70, 100))) == []


def test_what_is_written_comes_back_and_is_added_to(tmp_path: Path) -> None:
    recorder = Recorder()
    for record in SOUND:
        recorder.add(*record)
    recorder.write(tmp_path / "r.records")
    assert Records.read([tmp_path / "r.records"]).rows == SOUND
    _results((100, 50), (90, 40)).write(tmp_path / "r.json")
    assert results.read(tmp_path / "r.json") == _results((100, 50), (90, 40))
    whole = _results((100, 50)).joined_to(_results((300, 100)))
    assert [each.figures[OURS] for each in whole.rows[0].rounds] == [300, 100]


def test_rows_of_two_commits_or_of_changed_files_make_no_table(tmp_path: Path) -> None:
    document = tmp_path / "d.md"
    document.write_text(f"{tables.BEGIN}{tables.END}")
    other, dirty, smuggled = _results((1, 1)), _results((1, 1)), _results((1, 1))
    other.source = Source("b" * 40, False)
    other.rows[0].commit = "b" * 40
    dirty.source = Source(COMMIT, True)
    smuggled.rows.append(replace(_row((1, 1), key="drain.64"), commit="b" * 40))
    with pytest.raises(Mixed, match="two commits"):
        other.joined_to(_results((1, 1)))
    for mixed in (dirty, smuggled):
        with pytest.raises(Mixed):
            tables.write_into(document, mixed)
        with pytest.raises(Mixed):
            mixed.joined_to(_results((1, 1)))


def test_the_committed_table_and_chart_are_of_one_file_of_one_commit() -> None:
    committed = results.read(COMMITTED)
    assert committed
    committed.refuse_unless_whole_cloth()
    assert tables.markdown(committed) in DOCUMENT.read_text()
    assert chart.svg(committed) == CHART.read_text()
    root = ElementTree.fromstring(chart.svg(_results((100, 50))))
    title = root.find("{http://www.w3.org/2000/svg}text")
    assert title is not None
    assert title.text == "drain <16>"


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
    await take_turns(bench, rows, {OURS: side(OURS, 6), "GroupMQ": side("GroupMQ", 3)})
    assert called == [OURS, "GroupMQ", "GroupMQ", OURS, OURS, "GroupMQ"]
    assert [each.first for each in rows[0].rounds] == [OURS, "GroupMQ", OURS]
    assert rows[0].rounds[0].figures == {OURS: 6, "GroupMQ": 3, "ideal": 4}
    assert rows[1].rounds[2].figures == {OURS: 12}
    assert len(bench.problems) == 1


def test_rows_are_chosen_by_family_or_key(tmp_path: Path) -> None:
    bench = Bench(tmp_path, chosen=["drain", "ideal.sweep.1"])
    wanted = ["drain.16", "drain", "ideal.sweep.1"]
    assert [key for key in [*wanted, "ideal.sweep.10", "cold.10"] if bench.wants(key)] == wanted


def test_clocks_are_read_between_two_tasks(tmp_path: Path) -> None:
    looks = clocks.looks(100, [os.getpid()], tmp_path / "c")
    first, last = sorted(looks)
    assert (first, last) == (10, 90)
    looks[first]()
    used = time.process_time()
    while time.process_time() < used + 0.02:
        pass
    looks[last]()
    own, other = clocks.read(tmp_path / "c", 100)
    assert own >= 0.02 * 1e6 / 80
    assert other >= 0.02 * 1e6 / 80  # both are this process


def test_older_code_is_laid_beside_the_benchmark_of_now(tmp_path: Path) -> None:
    here = source.take_from_here(tmp_path / "here")
    assert (here / "groupflow" / "__main__.py").exists()
    assert (here / "tests/verification/bench/handlers.py").exists()
    with pytest.raises(source.NoSuchCommit):
        source.resolve("no-such-commit")


def test_the_table_goes_between_the_markers(tmp_path: Path) -> None:
    document = tmp_path / "d.md"
    document.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nbehind\n")
    tables.write_into(document, _results((100, 50), (90, 50), (110, 50)))
    text = document.read_text()
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("behind\n")
    assert "| drain <16> | 100 (90 to 110) tasks/s | GroupMQ 50 | 2.00 (1.80 to 2.20) | 3 |" in text
