"""Event streams: a hundred open ones lock nobody out."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from groupflow.ops.page.endpoints import Caller
from groupflow.ops.page.live import MOST, MOST_OF_ONE, Streams
from groupflow.settings.tokens import ALL_RIGHTS, OPERATOR, TokenHolder


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
