"""Servers for as long as a block takes, from code that has no event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import pytest

from tests.deadlines import deadline

_Answer = TypeVar("_Answer")


class _Starts(Protocol):
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


_Server = TypeVar("_Server", bound=_Starts)


def run(work: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Run a coroutine to its end, on a loop of its own.

    In a thread, since a test's loop may be running in this one (``request.getfixturevalue``).
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, work).result()


@contextmanager
def running(server: _Server) -> Iterator[_Server]:
    """A server, started; stopped at the end."""
    with pytest.MonkeyPatch.context() as patch:
        if hasattr(server, "ready_within"):
            patch.setattr(type(server), "ready_within", deadline())
        run(server.start())
    try:
        yield server
    finally:
        run(server.stop())
