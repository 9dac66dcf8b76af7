"""Event streams: a hundred open ones lock nobody out."""

from __future__ import annotations

from contextlib import ExitStack

import httpx
from starlette.requests import Request

from groupflow.ops.page.endpoints import Caller
from groupflow.ops.page.live import MOST, MOST_OF_ONE, Streams
from groupflow.settings.tokens import ALL_RIGHTS, OPERATOR, TokenHolder
from tests.deadlines import deadline
from tests.page.world import TOKEN, World


def _request(peer: str) -> Request:
    return Request({"type": "http", "client": (peer, 1)})


def _anybody(peer: str) -> Caller:
    return Caller(_request(peer), holder=None, sees_contents=False)


def _operator(peer: str) -> Caller:
    return Caller(_request(peer), holder=TokenHolder(OPERATOR, ALL_RIGHTS), sees_contents=True)


def test_the_oldest_of_an_address_makes_way() -> None:
    streams = Streams()
    other = streams.admit(_anybody("192.0.2.1"))
    mine = [streams.admit(_anybody("192.0.2.2")) for _ in range(MOST_OF_ONE + 3)]
    assert [stream is not None and stream.ended.is_set() for stream in mine] == (
        [True] * 3 + [False] * MOST_OF_ONE
    )
    assert other is not None
    assert not other.ended.is_set()


def test_the_oldest_of_all_makes_way() -> None:
    streams = Streams()
    all_ = [streams.admit(_anybody(str(number))) for number in range(MOST + 1)]
    assert all_[0] is not None
    assert all_[0].ended.is_set()
    assert len(streams) == MOST


def test_those_with_the_token_stay_and_come_in() -> None:
    streams = Streams()
    operators = [streams.admit(_operator(str(number))) for number in range(MOST)]
    assert streams.admit(_anybody("192.0.2.1")) is None
    late = streams.admit(_operator("192.0.2.1"))
    assert late is not None
    ended = [number for number, each in enumerate(operators) if each and each.ended.is_set()]
    assert ended == [0]
    assert len(streams) == MOST


def test_more_than_there_may_be(world: World) -> None:
    """Over the wire: the operator's stream is opened behind them all, and goes on."""
    client = httpx.Client(
        base_url=world.url,
        timeout=deadline(),
        trust_env=False,
        limits=httpx.Limits(max_connections=None),
    )
    with client, ExitStack() as stack:
        operators = {"Authorization": f"Bearer {TOKEN}"}
        mine = stack.enter_context(client.stream("GET", "/api/events", headers=operators))
        crowd = [
            stack.enter_context(client.stream("GET", "/api/events")) for _ in range(2 * MOST_OF_ONE)
        ]
        assert {answer.status_code for answer in (mine, *crowd)} == {200}
        lines = mine.iter_lines()
        seen = [next(line for line in lines if line.startswith("data: ")) for _ in range(3)]
        assert len(seen) == 3
        first = crowd[0].iter_lines()
        assert sum(line.startswith("data: ") for line in first) >= 1  # and then it ends
