"""What the suite says of a run must be able to be bad."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.bench import chart, results, tables
from tests.bench.load import HOT, Load, number_in
from tests.bench.records import Recorder, Records
from tests.bench.results import Results
from tests.bench.rows import STOLEN, Goal, Row

LOAD = Load(4, 2)  # groups 0, 1, 0, 1
SOUND = [(0, 10, 20), (1, 11, 30), (2, 21, 40), (3, 31, 50)]


def _results(guard: float) -> Results:
    row = Row("drain.16", "drain <16>", 100.0, "tasks/s", 2.0, Goal("≥ 2", 2.0), "GroupMQ")
    row.peers, row.guard = {"GroupMQ": 50.0}, guard
    return Results(False, "now", {"Python": "3"}, 0.5, rows=[row])


def test_a_sound_run_is_clean() -> None:
    assert Records(SOUND).check(LOAD).is_clean


def test_what_is_broken_is_counted() -> None:
    for rows, word in (
        ([(2, 1, 5), *SOUND[:2], SOUND[3]], "out of order"),
        ([*SOUND[:2], (2, 19, 40), SOUND[3]], "overlapping"),
        (SOUND[:3], "missing"),
        ([*SOUND, (3, 60, 70)], "run twice"),
    ):
        assert word in str(Records(rows).check(LOAD))
    assert Records(SOUND[:3]).check(LOAD, is_whole=False).is_clean


def test_half_of_a_load_is_hot_and_the_rest_even() -> None:
    groups = [group for _, group, _ in Load(100, 10, hot=0.5)]
    assert groups.count(HOT) == 50
    assert {groups.count(n) for n in range(10)} == {5}


def test_a_body_has_its_size_and_its_number() -> None:
    for number, _, body in Load(20, 3, hot=0.5):
        assert (len(body), number_in(body)) == (200, number)


def test_records_come_back_as_written(tmp_path: Path) -> None:
    recorder = Recorder()
    for record in SOUND:
        recorder.add(*record)
    recorder.write(tmp_path / "r.records")
    assert Records.read([tmp_path / "r.records"]).rows == SOUND


def test_a_fall_is_named_and_a_small_one_is_not() -> None:
    assert _results(0.85).fallen_below(_results(1.0)) == []
    (fallen,) = _results(0.75).fallen_below(_results(1.0))
    assert "-25%" in fallen


def test_results_come_back_as_written(tmp_path: Path) -> None:
    _results(1.0).write(tmp_path / "r.json")
    assert results.read(tmp_path / "r.json") == _results(1.0)


@pytest.mark.parametrize(
    ("before", "now", "kept"), [(0.3, 0.2, 2.0), (0.02, 0.04, 2.0), (0.02, 0.2, 1.0)]
)
def test_a_row_that_the_host_disturbed_replaces_none_that_it_disturbed_less(
    before: float, now: float, kept: float
) -> None:
    older, newer = _results(1.0), _results(2.0)
    older.rows[0].details[STOLEN] = before
    newer.rows[0].details[STOLEN] = now
    [row] = newer.merged_into(older).rows
    assert row.guard == kept


def test_the_table_goes_between_the_markers(tmp_path: Path) -> None:
    document = tmp_path / "d.md"
    document.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nbehind\n")
    tables.write_into(document, _results(1.0))
    text = document.read_text()
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("behind\n")
    assert "| drain <16> | 100 tasks/s | GroupMQ 50 |" in text


def test_the_chart_is_well_formed() -> None:
    root = ElementTree.fromstring(chart.svg(_results(1.0)))
    title = root.find("{http://www.w3.org/2000/svg}text")
    assert title is not None
    assert title.text == "drain <16>"
