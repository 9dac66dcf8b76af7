"""`pause --for`, `limit --for`: what is taken for a time."""

from __future__ import annotations

import pytest

from groupflow.cli.options import seconds_for


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30.0), ("1.5m", 90.0), ("2h", 7200.0), ("1d", 86400.0)]
)
def test_a_time_has_a_unit(text: str, seconds: float) -> None:
    assert seconds_for(text) == seconds
