"""A rig for each test: its own queue and namespace on the servers that all tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from groupflow.servers import RabbitmqServer, RedisServer
from tests.endtoend.rig import Rig

MakeRig: TypeAlias = Callable[..., Rig]


@pytest.fixture
def make_rig(
    tmp_path: Path, rabbitmq_server: RabbitmqServer, redis_server: RedisServer
) -> Iterator[MakeRig]:
    """Make rigs with settings of the test's own; their daemons end with the test."""
    rigs: list[Rig] = []

    def make(**sections: Any) -> Rig:
        folder = tmp_path / f"{tmp_path.name}-{len(rigs)}"
        folder.mkdir()
        rig = Rig(folder, rabbitmq_server, redis_server, **sections)
        rigs.append(rig)
        return rig

    yield make
    for rig in rigs:
        rig.close()


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    """A rig with the usual settings."""
    return make_rig()
