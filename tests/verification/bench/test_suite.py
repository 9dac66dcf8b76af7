"""What the suite says of a run must be able to be bad."""

from __future__ import annotations

from pathlib import Path

from tests.verification.bench.__main__ import COMMITTED, DOCUMENT
from tests.verification.bench.bench import Bench, Figures, Side
from tests.verification.bench.daemons import RunFailed
from tests.verification.bench.load import HOT, Load
from tests.verification.bench.records import Records
from tests.verification.bench.rows import OURS, Results, Round, Row, Span

PEER = "GroupMQ"
LOAD = Load(4, 2)  # groups 0, 1, 0, 1
SOUND = [(0, 10, 20), (1, 11, 30), (2, 21, 40), (3, 31, 50)]


def test_what_is_broken_is_counted() -> None:
    for rows, word in (
        ([(2, 1, 5), *SOUND[:2], SOUND[3]], "out of order"),
        ([*SOUND[:2], (2, 19, 40), SOUND[3]], "overlapping"),
        (SOUND[:3], "missing"),
        ([*SOUND, (3, 60, 70)], "run twice"),
    ):
        assert word in Records(rows).check(LOAD)
    assert not Records(SOUND).check(LOAD)
    hot = Load(100, 10, hot=0.5)
    assert [hot.group_of(number) for number in range(100)].count(HOT) == 50


def test_a_ratio_is_of_each_round_and_none_is_left_out() -> None:
    row = Row("drain.16", "drain", "tasks/s", PEER, least=2.0)
    for ours, theirs in ((100, 50), (90, 30), (80, 80)):
        row.rounds.append(Round({OURS: ours, PEER: theirs}))
    assert row.ratio(PEER) == Span(2.0, 1.0, 3.0)  # 90 ÷ 50, of the medians, is of no round
    assert row.cells[1:] == ("90 tasks/s", f"{PEER} 50", "2.00 (1.00 to 3.00)", "≥ 2: yes")
    row.rounds[0].seconds, row.rounds[2].stolen = 61.0, 0.5
    assert "2 of 3 rounds disturbed: drain" in Results("a", False, "now", {}, 0.5, [row]).markdown()
    row.rounds = [Round({OURS: 400.0})]  # without the peer
    assert row.ratio(PEER) is None
    assert row.is_met is False


def test_the_committed_table_is_of_the_committed_file(tmp_path: Path) -> None:
    committed = Results.read(COMMITTED)
    assert committed.markdown() in DOCUMENT.read_text()
    committed.write(tmp_path / "r.json")
    assert (tmp_path / "r.json").read_bytes() == COMMITTED.read_bytes()


async def test_sides_take_turns_and_who_is_first_goes_round(tmp_path: Path) -> None:
    called: list[str] = []

    def side(who: str, figure: float) -> Side:
        async def turn() -> Figures:
            called.append(who)
            if who == PEER and len(called) > 4:
                raise RunFailed("it fell over")
            return {"a": {who: figure}, "b": {who: 2 * figure}}

        return turn

    bench = Bench(tmp_path, {}, rounds=3)
    rows = [Row(key, key, "tasks/s", PEER) for key in "ab"]
    await bench.take_turns(rows, {OURS: side(OURS, 6), PEER: side(PEER, 3)})
    assert called == [OURS, PEER, PEER, OURS, OURS, PEER]
    assert rows[0].rounds[0].figures == {OURS: 6, PEER: 3}
    assert rows[1].rounds[2].figures == {OURS: 12}
    assert len(bench.problems) == 1
