"""What callers may take: Redis's time, memory for bodies, turns to be served, and streams."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import Request

from groupflow.core.errors import PoolFull, StoreUnavailable
from groupflow.operate.namespace import Namespace
from groupflow.ops.page import throttle
from groupflow.ops.page.access import Authorizer
from groupflow.ops.page.endpoints import Caller, Endpoint, routes_of
from groupflow.ops.page.live import MOST, MOST_OF_ONE, Streams
from groupflow.ops.page.problems import RequestRefused
from groupflow.ops.page.throttle import (
    AT_ONCE,
    BODIES,
    LET_IN,
    SAVED,
    SHARE,
    WAITING,
    BodyQuota,
    FairQueue,
    Reads,
)
from groupflow.ops.snapshots import Snapshot
from groupflow.pools import waiting
from groupflow.pools.pullers import Given
from groupflow.settings.model import Http
from groupflow.settings.tokens import ALL_RIGHTS, OPERATOR, TokenHolder
from tests.deadlines import deadline
from tests.turns import turns, turns_until


async def test_one_after_another_and_more_than_may_wait_are_refused() -> None:
    reads = Reads()
    async with reads.turn(is_trusted=False):
        waiting = [asyncio.create_task(_pass(reads)) for _ in range(WAITING)]
        await turns()
        assert not any(each.done() for each in waiting)
        with pytest.raises(RequestRefused, match="Too many"):
            await _pass(reads)
    await asyncio.gather(*waiting)
    await _pass(reads)


async def _pass(reads: Reads, *, is_trusted: bool = False) -> None:
    async with reads.turn(is_trusted=is_trusted):
        pass


async def test_those_with_the_token_do_not_wait_behind_them() -> None:
    reads = Reads()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(reads.turn(is_trusted=False))
        for _ in range(AT_ONCE):
            await stack.enter_async_context(reads.turn(is_trusted=True))
        late = asyncio.create_task(_pass(reads, is_trusted=True))
        await turns()
        assert not late.done()
    await late


class Times:
    """A clock for turns, which passes by hand and while they sleep."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.without_core = 0.0
        self.slept: list[float] = []
        module = "groupflow.ops.page.throttle"
        monkeypatch.setattr(f"{module}.monotonic", lambda: self.now)
        monkeypatch.setattr(f"{module}._waited_for_core", lambda: self.without_core)
        monkeypatch.setattr(f"{module}.asyncio.sleep", self._pass)

    async def _pass(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.mark.parametrize(("reading", "waiting"), [(0.0625, 0.0), (0.75, 0.0), (0.0, 1.0)])
async def test_who_has_taken_much_waits(
    monkeypatch: pytest.MonkeyPatch, reading: float, waiting: float
) -> None:
    """What is saved up is spent; from then on readings wait twenty times as long as they took.

    A busy machine keeps the page from running: that is no time of the store's.
    """
    times, reads = Times(monkeypatch), Reads()
    for _ in range(200):
        async with reads.turn(is_trusted=False):
            times.now += reading + waiting
            times.without_core += waiting
    assert bool(times.slept) is bool(reading)
    assert 200 * reading <= SAVED + SHARE * times.now + reading


async def test_a_store_that_is_silent_makes_nobody_wait_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next page would have had no answer for minutes after an outage of seconds."""
    times, reads = Times(monkeypatch), Reads()
    for _ in range(3):
        with suppress(StoreUnavailable):
            async with reads.turn(is_trusted=False):
                times.now += 5.0
                raise StoreUnavailable("no answer within 5 s")
    assert times.slept == []


async def test_a_silent_partition_makes_nobody_wait_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others answered, and only what they took is counted."""
    times, reads = Times(monkeypatch), Reads()
    monkeypatch.setattr("groupflow.operate.namespace.monotonic", lambda: times.now, raising=False)

    async def silent(*_: object) -> None:
        times.now += 5.0
        raise StoreUnavailable("no answer within 5 s")

    async def read(client: Any) -> None:
        await (silent() if client.run else turns(0))
        times.now += client.seconds

    partitions = [(0.0, None), (0.01, None), (0.0, silent)]
    clients = [SimpleNamespace(seconds=seconds, run=run) for seconds, run in partitions]
    namespace = Namespace(cast(Any, clients))

    async with reads.turn(is_trusted=False):
        for _ in range(3):
            await namespace.ask_all(read)
    assert reads._saved == pytest.approx(SAVED - 3 * 0.01)
    await _pass(reads)
    assert times.slept == []


async def test_who_waits_for_the_same_answer_gets_the_same_error() -> None:
    """Each would ask a silent store anew, and the last of many open pages be cut off before."""
    asked, is_over = list[int](), asyncio.Event()

    async def read() -> int:
        asked.append(1)
        await is_over.wait()
        raise StoreUnavailable("no answer within 5 s")

    snapshot = Snapshot[int](read, 1.0)
    waiting = [asyncio.create_task(snapshot.get()) for _ in range(5)]
    await turns()
    is_over.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert (len(asked), {type(each) for each in found}) == (1, {StoreUnavailable})
    with pytest.raises(StoreUnavailable):
        await snapshot.get()
    assert len(asked) == 2, "whoever comes later asks again"


@pytest.mark.parametrize(("said", "seconds"), [("7 2500000000 3\n", 2.5), ("", 0.0)])
def test_the_system_says_how_long_it_waited_for_a_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, seconds: float
) -> None:
    monkeypatch.setattr(throttle, "_SCHEDULED", tmp_path / "schedstat")
    (tmp_path / "schedstat").write_text(said)
    assert throttle._waited_for_core() == seconds


