"""progress: how far attempts have got, as their handlers say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from groupflow.core.progress import Progress, unpack_progress
from groupflow.store.client import Argument, StoreClient
from groupflow.store.clock import microseconds, seconds
from groupflow.store.keys import SEQUENCE_DIGITS
from groupflow.store.scripts import Verb
from groupflow.store.sessions import Session

_AT_ONCE = 200  # claims a script: bounds how long one may block Redis


class Said(NamedTuple):
    """What the handler of a claim has said."""

    slot: str  # that holds the claim
    fence: int  # the claim's
    packed: bytes  # as of `pack_progress`


async def write_progress(
    client: StoreClient, session: Session, said: Sequence[tuple[Said, float]]
) -> None:
    """Write what was said, each so many seconds ago; not of a claim that its slot has no more.

    Raises:
        SessionLost: none is the session's any more.
        SessionReplaced: the daemon's name was taken over.
        StoreUnavailable: no answer; it may have been written.
    """
    calls = list[tuple[Verb, Sequence[Argument]]]()
    for at in range(0, len(said), _AT_ONCE):
        arguments: list[Argument] = [session.daemon, session.shown]
        for each, ago in said[at : at + _AT_ONCE]:
            fence = f"{each.fence:0{SEQUENCE_DIGITS}}"
            arguments += each.slot, fence, microseconds(ago), each.packed
        calls.append((Verb.PROGRESS, arguments))
    for state, *_ in await client.run_all(calls) if calls else ():
        session.check(state)


def progress_of(told: str | None, now: float) -> Progress | None:
    """What operators' scripts tell of a claim; `now` is Redis's clock (Unix seconds)."""
    if told is None:
        return None
    at, packed = seconds(told[:SEQUENCE_DIGITS]), told[SEQUENCE_DIGITS:]
    return unpack_progress(packed, at, max(0.0, now - at))
