"""Dead letters: list, look at, redrive, drop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson

from groupflow.store.client import StoreClient
from groupflow.store.enqueue import MICROSECONDS
from groupflow.store.envelope import Envelope
from groupflow.store.scripts import Verb
from groupflow.store.settlements import history_line

PAGE = 200  # dead letters a script: bounds how long one may block Redis
REJECTED = "rejected"  # the error of a message that died at the door, before it had a route


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A task that has failed for good.

    Attributes:
        id: the task.
        type: its type, empty where it had none.
        group: its group, ``None`` for a plain task.
        tenant: its tenant, ``None`` where it named none.
        reason: why it died.
        attempts: how many attempts failed.
        died_at: Unix seconds by Redis's clock.
        errors: one entry for each failed attempt that is remembered, oldest first.
    """

    id: str
    type: str
    group: str | None
    tenant: str | None
    reason: str
    attempts: int
    died_at: float
    errors: list[dict[str, Any]]

    @property
    def died_at_the_door(self) -> bool:
        """Whether it was never routed; a redrive then routes it first."""
        return bool(self.errors) and self.errors[0].get("error") == REJECTED

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
class Filter:
    """Which dead letters; an attribute that is ``None`` lets all pass.

    Attributes:
        reason: a part of the reason's text.
        type: the task type.
        group: the group.
        tenant: the tenant.
    """

    reason: str | None = None
    type: str | None = None
    group: str | None = None
    tenant: str | None = None

    @property
    def is_set(self) -> bool:
        """Whether it leaves anything out."""
        return self != Filter()

    def matches(self, letter: DeadLetter) -> bool:
        """Whether a dead letter passes."""
        return (
            (self.reason is None or self.reason in letter.reason)
            and (self.type is None or self.type == letter.type)
            and (self.group is None or self.group == letter.group)
            and (self.tenant is None or self.tenant == letter.tenant)
        )


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
        passed = 0
        while rows := await self._client.run(Verb.DEAD, passed, PAGE):
            for row in rows:
                letter = _letter(*row)
                if wanted is None or wanted.matches(letter):
                    yield letter
            passed += len(rows)

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
            rows = await self._client.run(Verb.DEAD, passed + looked, PAGE)
            for row in rows:
                looked += 1
                letter = _letter(*row)
                if wanted.matches(letter):
                    found.append(letter)
                if len(found) >= limit:
                    return DeadPage(looked, passed + looked, found)
            if len(rows) < PAGE:
                return DeadPage(looked, None, found)
        return DeadPage(looked, passed + looked, found)

    async def get(self, id_: str) -> DeadLetter | None:
        """The dead letter of that id, or ``None``."""
        _now, packed, flat, died, *_ = await self._client.run(Verb.FIND, id_)
        if not (packed and died):
            return None
        return _letter(id_.encode(), died, packed.partition(b"\n")[0], flat)

    async def envelope(self, id_: str) -> Envelope:
        """The envelope of a dead letter: its headers and its raw body.

        Raises:
            KeyError: there is no such dead letter.
        """
        _now, packed, _flat, died, *_ = await self._client.run(Verb.FIND, id_)
        if not (packed and died):
            raise KeyError(id_)
        return Envelope.unpack(packed)

    async def redrive(
        self, letter: DeadLetter, envelope: Envelope | None = None, priority: float = 0.0
    ) -> bool:
        """Make a dead letter a task again, at its original place in its group.

        Args:
            letter: which.
            envelope: what to store in its stead, for one that was routed anew.
            priority: seconds, for one that was routed anew.

        Returns:
            Whether it was still there.
        """
        group = envelope.group if envelope is not None else letter.group
        packed = envelope.pack() if envelope is not None else b""
        order = round(priority * MICROSECONDS)
        return bool(await self._client.run(Verb.REDRIVE, letter.id, group or "", packed, order))

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
        ids = await self._client.run(Verb.SWEEP, round(retention * MICROSECONDS), most, line)
        return [id_.decode() for id_ in ids]


def _letter(id_: bytes, died_at: bytes, facts: bytes, flat_life: list[bytes]) -> DeadLetter:
    life = dict(zip(flat_life[::2], flat_life[1::2], strict=True))
    type_, _group, tenant, *_ = orjson.loads(facts) or ["", None, None]
    errors = orjson.loads(life.get(b"errors") or b"[]")
    remembered = len([error for error in errors if error.get("error") != REJECTED])
    return DeadLetter(
        id=id_.decode(),
        type=type_,
        group=life.get(b"group", b"").decode() or None,
        tenant=tenant,
        reason=life.get(b"reason", b"").decode(),
        attempts=max(remembered, int(life.get(b"attempt", 0))),
        died_at=float(died_at) / MICROSECONDS,
        errors=errors,
    )