async def test_bodies_wait_for_room_in_their_order() -> None:
    room, held = BodyQuota(), list[int]()
    goes_on = asyncio.Event()

    async def hold(size: int) -> None:
        async with room.of(size):
            held.append(size)
            await goes_on.wait()
        held.remove(size)

    bodies = [asyncio.create_task(hold(size)) for size in (BODIES - 1, 2, 1)]
    await turns_until(lambda: held)
    await turns(9)
    assert held == [BODIES - 1], "the small one doesn't overtake"
    bodies[0].cancel()
    await turns_until(lambda: len(held) == 3)  # the cancelled one didn't take itself out
    goes_on.set()
    await asyncio.gather(*bodies, return_exceptions=True)
    await _take_all(room)


async def _take_all(room: BodyQuota) -> None:
    async with room.of(BODIES):
        pass


async def test_a_body_that_finds_no_room_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "ROOM_WITHIN", 0.01)
    room = BodyQuota()
    async with room.of(1):
        with pytest.raises(RequestRefused, match="fewer at a time") as found:
            await _take_all(room)
    assert found.value.retry_after is not None
    await _take_all(room)


async def test_a_caller_with_many_requests_keeps_no_other_waiting() -> None:
    queue, served = FairQueue(), list[str]()

    async def ask(caller: str) -> None:
        await queue.enter(caller)
        served.append(caller)

    many = [asyncio.create_task(ask("many")) for _ in range(20 * LET_IN)]
    await turns()
    await asyncio.gather(ask("few"), *many[: LET_IN // 2])
    assert served.index("few") <= 3 * LET_IN
    gone = asyncio.create_task(ask("few"))
    await turns()
    gone.cancel()
    await asyncio.gather(gone, *many, return_exceptions=True)
    await ask("few")
    assert len(served) == len(many) + 2


@pytest.mark.parametrize("has_gone", [True, False])
async def test_who_has_gone_takes_no_turn(has_gone: bool) -> None:
    """A request whose caller has gone would keep the others waiting."""
    looked: list[str] = []

    async def look() -> list[str]:
        looked.append("once")
        return []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect" if has_gone else "http.request"}

    scope = {"type": "http", "method": "GET", "path": "/api/x", "query_string": b"", "headers": []}
    endpoint = Endpoint("GET", "/x", "Something", reads=True, handle=look)
    (route,) = routes_of([endpoint], Authorizer(Http()), Reads())
    await route.endpoint(Request(scope, receive))
    assert looked == ([] if has_gone else ["once"])


def _caller(peer: str, holder: TokenHolder | None = None) -> Caller:
    request = Request({"type": "http", "client": (peer, 1)})
    return Caller(request, holder, sees_contents=holder is not None)


OF_ALL = [_caller(f"192.0.2.{n}", TokenHolder(OPERATOR, ALL_RIGHTS)) for n in range(MOST)]


@pytest.mark.parametrize(
    ("callers", "ended"),
    [
        ([_caller("192.0.2.1"), *[_caller("192.0.2.2")] * (MOST_OF_ONE + 3)], [1, 2, 3]),
        ([_caller(str(number)) for number in range(MOST + 1)], [0]),
        ([*OF_ALL, OF_ALL[0]], [0]),
    ],
)
def test_the_oldest_makes_way(callers: list[Caller], ended: list[int]) -> None:
    """That of the same address, or of all; one with the token for another with the token."""
    streams = Streams()
    admitted = [streams.admit(caller) for caller in callers]
    assert [n for n, each in enumerate(admitted) if each and each.ended.is_set()] == ended
    assert None not in admitted
    assert len(streams) == len(callers) - len(ended) <= MOST


def test_one_without_the_token_drives_none_out_that_has_it() -> None:
    streams = Streams()
    operators = [streams.admit(each) for each in OF_ALL]
    assert streams.admit(_caller("192.0.2.250")) is None
    assert not any(each is None or each.ended.is_set() for each in operators)


async def test_who_goes_as_it_is_refused_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "LOOK", 0.01)
    asked, gone, given = asyncio.Event(), asyncio.Event(), Given([], False, 0.0, True, [])

    async def refused() -> Given:
        asked.set()
        await gone.wait()
        raise PoolFull("couriers")

    line = waiting.Lines([], partial(asyncio.sleep, 0))
    late = asyncio.create_task(line.wait("couriers", "late", refused, 30))
    await asked.wait()
    late.cancel()
    await asyncio.wait([late])
    gone.set()

    async def served() -> Given:
        return given

    async def fails() -> Given:
        raise KeyError("not foreseen")

    failing = asyncio.create_task(line.wait("couriers", "odd", fails, 30))
    assert await line.wait("couriers", "next", served, deadline(5)) is given
    with pytest.raises(KeyError):
        await failing
    await line.close()
