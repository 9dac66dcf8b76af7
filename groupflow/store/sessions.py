"""A daemon's session: the lease that covers all its claims, and what happens when it ends.

One lease a daemon, not one a claim: a daemon's claims live and die with its process. So a single
sorted-set entry covers them all, and a renewal costs the same for one claim and a thousand. A lease
ends only in a script (`reap`, `register`, `leave`) that in the same step puts the tasks back and
frees their groups; nothing expires by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any
from uuid import uuid4

import orjson

from groupflow.core.errors import SessionLost, SessionReplaced, StoreUnavailable
from groupflow.store.client import Argument, StoreClient
from groupflow.store.clock import microseconds, seconds
from groupflow.store.epochs import NEVER, Epoch, Seen
from groupflow.store.scripts import Verb

REAPED_AT_ONCE = 10  # daemons a call: bounds the script, and more come in the next pass


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A task that was taken from a daemon that didn't settle it."""

    id: str
    group: str | None  # its group, None for a plain task
    fence: int  # of the claim that ended
    daemon: str  # held it


@dataclass(frozen=True, slots=True)
class Claimable:
    """What a renewal tells beside its success: what this daemon could claim now."""

    plain: int  # so many plain tasks
    groups: int  # heads of so many groups
    # seconds for which nothing may be claimed at most, since Redis may have lost writes; else None
    recovering: float | None = None
    # whether another server leads now, which may not know what was settled last
    is_elsewhere: bool = False
    cancels: frozenset[str] = frozenset()  # ids of its claims' tasks that are to be cancelled


class Session:
    """The session of one daemon, shared by all its workers that claim or settle."""

    def __init__(self, daemon: str) -> None:
        self.daemon = daemon
        # tells this process from any other of that name, before or after; and, once `start` has
        # named it, which of them it replaces, and which replaces it
        self.process = NEVER + uuid4().hex
        self.number = NEVER  # of the newest session that it knows
        self.seen = Seen()
        # Claims go only to a server of this epoch: any other may not know what this daemon runs.
        self.epoch = Epoch()
        # Whether another daemon would miss it, if the server lost its opening. Before, nothing may
        # be claimed under it.
        self.is_witnessed = False

    @property
    def shown(self) -> str:
        """What scripts are shown: the session and its process."""
        return self.number + self.process

    def check(self, state: bytes) -> None:
        """Turn the state that a script answered into an error.

        Raises:
            SessionLost: the session shown is over; the claims made under it are gone.
            SessionReplaced: a process that started later registered under the same name.
        """
        if state == b"OK":
            return
        if state == b"REPLACED":
            raise self.replaced()
        if state == b"LOST":
            raise SessionLost(
                "Redis has lost writes, or leads in another's place for longer than daemon "
                f"{self.daemon!r} knows: what it runs may be unknown there"
            )
        raise SessionLost(
            f"the lease of daemon {self.daemon!r} ran out and its tasks were handed on"
        )

    def replaced(self) -> SessionReplaced:
        """What to say when another process has this daemon's name."""
        return SessionReplaced(
            f"another process registered as daemon {self.daemon!r}: "
            "give each daemon a --name of its own"
        )


@dataclass(frozen=True, slots=True)
class Elder:
    """The process that has a daemon's name in a partition, by a lease that runs."""

    info: dict[str, Any]  # what it tells of itself
    ends: int  # until when its lease runs (µs): later after each renewal
    left: float  # seconds until then
    silent: float  # seconds since it last renewed


async def start(daemon: str, partitions: Sequence[StoreClient]) -> tuple[str, dict[int, Elder]]:
    """Name a process that starts: it sorts behind all that registered before, where known.

    Returns:
        Its name, and by the partition's number the process that has the daemon's name there.

    Raises:
        StoreUnavailable: no partition answers.
        ServerUnreachable: a Redis refused the credentials.
    """
    asking = (each.run(Verb.START, daemon) for each in partitions)
    births, elders, refusals = list[str](), dict[int, Elder](), list[BaseException]()
    for number, answer in enumerate(await asyncio.gather(*asking, return_exceptions=True)):
        if isinstance(answer, BaseException):
            refusals.append(answer)
            continue
        birth, process, info, ends, lease, now = answer
        births.append(birth.decode())
        if process:
            left = seconds(ends - now)
            elders[number] = Elder(orjson.loads(info), ends, left, seconds(lease) - left)
    for error in refusals:
        if not (births and isinstance(error, StoreUnavailable)):
            raise error
    return max(births) + uuid4().hex, elders


