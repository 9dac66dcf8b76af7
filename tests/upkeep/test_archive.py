"""When the archiver moves bodies, and what it says; what moves: tests/operate/test_archiving.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupflow.core.errors import ArchiveRefused, BodyRefused, BrokerUnavailable, StoreUnavailable
from groupflow.core.measures import UpkeepMeasures
from groupflow.operate.archiving import LetterBody
from groupflow.store.sessions import Session
from groupflow.upkeep import archive as module
from groupflow.upkeep.archive import AT_ONCE, PAUSE, REFUSED_PAUSE, Archiver

BOUND = 1000


def body(id_: str) -> LetterBody:
    return LetterBody(id_, b"1", id_.encode() * 10, b"", (), goes_along=False)


class World:
    """Redis with these bodies over the bound, RabbitMQ, and an archiver between them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bodies = list[LetterBody]()
        self.asked: list[tuple[int, int]] = []
        self.written: list[list[bytes]] = []
        self.error: Exception | None = None
        self.store_error: Exception | None = None
        self.is_pressed = False
        self.measures = UpkeepMeasures()
        monkeypatch.setattr(module, "oldest_bodies", self._oldest)
        monkeypatch.setattr(module, "archive", self._archive)
        made: Any = Archiver
        self.archiver: Archiver = made(
            self, Session("d1"), self, BOUND, lambda: self.is_pressed, self.measures
        )

    async def _oldest(self, *arguments: Any, most: int, most_bytes: int) -> list[LetterBody]:
        self.asked.append((arguments[2], most))
        if not most:
            if self.store_error is not None:
                raise self.store_error
            return []
        return self.bodies

    async def _archive(self, _: Any, bodies: Sequence[LetterBody], places: Sequence[Any]) -> int:
        assert len(bodies) == len(places)
        return len(bodies)

    async def write(self, bodies: Sequence[bytes]) -> list[Any]:
        self.written.append(list(bodies))
        if self.error is not None:
            raise self.error
        return [None] * len(bodies)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_what_is_over_the_bound_goes_as_one(world: World) -> None:
    """The bound is none while intake stands for memory."""
    world.bodies = [*map(body, "ab")]
    with capture_logs() as logs:
        assert await world.archiver.run_once() == 0.0  # there may be more
    assert world.written == [[b"a" * 10, b"b" * 10]]
    assert world.measures.archived == 2
    assert (logs[0]["letters"], logs[0]["bytes"]) == (2, 20)
    world.is_pressed, world.bodies = True, []
    assert await world.archiver.run_once() == PAUSE
    assert world.asked == [(BOUND, AT_ONCE), (0, AT_ONCE)]
    assert len(world.written) == 1


@pytest.mark.parametrize("store_error", [None, StoreUnavailable("away")])
async def test_after_an_error_another_may_try(world: World, store_error: Exception | None) -> None:
    """The turn is given up, where Redis can be asked; the error is RabbitMQ's all the same."""
    world.bodies = [body("a")]
    world.error, world.store_error = BrokerUnavailable("away"), store_error
    with pytest.raises(BrokerUnavailable):
        await world.archiver.archive()
    assert world.asked == [(BOUND, AT_ONCE), (BOUND, 0)]


TROUBLES: list[Any] = [
    (BrokerUnavailable("away"), "archive.failed", PAUSE),
    (ArchiveRefused("no streams"), "archive.refused", REFUSED_PAUSE),
    (BodyRefused("full"), "archive.refused", REFUSED_PAUSE),
    (ZeroDivisionError("odd"), "archive.failed", REFUSED_PAUSE),
]


@pytest.mark.parametrize(("error", "event", "pause"), TROUBLES)
async def test_trouble_told_once(world: World, error: Exception, event: str, pause: float) -> None:
    """What won't pass by itself is tried again less often."""
    is_refused = event == "archive.refused"
    another = BrokerUnavailable("away") if is_refused else ArchiveRefused("no streams")
    with capture_logs() as logs:
        assert [world.archiver.failed(error) for _ in range(2)] == [pause, pause]
        await world.archiver.run_once()  # nothing to do is no end of it
        world.archiver.failed(error)
        world.bodies = [body("a")]
        await world.archiver.run_once()
        for each in (error, another, error):
            world.archiver.failed(each)
    said = [each["event"] for each in logs]
    other = "archive.failed" if is_refused else "archive.refused"
    assert said == [event, "dead.archived", event, other, event]
    assert ("remedy" in logs[0]) == is_refused
    assert logs[0].get("kind") == ("ZeroDivisionError" if "odd" in str(error) else None)
