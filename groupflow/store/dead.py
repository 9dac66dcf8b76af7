"""Dead letters: list, look at, redrive, drop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson

from groupflow.core.errors import GroupflowError, LetterArchived, NoRoomForDelay
from groupflow.core.places import Place
from groupflow.store.archiving import Beside, place_of
from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds, seconds
from groupflow.store.enqueue import UNBOUNDED
from groupflow.store.envelope import Envelope
from groupflow.store.scripts import Verb
from groupflow.store.settlements import history_line

NO_ROOM = -2  # what the script answers
PAGE = 200  # dead letters a script: bounds how long one may block Redis


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A task that has failed for good.

    Attributes:
        id: the task.
        type: its type, empty where it had none.
        group: its group, ``None`` for a plain task.
        tenant: its tenant, ``None`` where it named none.
        reason: why it died, in the words of whoever said so.
        kind: what it died of without those words: an error's name; empty where that is not known.
        attempts: how many attempts failed.
        died_at: Unix seconds by Redis's clock.
        died_at_the_door: whether it was never routed; a redrive then routes it first.
    """

    id: str
    type: str
    group: str | None
    tenant: str | None
    reason: str
    kind: str
    attempts: int
    died_at: float
    died_at_the_door: bool

    def as_json(self) -> dict[str, Any]:
        """The public shape of an entry of ``groupflow dead list --json``."""
        return {
            "id": self.id,
            "type": self.type,
            "group": self.group,
            "reason": self.reason,
            "attempts": self.attempts,
            "died_at": self.died_at,
        }


@dataclass(frozen=True, slots=True)
class DeadStory(DeadLetter):
    """A dead letter and what its attempts said.

    Attributes:
        bytes: how much lies in Redis of its facts, headers and body together.
        errors: one entry for each failed attempt that is remembered, oldest first; none where they
            lie in RabbitMQ with the body.
    """

    bytes: int
    errors: list[dict[str, Any]]

    def with_beside(self, beside: Beside | None) -> DeadStory:
        """The same with what lay in RabbitMQ of it."""
        if beside is None:
            return self
        return replace(self, reason=beside.reason, errors=orjson.loads(beside.errors or "[]"))


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters; an attribute that is ``None`` lets all pass.

    Attributes:
        reason: a part of the reason's text.
        kind: a part of the kind.
        type: the task type.
        group: the group.
        tenant: the tenant.
    """

    reason: str | None = None
    kind: str | None = None
    type: str | None = None
    group: str | None = None
    tenant: str | None = None

    @property
    def is_set(self) -> bool:
        """Whether it leaves anything out."""
        return self != Filter()

    def pack(self) -> bytes:
        """What `dead.lua` takes: those that are wanted."""
        return orjson.dumps({name: text for name, text in asdict(self).items() if text is not None})


@dataclass(frozen=True, slots=True)
class Memory:
    """Redis's memory in bytes: what is used, and its `maxmemory`, 0 for none."""

    used: int
    limit: int


@dataclass(frozen=True, slots=True)
class DeadPage:
    """Some dead letters.

    Attributes:
        looked_at: how many were tried against the filter.
        next: how many to pass over for the next page, ``None`` at the end.
        letters: those that passed.
    """

    looked_at: int
    next: int | None
    letters: list[DeadLetter]


