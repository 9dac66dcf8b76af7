"""Dead letters: list, look at, redrive, drop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from groupflow.core.errors import GroupflowError, LetterArchived, NoRoomForDelay
from groupflow.core.places import Place
from groupflow.operate.archiving import Beside, place_of
from groupflow.operate.away import Away
from groupflow.operate.pages import Slice
from groupflow.operate.replies import named
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds
from groupflow.store.enqueue import UNBOUNDED
from groupflow.store.envelope import Envelope
from groupflow.store.settlements import history_line

NO_ROOM = -2  # what the script answers
PAGE = 200  # dead letters a script: bounds how long one may block Redis
LOOKS = 5  # scripts a page: bounds how long a filter may search


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A task that has failed for good."""

    id: str
    type: str  # its type, empty if it had none
    group: str | None  # its group, None for a plain task
    tenant: str | None  # its tenant, None if it named none
    reason: str  # why it died, in the words of its handler or of groupflow
    kind: str  # what it died of without those words: an error's name; empty if unknown
    attempts: int  # how many attempts failed
    died_at: float  # Unix seconds by Redis's clock
    died_at_the_door: bool  # whether it was never routed; a redrive then routes it first

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
    """A dead letter with the errors of its attempts."""

    bytes: int  # how much lies in Redis of its facts, headers and body together
    # one entry for each failed attempt that is remembered, oldest first; none if they lie in
    # RabbitMQ with the body
    errors: list[dict[str, Any]]

    def with_beside(self, beside: Beside | None) -> DeadStory:
        """The same with what RabbitMQ held of it."""
        if beside is None:
            return self
        return replace(self, reason=beside.reason, errors=orjson.loads(beside.errors or "[]"))


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters to list; an attribute that is ``None`` lets all pass."""

    reason: str | None = None  # a part of the reason's text
    kind: str | None = None  # a part of the kind
    type: str | None = None  # the task type, or its beginning: ``import.*``
    group: str | None = None
    tenant: str | None = None

    @property
    def is_set(self) -> bool:
        """Whether it filters at all."""
        return self != Filter()

    def pack(self) -> bytes:
        """What `dead.lua` takes: the attributes that are set."""
        return orjson.dumps({name: text for name, text in asdict(self).items() if text is not None})


@dataclass(frozen=True, slots=True)
class DeadKind:
    """Dead letters that died of the same."""

    kind: str  # an error's name, without its words; empty if unknown
    reason: str  # the beginning that all of their reasons share
    count: int
    last_at: float  # Unix seconds: the latest death
    example: str  # the id of that letter
    tenant: str | None  # its tenant


@dataclass(frozen=True, slots=True)
class Memory:
    """Redis's memory in bytes: how much it uses, and its `maxmemory`, 0 for none."""

    used: int
    limit: int


@dataclass(frozen=True, slots=True)
class DeadPage:
    """Some dead letters."""

    looked_at: int  # how many were tried against the filter
    # what to pass over for the next page, None at the end: a number, or one for each partition
    # if there are several
    next: int | str | None
    letters: list[DeadLetter]  # those that passed
    away: list[Away] = field(default_factory=list)  # partitions that are missing from all of this


