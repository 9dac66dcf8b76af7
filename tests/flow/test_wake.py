"""Listening for wakes: which are told, and that it goes on after each interruption."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from groupflow.core.errors import GroupflowError, StoreUnavailable
from groupflow.flow import wake
from groupflow.store.client import StoreClient
from tests.deadlines import deadline
from tests.turns import CountedTurns


class Channel:
    """A client with a subscription for each of these lists, and nothing after the last."""

    def __init__(self, *subscriptions: list[bytes | Exception]) -> None:
        self._subscriptions = list(subscriptions)
        self.is_over = asyncio.Event()

    @asynccontextmanager
    async def wakes(self) -> AsyncIterator[AsyncIterator[bytes]]:
        if not self._subscriptions:
            self.is_over.set()
            await asyncio.Event().wait()
        yield self._each(self._subscriptions.pop(0))

    async def _each(self, said: list[bytes | Exception]) -> AsyncIterator[bytes]:
        for each in said:
            if isinstance(each, Exception):
                raise each
            yield each


async def test_it_listens_on_after_each_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """Soon after one that came behind a wake, later the longer there is none."""
    pauses: list[str] = []

    class Noted:
        def next(self) -> float:
            pauses.append("pause")
            return 0.0

        def reset(self) -> None:
            pauses.append("reset")

    monkeypatch.setattr(wake, "Backoff", Noted)
    channel: Any = Channel(
        [b"due", b"pool", b"hold:a:b", b"plain", StoreUnavailable("away")],
        [GroupflowError("no")],
        [GroupflowError("no")],
        [b"due"],
    )
    heard: list[wake.Heard] = []

    with capture_logs() as logs:
        listening = asyncio.create_task(wake.listen(cast(StoreClient, channel), heard.append))
        await asyncio.wait_for(channel.is_over.wait(), deadline())
    assert [each["log_level"] for each in logs] == ["debug", "warning"], "a refusal is told once"
    # Those of the first came together.
    assert heard == [
        wake.Heard({"plain"}, is_due=True, holds={"a:b"}),
        wake.Heard(set(), is_due=True, holds=set()),
    ]
    assert pauses == ["reset"] * 4 + ["pause"] * 3 + ["reset", "pause"]
    listening.cancel()


async def test_wakes_that_come_together_are_one_and_others_have_their_turn() -> None:
    """However many are there, and however quickly they come."""
    wakes: list[bytes | Exception] = [b"ready"] * 4000
    wakes[1234] = b"due"
    channel: Any = Channel(wakes)
    heard: list[bool] = []

    def hear(told: wake.Heard) -> None:
        assert (told.pools, told.holds) == ({"plain", "grouped"}, set())
        heard.append(told.is_due)

    listening = asyncio.create_task(wake.listen(cast(StoreClient, channel), hear))
    turns = CountedTurns()
    await asyncio.wait_for(channel.is_over.wait(), deadline())
    listening.cancel()
    assert turns.number >= len(wakes) / wake.BURST
    assert len(heard) <= 2 * len(wakes) / wake.BURST
    assert heard.count(True) == 1
