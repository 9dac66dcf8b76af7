"""`pause --for`, `limit --for`: what is taken for a time, and what is refused."""

from __future__ import annotations

import pytest
import typer

from groupflow.cli.options import seconds_for


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30.0), ("1.5m", 90.0), ("2h", 7200.0), ("1d", 86400.0)]
)
def test_a_time_has_a_unit(text: str, seconds: float) -> None:
    assert seconds_for(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "30", "-1s", "0s", "1w", "1e3s", "1.2.3s", "nans", "inf", "٣s", "400d"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="--for"):
        seconds_for(text)
