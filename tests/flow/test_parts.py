"""What the end of one part of a daemon means for the others."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from groupflow.core.errors import GroupflowError, StoreUnavailable
from groupflow.flow.parts import last_word, run_for_ever, run_part
from tests.turns import turns


async def _ends() -> None:
    return


async def _stays() -> None:
    await asyncio.Event().wait()


async def _is_cancelled() -> None:
    raise asyncio.CancelledError


async def test_a_part_may_end_unless_it_is_to_run_for_ever() -> None:
    await run_part("publisher", _ends())
    with pytest.raises(GroupflowError, match="intake ended by itself"):
        await run_for_ever("intake", _ends())


async def test_a_part_that_a_library_cancelled_is_an_error() -> None:
    """A task group would take no notice, and the daemon live on without it."""
    with pytest.raises(GroupflowError, match="intake was cancelled"):
        await run_part("intake", _is_cancelled())


async def test_a_part_that_its_daemon_cancelled_is_none() -> None:
    part = asyncio.create_task(run_part("intake", _stays()))
    await turns()
    part.cancel()
    with suppress(asyncio.CancelledError):
        await part
    assert part.cancelled()


def test_the_first_error_of_the_innermost_group_is_the_last_word() -> None:
    known = StoreUnavailable("away")
    group = ExceptionGroup("o", [ExceptionGroup("i", [known, ValueError()]), KeyError()])
    assert last_word(group) is known
    assert "ValueError" in str(last_word(ExceptionGroup("o", [ValueError("x"), known])))