class DeadLetters:
    """The dead letters of one store."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    async def each(self, wanted: Filter | None = None) -> AsyncIterator[DeadLetter]:
        """The matching dead letters, the latest death first; later deaths may be missed."""
        passed, looked = 0, PAGE
        while looked == PAGE:
            looked, letters = await self._look(wanted or Filter(), passed, PAGE, PAGE)
            for _, letter in letters:
                yield letter
            passed += looked

    async def page(
        self, wanted: Filter, *, passed: int = 0, limit: int = 50, looks: int = LOOKS
    ) -> DeadPage:
        """Some of the matching dead letters, the latest death first, by a bounded look.

        Args:
            wanted: which.
            passed: how many to pass over: 0, or `next` of the page before.
            limit: how many at most.
            looks: scripts at most, of `PAGE` dead letters each.
        """
        look = await self.look(wanted, passed, limit, looks)
        following = None if look.next is None else int(look.next)
        return DeadPage(look.looked, following, look.rows)

    async def look(
        self, wanted: Filter, passed: int, limit: int, looks: int = LOOKS
    ) -> Slice[DeadLetter]:
        """The same as `page`, with the facts that merge several stores' pages."""
        found: Slice[DeadLetter] = Slice()
        for _ in range(looks):
            rows = limit - len(found.rows)
            looked, letters = await self._look(wanted, passed + found.looked, PAGE, rows)
            for place, letter in letters:
                found.add(letter, -letter.died_at, found.looked + place)
            found.looked += looked
            if len(found.rows) < limit and looked < PAGE:
                return found
            if len(found.rows) >= limit:
                break
        found.next = str(passed + found.looked)
        return found

    async def _look(
        self, wanted: Filter, passed: int, number: int, most: int
    ) -> tuple[int, list[tuple[int, DeadLetter]]]:
        """How many were looked at to find `most` letters; the letters, and their places."""
        reply = await self._client.run(OperatorVerb.DEAD, passed, number, most, wanted.pack())
        page = named(reply)
        letters = [_facts(row) for row in page["letters"]]
        return page["looked_at"], [(each.pop("place"), DeadLetter(**each)) for each in letters]

    async def get(self, id_: str) -> DeadStory | None:
        """The dead letter of that id, or ``None``."""
        row = await self._client.run(OperatorVerb.LETTER, id_)
        if not row:
            return None
        facts = _facts(row)
        errors = orjson.loads(facts.pop("errors", "[]"))
        return DeadStory(**facts, errors=errors)

    async def envelope(self, id_: str) -> tuple[Envelope, Place | None]:
        """The envelope of a dead letter: its headers and its raw body.

        Returns:
            It, and ``None``; or what is left of it in Redis, and where the whole of it lies.

        Raises:
            KeyError: there is no such dead letter.
        """
        packed, row = await self._client.run(OperatorVerb.ENVELOPE, id_, "dead")
        if not packed:
            raise KeyError(id_)
        facts = named(row)
        place = place_of(facts["offset"], facts["archived_as"]) if "offset" in facts else None
        return Envelope.unpack_any(packed, facts.get("group")), place

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
            envelope: stored in its place, for a letter that was routed again, or whose body was
                not in Redis.
            priority: seconds, for a letter that was routed again.
            place: where `envelope` was read, if not in Redis.
            beside: what lay there with it.
            delayed_memory: bytes of tasks that may wait for delays.

        Returns:
            Whether it was still there.

        Raises:
            LetterArchived: its body isn't in Redis, and `envelope` isn't from where it lies.
            NoRoomForDelay: tasks that wait for delays are at their bound; nothing was written.
            StoreFull: there is no memory for its body; nothing was written.
        """
        order = "" if priority is None else microseconds(priority)
        packed, group, facts, back, pool = b"", letter.group, ("", "", ""), ("", ""), ""
        if envelope is not None:
            packed, group = envelope.pack(), envelope.group
            facts = (envelope.type, envelope.tenant or "", envelope.scope)
            pool = envelope.named_pool or ""
        if beside is not None:
            back = (beside.errors, beside.context)
        lay_at = place.message_id if place else ""
        routed = (letter.id, group or "", packed, order, *facts)
        arguments = (*routed, delayed_memory, lay_at, *back, pool)
        verdict = await self._client.run(OperatorVerb.REDRIVE, *arguments)
        if verdict == NO_ROOM:
            raise NoRoomForDelay(
                "it has to wait for the rest of its delay, and what does so holds as much as "
                "redis.delayed_memory lets it: wait, drop delayed tasks, or raise that"
            )
        if verdict < 0:
            raise LetterArchived(f"the body of {letter.id} lies in RabbitMQ")
        return bool(verdict)

    async def memory(self) -> Memory:
        """How much Redis has and uses; zeros if its user may not ask."""
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
        return bool(await self._client.run(OperatorVerb.DROP, letter.id, line))

    async def sweep(self, retention: float, most: int) -> list[str]:
        """Remove dead letters older than `retention` seconds, `most` of them at most.

        Returns:
            The ids that were removed.
        """
        line = history_line("expired", "", None)
        ids = await self._client.run(OperatorVerb.SWEEP, microseconds(retention), most, line)
        return [id_.decode() for id_ in ids]


def _facts(row: Sequence[Any]) -> dict[str, Any]:
    """A dead letter as `letters.lua` answers it, by the names of its fields."""
    facts = {"group": None, "tenant": None, **named(row, "died_at")}
    return {**facts, "died_at_the_door": facts["died_at_the_door"] == 1}
