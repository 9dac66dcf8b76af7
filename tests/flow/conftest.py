"""What the tests of the flow share: time enough on a busy machine."""

from __future__ import annotations

import pytest

from groupflow.flow import dispatcher
from tests.store.bench import LEASE


@pytest.fixture(autouse=True)
def _ready_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """No claim that is ready goes back by itself, but where a test is about that."""
    monkeypatch.setattr(dispatcher, "READY_FOR", LEASE)
