"""Whether the simulation sees: damages, each put where it belongs, break promises soon."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.programs import must
from tests.simulation.command import real_server
from tests.simulation.damages import DAMAGES
from tests.simulation.damaging import DamagedRedis

QUICK = ("no-lock", "wrong-end", "state-stays", "unwritten-acked")
"""One of each kind, which the very first seeds show."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The socket of a private Redis."""
    with real_server() as path:
        yield path


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_is_put_somewhere(name: str, server: str) -> None:
    """In a script that has what it is about, or in a method that there is.

    Whether a call that a script makes ever has another effect, a search tells.
    """
    damage = DAMAGES[name]
    with closing(DamagedRedis(server, damage)) as real:
        for sha in real.know_all("oldest", 2, tells=True):
            real.sha(sha)
        changed = real.changed
    assert changed or damage.in_product()


def found(*arguments: str) -> str:
    """What the search for damages says at its end."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.simulation.damages", *arguments]
    return must(*command, seconds=2400)


def test_some_damages_are_seen_at_once() -> None:
    assert "found 4 of 4 damages" in found("--seeds", "10", *QUICK)
