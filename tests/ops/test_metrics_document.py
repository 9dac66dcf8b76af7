"""docs/metrics.md and the code tell the same."""

from __future__ import annotations

import re

from groupflow.core.measures import OUTCOMES, PAUSES, TYPES_SHOWN, Measures
from tests.ops.catalogue import DOCUMENT, documented, told


def test_document_and_code_agree() -> None:
    by_name = {entry.name: entry for entry in told()}
    listed = documented()
    assert {entry.name: entry for entry in listed} == by_name
    assert len(listed) == len(by_name), "one is listed twice"
    for entry in listed:
        assert re.fullmatch(r"(groupflow|process)_[a-z_]+", entry.name)
        assert entry.name.endswith("_total") == (entry.type == "counter"), entry
        assert not entry.labels & {"group", "tenant", "id", "task"}, entry
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", DOCUMENT.read_text(), re.M))
    for row, values in (("outcome", OUTCOMES), ("reason", PAUSES)):
        assert [value for value in values if f"`{value}`" not in rows[row]] == []


def test_types_are_capped() -> None:
    measures = Measures([f"t{n:03}" for n in range(2 * TYPES_SHOWN)])
    assert len(measures.types.named) == TYPES_SHOWN
    assert measures.types.of("t000") is not measures.types.other
    assert measures.types.of(f"t{2 * TYPES_SHOWN - 1:03}") is measures.types.other
    assert measures.types.of("a stranger's") is measures.types.other
    assert len(measures.types.named) == TYPES_SHOWN