class Sessions:
    """Opens, renews and closes a session, and takes over from daemons whose lease has run out."""

    def __init__(
        self,
        client: StoreClient,
        session: Session,
        lease: float,
        agree: Callable[[], Awaitable[None]] | None = None,
        *,
        limits: Callable[[], bytes] = lambda: b"",
        types: Callable[[], Sequence[str]] = list,
    ) -> None:
        """Binds the verbs, over a connection with a timeout well under a third of the lease (s).

        `agree` makes sure that the number of partitions is the namespace's, where the partition
        itself hasn't noted it yet. `limits` are those of the daemon's configuration, as
        `groupflow.store.limits` packs them; empty where it has no say in them. `types` are those
        that the daemon has handlers of.
        """
        self._agree = agree
        self.limits = limits
        self.types = types
        self._client = client
        self._session = session
        self._lease = microseconds(lease)
        # Whether another daemon waits for it to show what the last answer told.
        self.has_news = False
        self._old_at = 0.0  # when (monotonic) the session will be a lease old

    async def register(self, info: dict[str, Any]) -> list[HandedOver]:
        """Open a session, and put back what an earlier process of this name still held.

        `info` is what `status` tells of the daemon.

        Returns:
            The tasks taken up, each the next of its group again.

        Raises:
            SessionReplaced: a process that started later has this name.
            OtherLayout: the namespace has another number of partitions than is configured.
            StoreUnavailable: no answer, or none that tells how many it has.
        """
        daemon = self._session.daemon
        number, rows, epoch, is_witnessed = await self._register(info, "")
        if number == b"UNNOTED" and self._agree is not None:
            await self._agree()
            number, rows, epoch, is_witnessed = await self._register(info, "agreed")
        if number == b"REPLACED":
            raise self._session.replaced()
        self._session.number = number.decode()
        self._old_at = monotonic() + seconds(self._lease)
        self._learn(epoch, number, is_witnessed)
        return [_handed_over(row, daemon) for row in rows]

    async def _register(self, info: dict[str, Any], agreed: str) -> list[Any]:
        reply: list[Any] = await self._client.run(
            Verb.REGISTER,
            self._session.daemon,
            self._lease,
            orjson.dumps(info),
            self._session.process,
            self._session.number,
            agreed,
            self.limits(),
            orjson.dumps([*self.types()]),
            *self._shown(),
        )
        return reply

    async def renew(self) -> Claimable:
        """Push back the lease's end.

        Raises:
            SessionLost: it had ended; every claim is gone.
            SessionReplaced: the name was taken over.
        """
        daemon, shown, shows = self._session.daemon, self._session.shown, self._shown()
        self.has_news = False
        state, plain, groups, epoch, enrolled, is_witnessed, waits, asked = await self._client.run(
            Verb.RENEW, daemon, shown, self._lease, *shows
        )
        self._session.check(state)
        cancels = frozenset(id_.decode() for id_ in asked)
        is_elsewhere = epoch.decode() != self._session.epoch.id
        self._learn(epoch, enrolled, is_witnessed or self._session.is_witnessed)
        held_for = None if waits < 0 else seconds(waits)
        return Claimable(plain, groups, held_for, is_elsewhere, cancels)

    async def tell(self, info: dict[str, Any], settings: dict[str, Any]) -> None:
        """Replace what others are told of this daemon, its types, and limits by those it is given.

        Passwords in its settings are hidden.

        Raises:
            SessionLost: the lease had ended; `register` tells again.
            SessionReplaced: the name was taken over.
        """
        types = orjson.dumps([*self.types()])
        told = (orjson.dumps(info), orjson.dumps(settings), self.limits(), types)
        (state,) = await self._client.run(
            Verb.TELL, self._session.daemon, self._session.shown, *told
        )
        self._session.check(state)

    async def blame(self, culprit: tuple[int, str] | None) -> None:
        """Tell that a task blocks the loop, so that the lease ends: a death of only that task.

        Args:
            culprit: fence and id of the task; ``None`` where that is unknown: then it is a death of
                every task that the daemon runs.

        Raises:
            SessionLost: the session was lost already.
            SessionReplaced: the name was taken over.
        """
        what = "all" if culprit is None else f"{culprit[0]:016d}{culprit[1]}"
        shown = self._session.shown
        (state,) = await self._client.run(Verb.BLAME, self._session.daemon, shown, what)
        self._session.check(state)

    async def leave(self) -> list[HandedOver]:
        """Close the session; what it still held goes first in its group again."""
        daemon = self._session.daemon
        rows = await self._client.run(Verb.LEAVE, daemon, self._session.shown, self._lease)
        return [_handed_over(row, daemon) for row in rows]

    async def reap(self) -> tuple[float | None, list[HandedOver]]:
        """Take over from daemons whose lease has run out.

        Returns:
            Seconds until the next lease could end (``None`` without any), and the tasks put back.
        """
        wait, rows = await self._client.run(Verb.REAP, REAPED_AT_ONCE, self._lease)
        handed = [_handed_over(row[1:], row[0].decode()) for row in rows]
        return (None if wait < 0 else seconds(wait)), handed

    @property
    def is_witnessed(self) -> bool:
        """Whether tasks may be claimed under the session."""
        return self._session.is_witnessed

    def _shown(self) -> tuple[Argument, ...]:
        session, seen = self._session, self._session.seen
        is_old = 0.0 < self._old_at <= monotonic()
        return session.epoch.id, seen.fence, seen.sequence, seen.enrolled, "1" if is_old else ""

    def _learn(self, epoch: bytes, enrolled: bytes, is_witnessed: int) -> None:
        session, newest = self._session, enrolled.decode()
        if epoch.decode() != session.epoch.id:
            session.epoch = Epoch(epoch.decode(), monotonic())
        self.has_news = newest > session.seen.enrolled and newest != session.number
        session.seen.enrolled = max(session.seen.enrolled, newest)
        session.is_witnessed = bool(is_witnessed)


def _handed_over(row: list[bytes], daemon: str) -> HandedOver:
    id_, group, fence = row
    return HandedOver(id_.decode(), group.decode() or None, int(fence), daemon)
