"""The archiver between Redis and RabbitMQ: what it moves, leaves and says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from groupflow.broker.archive import Archive
from groupflow.core.errors import ArchiveRefused, BodyRefused, BrokerUnavailable, StoreUnavailable
from groupflow.core.measures import UpkeepMeasures
from groupflow.operate.archiving import LetterBody
from groupflow.store.client import StoreClient
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
        self.archived: list[str] = []
        self.stays: list[str] = []
        self.refuses: set[bytes] = set()
        self.error: Exception | None = None
        self.store_error: Exception | None = None
        self.is_pressed = False
        self.is_there = True
        self.measures = UpkeepMeasures()
        monkeypatch.setattr(module, "oldest_bodies", self._oldest)
        monkeypatch.setattr(module, "archive", self._archive)
        monkeypatch.setattr(module, "stay", self._stay)
        self.archiver = Archiver(
            cast(StoreClient, self),
            Session("d1"),
            cast(Archive, self),
            BOUND,
            lambda: self.is_pressed,
            self.measures,
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
        self.archived += [each.id for each in bodies]
        return len(bodies)

    async def _stay(self, _: Any, body: LetterBody) -> bool:
        self.stays.append(body.id)
        return self.is_there

    async def write(self, bodies: Sequence[bytes]) -> list[Any]:
        self.written.append(list(bodies))
        if self.error is not None:
            raise self.error
        if self.refuses.intersection(bodies):
            raise BodyRefused("too large")
        return [None] * len(bodies)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_what_is_over_the_bound_goes_as_one(world: World) -> None:
    world.bodies = [*map(body, "ab")]
    with capture_logs() as logs:
        assert await world.archiver.run_once() == 0.0  # there may be more
    assert world.written == [[b"a" * 10, b"b" * 10]]
    assert world.archived == ["a", "b"]
    assert world.asked == [(BOUND, AT_ONCE)]
    assert world.measures.archived == 2
    assert (logs[0]["letters"], logs[0]["bytes"]) == (2, 20)


async def test_the_bound_is_none_while_intake_stands_for_memory(world: World) -> None:
    world.is_pressed = True
    assert await world.archiver.run_once() == PAUSE
    assert world.asked == [(0, AT_ONCE)]
    assert world.written == []


@pytest.mark.parametrize("refused", ["a", "c", "e"])
async def test_the_one_that_is_refused_stays_and_all_others_go(world: World, refused: str) -> None:
    """It is found by halves, and RabbitMQ asked whether it takes others at all."""
    world.bodies = [*map(body, "abcde")]
    world.refuses = {refused.encode() * 10}
    with capture_logs() as logs:
        await world.archiver.run_once()
    assert world.archived == [each for each in "abcde" if each != refused]
    assert world.stays == [refused]
    assert [b""] in world.written
    assert world.measures.archived == 4
    said = [(each["event"], each.get("task")) for each in logs]
    assert said == [("archive.body_stays", refused), ("dead.archived", None)]


async def test_one_that_is_gone_meanwhile_is_not_said_to_stay(world: World) -> None:
    world.bodies = [body("a")]
    world.refuses, world.is_there = {b"a" * 10}, False
    with capture_logs() as logs:
        await world.archiver.run_once()
    assert [each["event"] for each in logs] == ["dead.archived"]


async def test_where_none_is_taken_none_is_marked(world: World) -> None:
    world.bodies = [body("a")]
    world.refuses = {b"a" * 10, b""}
    with pytest.raises(BodyRefused):
        await world.archiver.archive()
    assert world.stays == world.archived == []


@pytest.mark.parametrize("store_error", [None, StoreUnavailable("away")])
async def test_after_an_error_another_daemon_may_try(
    world: World, store_error: Exception | None
) -> None:
    """The turn is given up, where Redis can be asked; the error is RabbitMQ's all the same."""
    world.bodies = [body("a")]
    world.error, world.store_error = BrokerUnavailable("away"), store_error
    with pytest.raises(BrokerUnavailable):
        await world.archiver.archive()
    assert world.asked == [(BOUND, AT_ONCE), (BOUND, 0)]
    assert world.archived == []


@pytest.mark.parametrize(
    ("error", "event", "pause"),
    [
        (BrokerUnavailable("away"), "archive.failed", PAUSE),
        (ArchiveRefused("no streams"), "archive.refused", REFUSED_PAUSE),
        (BodyRefused("full"), "archive.refused", REFUSED_PAUSE),
        (ZeroDivisionError("odd"), "archive.failed", REFUSED_PAUSE),
    ],
)
async def test_trouble_is_said_once_until_it_is_over(
    world: World, error: Exception, event: str, pause: float
) -> None:
    """What won't pass by itself is tried again less often."""
    world.bodies = [body("a")]
    with capture_logs() as logs:
        assert [world.archiver.failed(error) for _ in range(2)] == [pause, pause]
        await world.archiver.run_once()
        world.archiver.failed(error)
    said = [each for each in logs if each["event"] != "dead.archived"]
    assert [each["event"] for each in said] == [event, event]
    assert ("remedy" in said[0]) == isinstance(error, ArchiveRefused)
    assert said[0].get("kind") == ("ZeroDivisionError" if "odd" in str(error) else None)


async def test_trouble_that_changes_is_said_again(world: World) -> None:
    with capture_logs() as logs:
        for error in (BrokerUnavailable("away"), ArchiveRefused("no"), BrokerUnavailable("away")):
            world.archiver.failed(error)
        await world.archiver.run_once()  # nothing to do is no end of it
        world.archiver.failed(BrokerUnavailable("away"))
    assert len(logs) == 3
