"""Lists of several stores become one: whole, in order, page by page, whatever filter leaves out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupflow.operate.pages import Cursor, Slice, UnknownCursor, merge

Lists = list[list[tuple[int, bool]]]
LOOKED = 4  # entries a look

LISTS: st.SearchStrategy[Lists] = st.lists(
    st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=12).map(sorted),
    min_size=2,
    max_size=5,
)


def look(entries: list[tuple[int, bool]], begin: int, limit: int) -> Slice[int]:
    """What a store's bounded look gives: entries that pass, so many of them, and where it ended."""
    found: Slice[int] = Slice()
    for turn, passes in entries[begin : begin + LOOKED]:
        if len(found.rows) == limit:
            break
        found.looked += 1
        if passes:
            found.add(turn, turn, found.looked)
    end = begin + found.looked
    found.next = end if end < len(entries) else None
    return found


@given(LISTS, st.integers(1, 6))
def test_pages_are_whole_and_in_order(lists: Lists, limit: int) -> None:
    told: str | None = "0"
    found: list[int] = []
    looked = pages = 0
    while told is not None:
        cursor = Cursor.parse(told, len(lists))
        slices = {n: look(lists[n], cursor.places[n] or 0, limit) for n in cursor.open}
        page = merge(slices, cursor, limit)
        assert len(page.rows) <= limit
        found += page.rows
        looked += page.looked
        told = page.cursor.told(())
        pages += 1
        assert pages <= 100, "it never ends"
    assert found == sorted(turn for entries in lists for turn, passes in entries if passes)
    assert looked >= len(found)


@given(LISTS, st.integers(1, 6))
def test_a_list_that_is_away_waits_for_its_return(lists: Lists, limit: int) -> None:
    """Pages go on without it, and end; from the last cursor on it is read from its beginning."""
    away, others = 0, [n for n in range(len(lists)) if n]
    cursor = Cursor.parse("0", len(lists))
    found: list[int] = []
    while cursor.told({away}) is not None:
        slices = {n: look(lists[n], cursor.places[n] or 0, limit) for n in cursor.open if n != away}
        page = merge(slices, cursor, limit)
        cursor, found = page.cursor, found + page.rows
    assert found == sorted(turn for n in others for turn, passes in lists[n] if passes)
    assert cursor.open == [away]
    assert cursor.places[away] == 0


def test_a_cursor_comes_back_as_it_was() -> None:
    """One of another number of partitions is refused."""
    cursor = Cursor((0, None, 17))
    assert str(cursor) == "0--17"
    assert Cursor.parse(str(cursor), 3) == cursor
    for text in ("1", "1-2", "1-2-3-4", "---"):
        with pytest.raises(UnknownCursor, match="another number of partitions"):
            Cursor.parse(text, 3)
