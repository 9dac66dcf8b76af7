"""A rig for each test: its own queue and namespace on the servers that all tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.endtoend.rig import Rig

MakeRig: TypeAlias = Callable[..., Rig]


@contextmanager
def rigs(folder: Path, rabbitmq: Any, store: Any, /, **usual: Any) -> Iterator[MakeRig]:
    """Make rigs on these servers, with these settings or a test's own; their daemons end here."""
    made: list[Rig] = []

    def make(**sections: Any) -> Rig:
        merged = usual | {name: usual.get(name, {}) | own for name, own in sections.items()}
        place = folder / f"{folder.name}-{len(made)}"
        place.mkdir()
        made.append(Rig(place, rabbitmq, store, **merged))
        return made[-1]

    try:
        yield make
    finally:
        for rig in made:
            rig.close()


@pytest.fixture
def make_rig(tmp_path: Path, rabbitmq_server: Any, redis_server: Any) -> Iterator[MakeRig]:
    """Make rigs with settings of the test's own."""
    with rigs(tmp_path, rabbitmq_server, redis_server) as make:
        yield make


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    """A rig with the usual settings."""
    return make_rig()
