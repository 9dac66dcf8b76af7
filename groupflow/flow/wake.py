"""wake: tells the workforce that something may be claimed, as soon as a script says so.

A lost wake (Redis restarts, a connection breaks) costs at most the time until the next renewal of
the lease, which also tells what may be claimed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from dataclasses import dataclass
from time import monotonic
from typing import TypeAlias

import structlog

from groupflow.core.backoff import Backoff, Outage
from groupflow.core.errors import GroupflowError, StoreUnavailable
from groupflow.store.client import StoreClient
from groupflow.store.envelope import Pool

BURST = 100  # wakes that are heard before the loop runs other work

log = structlog.get_logger("groupflow.wake")


_POOLS: dict[bytes, frozenset[Pool]] = {
    b"plain": frozenset({"plain"}),
    b"grouped": frozenset({"grouped"}),
    b"ready": frozenset({"plain", "grouped"}),
    b"due": frozenset(),
    b"outbox": frozenset(),
    b"hold": frozenset(),
    b"all": frozenset({"plain", "grouped"}),
}
_HOLD_OF_ONE = b"hold:"  # and the group
_CANCEL = b"cancel:"  # and the task's id


@dataclass(frozen=True, slots=True)
class Heard:
    """Wakes heard together; after an interruption, all that may have been sent meanwhile.

    Attributes:
        pools: those with something to claim.
        is_due: whether a due time was set.
        has_outbox: whether the outbox has something again.
        holds: groups that were paused, limited or given an older task; ``None``: all.
        cancels: ids of tasks that are to be cancelled.
    """

    pools: Set[Pool]
    is_due: bool
    holds: Set[str] | None
    cancels: Set[str] = frozenset()
    has_outbox: bool = False


def _heard(kinds: Set[bytes]) -> Heard:
    return Heard(
        pools=frozenset[Pool]().union(*(_POOLS.get(kind, ()) for kind in kinds)),
        is_due=bool(kinds & {b"due", b"all"}),
        holds=None if kinds & {b"hold", b"all"} else _behind(_HOLD_OF_ONE, kinds),
        cancels=_behind(_CANCEL, kinds),
        has_outbox=bool(kinds & {b"outbox", b"all"}),
    )


def _behind(front: bytes, kinds: Set[bytes]) -> Set[str]:
    """What stands behind a beginning, in wakes that have it."""
    found = [kind.removeprefix(front) for kind in kinds if kind.startswith(front)]
    return {each.decode(errors="replace") for each in found}


Woken: TypeAlias = Callable[[Heard], None]


class _Pending:
    """Wakes heard and not passed on yet: those that come together become one."""

    def __init__(self, on_wake: Woken) -> None:
        self._on_wake = on_wake
        self._kinds = set[bytes]()

    def hear(self, kind: bytes) -> None:
        """Pass a wake on in the loop's next turn, with all that come until then."""
        if not self._kinds:
            asyncio.get_running_loop().call_soon(self._tell)
        self._kinds.add(kind)

    def _tell(self) -> None:
        kinds, self._kinds = self._kinds, set()
        self._on_wake(_heard(kinds))


async def listen(client: StoreClient, on_wake: Woken) -> None:
    """Listen for ever on the store's wake channel; after an interruption, wake at once.

    The client is for this alone, as a subscription keeps its connection. `on_wake` is called once
    for all wakes that have come.
    """
    backoff, pending, refused = Backoff(), _Pending(on_wake), Outage(monotonic)
    while True:
        try:
            async with client.wakes() as wakes:
                heard = 0
                async for kind in wakes:
                    backoff.reset()
                    if refused.is_away:
                        refused.answered()
                    if kind not in _POOLS and not kind.startswith((_HOLD_OF_ONE, _CANCEL)):
                        continue  # a wake for workers that pull
                    pending.hear(kind)
                    heard += 1
                    if heard % BURST == 0:  # wakes that have arrived are read without a pause
                        await asyncio.sleep(0)
        except StoreUnavailable as error:
            log.debug("wake.interrupted", error=str(error))
        except GroupflowError as error:
            if (told := refused.failed()) is not None:
                log.warning("wake.interrupted", error=str(error), **told)
        await asyncio.sleep(backoff.next())