class DeadLetters:
    """The dead letters of one store."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    async def each(self, wanted: Filter | None = None) -> AsyncIterator[DeadLetter]:
        """The matching dead letters, the latest death first; what dies meanwhile may be missed."""
        passed, looked = 0, PAGE
        while looked == PAGE:
            looked, letters = await self._look(wanted or Filter(), passed, PAGE)
            for letter in letters:
                yield letter
            passed += looked

    async def page(
        self, wanted: Filter, *, passed: int = 0, limit: int = 50, looks: int = 5
    ) -> DeadPage:
        """Some of the matching dead letters, the latest death first, by a bounded look.

        Args:
            wanted: which.
            passed: how many to pass over: 0, or `next` of the page before.
            limit: how many at most.
            looks: scripts at most, of `PAGE` dead letters each.
        """
        found: list[DeadLetter] = []
        looked = 0
        for _ in range(looks):
            more, letters = await self._look(wanted, passed + looked, limit - len(found))
            looked += more
            found += letters
            if len(found) >= limit:
                break
            if more < PAGE:
                return DeadPage(looked, None, found)
        return DeadPage(looked, passed + looked, found)

    async def _look(self, wanted: Filter, passed: int, most: int) -> tuple[int, list[DeadLetter]]:
        """How many were looked at, a page or until there were as many as wanted, and those."""
        looked, rows = await self._client.run(Verb.DEAD, passed, PAGE, most, wanted.pack())
        return looked, [DeadLetter(id_.decode(), *_facts(*row)) for id_, *row in rows]

    async def get(self, id_: str) -> DeadStory | None:
        """The dead letter of that id, or ``None``."""
        died, *row, size, errors = await self._client.run(Verb.LETTER, id_)
        if not died:
            return None
        return DeadStory(id_, *_facts(died, *row), size, orjson.loads(errors or b"[]"))

    async def envelope(self, id_: str) -> tuple[Envelope, Place | None]:
        """The envelope of a dead letter: its headers and its raw body.

        Returns:
            It, and ``None``; or what is left of it here, and where the whole of it lies.

        Raises:
            KeyError: there is no such dead letter.
        """
        packed, offset, message_id, group = await self._client.run(Verb.ENVELOPE, id_)
        if not packed:
            raise KeyError(id_)
        place = place_of(offset, message_id) if offset else None
        return Envelope.unpack_any(packed, group.decode() or None), place

    async def redrive(
        self,
        letter: DeadLetter,
        envelope: Envelope | None = None,
        priority: float | None = None,
        *,
        place: Place | None = None,
        beside: Beside | None = None,
        delayed_memory: int = UNBOUNDED,
    ) -> bool:
        """Make a dead letter a task again, at its original place in its group.

        Args:
            letter: which.
            envelope: what to store in its stead, for one that was routed anew, or whose body was
                not here.
            priority: seconds, for one that was routed anew.
            place: where `envelope` was read, if not here.
            beside: what lay there with it.
            delayed_memory: bytes of tasks that may wait for delays.

        Returns:
            Whether it was still there.

        Raises:
            LetterArchived: its body isn't here, and what was given isn't from where it lies.
            NoRoomForDelay: what waits for delays is at its bound; nothing was written.
            StoreFull: there is no memory for its body; nothing was written.
        """
        packed, group = b"", letter.group
        facts = ("", "", "")
        if envelope is not None:
            packed, group = envelope.pack(), envelope.group
            facts = (envelope.type, envelope.tenant or "", envelope.scope or "")
        order = "" if priority is None else microseconds(priority)
        back = (
            place.message_id if place else "",
            *((beside.errors, beside.context) if beside else ("", "")),
        )
        verdict = await self._client.run(
            Verb.REDRIVE, letter.id, group or "", packed, order, *facts, delayed_memory, *back
        )
        if verdict == NO_ROOM:
            raise NoRoomForDelay(
                "it has to wait for the rest of its delay, and what does so holds as much as "
                "redis.delayed_memory lets it: wait, drop delayed tasks, or raise that"
            )
        if verdict < 0:
            raise LetterArchived(f"the body of {letter.id} lies in RabbitMQ")
        return bool(verdict)

    async def memory(self) -> Memory:
        """How much Redis has and uses; zeros where its user may not ask."""
        try:
            found = await self._client.info("memory")
        except GroupflowError:
            return Memory(0, 0)
        return Memory(int(found["used_memory"]), int(found.get("maxmemory", 0)))

    async def drop(self, letter: DeadLetter) -> bool:
        """Remove a dead letter for good.

        Returns:
            Whether it was still there.
        """
        line = history_line("dropped", letter.type, letter.group, letter.attempts)
        return bool(await self._client.run(Verb.DROP, letter.id, line))

    async def sweep(self, retention: float, most: int) -> list[str]:
        """Remove dead letters older than `retention` seconds, `most` of them at most.

        Returns:
            The ids that were removed.
        """
        line = history_line("expired", "", None)
        ids = await self._client.run(Verb.SWEEP, microseconds(retention), most, line)
        return [id_.decode() for id_ in ids]


def _facts(  # noqa: PLR0917  the row that the scripts answer, in its order
    died: bytes,
    type_: bytes,
    group: bytes,
    tenant: bytes,
    reason: bytes,
    kind: bytes,
    attempts: int,
    at_door: int,
) -> tuple[str, str | None, str | None, str, str, int, float, bool]:
    """The fields of a dead letter behind its id."""
    return (
        type_.decode(),
        group.decode() or None,
        tenant.decode() or None,
        reason.decode(),
        kind.decode(),
        attempts,
        seconds(died),
        at_door == 1,
    )
