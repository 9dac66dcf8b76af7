"""When the lease ends and is renewed, to the moment: by a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupflow.core.errors import SessionLost, SessionReplaced, StoreUnavailable
from groupflow.core.measures import UpkeepMeasures
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys
from groupflow.store.sessions import Claimable, HandedOver, Session, Sessions
from groupflow.upkeep import renew
from groupflow.upkeep.renew import BLOCKED, UNANSWERED, Blamed, Renewer
from tests.turns import turns_until
from tests.upkeep.heard import Heard

LEASE = 8.0
QUARTER = LEASE / 4


class _EnoughError(Exception):
    pass


class World(Sessions):
    """A renewer with an open session, whose store says what the test wants, and is never asked."""

    def __init__(self) -> None:
        super().__init__(StoreClient("redis://127.0.0.1:1", Keys("none")), Session("d1"), LEASE)
        self._session.is_witnessed = True
        self.now, self.takes = 1000.0, 0.0  # `takes`: seconds for an answer
        self.error: Exception | None = None
        self.register_error: Exception | None = None
        self.never, self.may_renew = False, True
        self.asked = self.registered = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.before_renewal: Callable[[], None] = lambda: None
        self.blamed: Blamed = False, None
        self.blames: list[tuple[int, str] | None] = []
        self.heard, self.measures = Heard(), UpkeepMeasures()
        how: dict[str, Any] = {"measures": self.measures, "blamed": lambda: self.blamed}
        how |= {"may_renew": lambda: self.may_renew}
        self.renewer = Renewer(self, self.heard, LEASE, dict, **how)
        self.pauses: list[float] = []

    async def renew_until_paused(self, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let it renew by itself, up to so many pauses, each as long as it says by this clock."""

        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)
            if len(self.pauses) == times:
                raise _EnoughError
            self.now += seconds

        monkeypatch.setattr(asyncio, "sleep", sleep)
        with pytest.raises(_EnoughError):
            await self.renewer.run()

    async def register(self, info: dict[str, Any]) -> list[HandedOver]:
        self.asked += 1
        await self.may_answer.wait()
        if self.register_error is not None:
            raise self.register_error
        self.registered += 1
        self.now += self.takes
        return [HandedOver("t1", "g", 7, "d1")] if self.registered == 1 else []

    async def blame(self, culprit: tuple[int, str] | None) -> None:
        if self.error is not None:
            raise self.error
        self.blames.append(culprit)

    async def renew(self) -> Claimable:
        self.before_renewal()
        self.now += self.takes
        if self.never:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return Claimable(3, 2)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(renew, "monotonic", lambda: world.now)
    await world.renewer.open()
    return world


@pytest.mark.parametrize("fails", [False, True])
async def test_a_session_that_is_being_opened_is_waited_for(world: World, *, fails: bool) -> None:
    """Seed 856: a daemon left while a session was on its way, and never closed it."""
    world.may_answer.clear()
    opening = asyncio.create_task(world.renewer.open())
    await turns_until(lambda: world.asked == 2)
    opening.cancel()
    leaving = asyncio.create_task(world.renewer.opened())
    again = asyncio.create_task(world.renewer.open())
    await asyncio.wait([opening])
    assert opening.cancelled()
    assert not leaving.done()
    assert world.asked == 2
    if fails:
        world.register_error = StoreUnavailable("away")
    world.may_answer.set()
    await leaving
    assert world.registered == (1 if fails else 2)
    world.register_error = None
    await again
    assert world.asked == 3


async def test_no_lease_is_held_before_others_know_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If its server lost it with its last writes, no daemon would miss its claims."""
    newcomer, holds = World(), list[bool]()
    monkeypatch.setattr(renew, "monotonic", lambda: newcomer.now)
    for is_witnessed in (False, False, True):
        newcomer._session.is_witnessed = is_witnessed
        await newcomer.renewer.run_once()
        holds.append(newcomer.renewer.holds_lease)
    assert holds == [False, False, True]
    assert newcomer.heard.all == [(3, 2), "opened", (3, 2)]


async def test_no_answer_moves_no_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for until then, or a quarter of the lease once that is over."""
    limits: list[float] = []

    def timeout(seconds: float) -> asyncio.Timeout:
        limits.append(seconds)
        return asyncio.timeout_at(asyncio.get_running_loop().time())

    monkeypatch.setattr(asyncio, "timeout", timeout)
    world.never = True
    for passed in (3.0, 5.0, 1.0):
        world.now += passed
        await world.renewer.run_once()
        assert world.renewer.steady_since == world.now
    assert limits == [5.0, QUARTER, QUARTER]
    assert world.renewer.left == -1.0
    assert world.measures.renewals_failed == 3
    assert world.heard.all == ["ended"]


async def test_an_end_has_the_reason_of_the_last_try(world: World) -> None:
    """Blocked, then answered in vain: the next end is Redis's."""
    world.may_renew = False
    await world.renewer.run_once()
    with capture_logs() as logs:
        world.now += LEASE
        world.may_renew = True
        await world.renewer.run_once()
        world.now += LEASE
        await world.renewer.run_once()
    ends = [each["reason"] for each in logs if each["event"] == "lease.ended"]
    assert ends == [BLOCKED, UNANSWERED]


async def test_a_session_goes_on_behind_a_lease_that_had_ended(world: World) -> None:
    """What the daemon says of itself was told to no partition without a lease, as at a reload."""
    world.now += LEASE
    for _ in range(2):
        await world.renewer.run_once()
    assert world.heard.all == ["ended", "continued", (3, 2), (3, 2)]


async def test_what_blocks_is_blamed_once_it_is_sure(world: World) -> None:
    """Before the lease ends; once a block, and again where there was no answer."""
    world.may_renew = False
    await world.renewer.run_once()
    assert world.blames == []
    world.blamed = True, (7, "a")
    world.error = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await world.renewer.run_once()
    world.error = None
    for _ in range(2):
        await world.renewer.run_once()
        assert world.blames == [(7, "a")]
    world.may_renew = True
    await world.renewer.run_once()
    world.may_renew, world.blamed = False, (True, None)
    await world.renewer.run_once()
    assert world.blames == [(7, "a"), None]


@pytest.mark.parametrize("error", [SessionLost("gone"), SessionReplaced("by another")])
async def test_a_task_no_longer_held_is_blamed_for_nothing(world: World, error: Exception) -> None:
    world.may_renew, world.blamed, world.error = False, (True, None), error
    await world.renewer.run_once()
    world.error = None
    await world.renewer.run_once()
    assert world.blames == []


async def test_news_waits_while_the_loop_is_blocked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the lease's thread would spin beside the handler that blocks (simulated: seed 10359)."""
    world.has_news, world.may_renew = True, False
    await world.renew_until_paused(4, monkeypatch)
    assert world.pauses[0] == 0.0
    assert all(world.pauses[1:])


async def test_it_tries_each_quarter(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """And to the moment at the lease's end."""

    def fails_from_the_third_on() -> None:
        if len(world.pauses) == 3:
            world.error = StoreUnavailable("away")

    world.before_renewal = fails_from_the_third_on
    world.takes = 0.5
    await world.renew_until_paused(12, monkeypatch)
    soon = QUARTER / 4
    # The last answer's sending was 2.5 s before the third one failed.
    assert world.pauses[:3] == [QUARTER, QUARTER - 0.5, QUARTER - 0.5]
    assert world.pauses[3:] == [soon] * 5 + [0.5, soon, soon, soon]
    assert world.measures.renewals_failed == 9
    assert world.renewer.steady_since == world.now
    assert world.heard.all == [(3, 2), (3, 2), "ended"]
