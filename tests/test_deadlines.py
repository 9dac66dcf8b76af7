"""The deadline of all tests follows the machine, and what is said of it."""

from __future__ import annotations

import os

import pytest

from tests.deadlines import MOST, SECONDS, deadline


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.delenv("TEST_SCALE", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return 2


@pytest.mark.parametrize(("load", "times"), [(0.1, 1.0), (2.0, 1.0), (6.0, 3.0), (99.0, MOST)])
def test_load_stretches_it(
    monkeypatch: pytest.MonkeyPatch, cores: int, load: float, times: float
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert (deadline(), deadline(2.0)) == (times * SECONDS, times * 2.0)


def test_more_may_be_asked_for(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 0.0, 0.0))
    monkeypatch.setenv("TEST_SCALE", "8")
    assert deadline() == 8 * SECONDS


def test_a_test_s_time_limit_follows_too(request: pytest.FixtureRequest) -> None:
    mark = request.node.get_closest_marker("timeout")
    if request.config.getoption("timeout") is None:
        assert mark.args[0] >= float(request.config.getini("timeout"))
    else:
        assert mark is None, "the command line's is the one"
