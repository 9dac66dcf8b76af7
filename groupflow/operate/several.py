"""What an operator does to several tasks, one after another: what keeps one doesn't keep others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

from groupflow.core.errors import (
    AmbiguousId,
    BodyMissing,
    BodyUnfit,
    GroupflowError,
    GroupFull,
    NoRoomForDelay,
    StoreFull,
    StoreUnavailable,
    Unroutable,
)

_Meant = TypeVar("_Meant")
_KEEP_ONE = (
    AmbiguousId,
    BodyMissing,
    BodyUnfit,
    GroupFull,
    NoRoomForDelay,
    StoreFull,
    StoreUnavailable,
    Unroutable,
)


async def act_on_each(
    meant: Iterable[_Meant], act: Callable[[_Meant], Awaitable[str | None]], partitions: int
) -> AsyncIterator[tuple[_Meant, str | GroupflowError | None]]:
    """Act on each, and yield it with what kept it as it was; ``None`` where it was done.

    Args:
        meant: the tasks, in any form.
        act: returns why a task stays as it is; ``None`` where it was done.
        partitions: how many the namespace has.

    Raises:
        StoreUnavailable: the only partition is away.
    """
    for each in meant:
        kept: str | GroupflowError | None
        try:
            kept = await act(each)
        except _KEEP_ONE as error:
            if isinstance(error, StoreUnavailable) and partitions == 1:
                raise
            kept = error
        yield each, kept
