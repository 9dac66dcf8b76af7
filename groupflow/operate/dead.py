"""Dead letters: list, look at, redrive, drop."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any
from uuid import uuid4

import orjson

from groupflow.core.errors import GroupflowError, GroupFull, LetterArchived, NoRoomForDelay
from groupflow.core.task import Place
from groupflow.operate.archiving import Beside
from groupflow.operate.corrections import Correction, read_corrections
from groupflow.operate.namespace import Away, Namespace, missing
from groupflow.operate.pages import Cursor, Slice, each_page, merge
from groupflow.operate.reasons import cause_of
from groupflow.operate.scripts import OperatorVerb, named
from groupflow.operate.tasks import ANY, Choice, choose
from groupflow.store.client import Argument, StoreClient
from groupflow.store.clock import microseconds
from groupflow.store.enqueue import UNBOUNDED
from groupflow.store.envelope import Envelope
from groupflow.store.settlements import history_line

NO_ROOM, GROUP_FULL = -2, -3  # what the script answers
PAGE = 200  # dead letters a script: bounds how long one may block Redis
LOOKS = 5  # scripts a page and partition: bounds how long a filter may search


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
    partition: int  # where it lies

    def cause(self, *, with_words: bool = True) -> tuple[str, str]:
        """What it died of, as `cause_of` has it; without the reason's words, by its kind alone."""
        return cause_of(self.type, self.kind, self.reason if with_words else "")

    def as_json(self) -> dict[str, Any]:
        """The public shape of an entry of ``groupflow dead list --json``."""
        names = ("id", "type", "group", "reason", "attempts", "died_at")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class DeadStory(DeadLetter):
    """A dead letter with the errors of its attempts."""

    bytes: int  # how much lies in Redis of its facts, headers and body together
    # one entry for each failed attempt that is remembered, oldest first; none if they lie in
    # RabbitMQ with the body
    errors: list[dict[str, Any]]
    corrections: list[Correction]  # bodies that it had before; none if they lie in RabbitMQ

    def with_beside(self, beside: Beside | None) -> DeadStory:
        """The same with what RabbitMQ held of it."""
        if beside is None:
            return self
        return replace(
            self,
            reason=beside.reason,
            errors=orjson.loads(beside.errors or "[]"),
            corrections=read_corrections(beside.corrections),
        )


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters to list; an attribute that is ``None`` lets all pass."""

    reason: str | None = None  # a part of the reason's text, in any case; of an archived one's stub
    kind: str | None = None  # a part of the kind, in any case
    type: str | None = None  # the task type, or its beginning: ``import.*``
    group: str | None = None
    tenant: str | None = None  # empty: of none
    since: float | None = None  # seconds since its death, at most
    cause: str | None = None  # the digits of its cause; `read_letters` tries this one
    with_words: bool = True  # whether causes are told apart by their words too

    @property
    def is_set(self) -> bool:
        """Whether it filters at all."""
        return self != Filter(with_words=self.with_words)

    @property
    def facts(self) -> dict[str, Any]:
        """The attributes that are set, as an operator named them."""
        facts = {name: fact for name, fact in asdict(self).items() if fact is not None}
        del facts["with_words"]
        return facts

    def passes(self, letter: DeadLetter) -> bool:
        """Whether a letter has the cause, if one is wanted."""
        return self.cause in (None, letter.cause(with_words=self.with_words)[1])

    def pack(self) -> bytes:
        """What `dead.lua` takes: the attributes that are set, apart from the cause."""
        facts = self.facts
        facts.pop("cause", None)
        if self.since is not None:
            facts["since"] = microseconds(self.since)
        return orjson.dumps(facts)


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
    """The dead letters of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def each(self, wanted: Filter | None = None) -> AsyncIterator[DeadLetter]:
        """The matching dead letters, the latest death first; later deaths may be missed.

        Raises:
            StoreUnavailable: no partition answers. One that stops answering is left out.
        """
        async for page in each_page(partial(self.page, wanted or Filter(), limit=PAGE)):
            for letter in page.letters:
                yield letter

    async def page(self, wanted: Filter, passed: int | str = 0, *, limit: int = 50) -> DeadPage:
        """Some of the matching dead letters, the latest death first, by a bounded look.

        Args:
            wanted: which.
            passed: what to pass over: 0, or `next` of the page before.
            limit: how many at most.

        Raises:
            StoreUnavailable: no partition answers.
            UnknownCursor: `passed` is neither 0 nor the `next` of a page.
        """
        at = Cursor.parse(str(passed), len(self._namespace))
        look = partial(_look, wanted=wanted, limit=limit)
        looks = {n: partial(look, passed=at.places[n] or 0) for n in at.open}
        answers = await self._namespace.ask_each(looks)
        page = merge(answers.by_partition, at, limit)
        following: int | str | None = page.cursor.told({each.partition for each in answers.away})
        if following is not None and len(self._namespace) == 1:
            following = int(following)
        return DeadPage(page.looked, following, page.rows, answers.away)

    async def find(self, id_: str, choice: Choice = ANY) -> DeadStory | None:
        """The dead letter of that id, or ``None``.

        Raises:
            AmbiguousId: several tasks have the id, dead or not: the caller may mean either.
            StoreUnavailable: no partition that answers has it, and some partition is away.
        """
        found = await choose(self._namespace, id_, choice)
        if found is None or found[1].state != "dead":
            missing(self._namespace.away if choice.partition is None else [])
            return None
        place = found[0]
        row = await self._run(place, OperatorVerb.LETTER, id_)
        if not row:
            return None
        facts = _facts(row, place)
        corrections = read_corrections(facts.get("corrections", ""))
        texts = {"errors": orjson.loads(facts.get("errors", "[]")), "corrections": corrections}
        return DeadStory(**facts | texts)

    async def act_on(
        self, meant: str | DeadLetter, choice: Choice, act: Callable[[DeadLetter], Awaitable[bool]]
    ) -> bool:
        """Act on a dead letter, or on that of an id; `act` says whether it was still there.

        Raises:
            AmbiguousId, StoreUnavailable: as of `find`.
        """
        letter = await self.find(meant, choice) if isinstance(meant, str) else meant
        return letter is not None and await act(letter)

    async def envelope(self, id_: str, partition: int = 0) -> tuple[Envelope, Place | None]:
        """The envelope of a dead letter: its headers and its raw body.

        Returns:
            It, and ``None``; or what is left of it in Redis, and where the whole of it lies.

        Raises:
            KeyError: there is no such dead letter.
        """
        packed, row = await self._run(partition, OperatorVerb.ENVELOPE, id_, "dead")
        if not packed:
            raise KeyError(id_)
        facts = named(row)
        place = Place(int(facts["offset"]), facts["archived_as"]) if "offset" in facts else None
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
        max_queued: Mapping[str, int] | None = None,
        is_moved: bool = False,
        note: bytes = b"",
    ) -> bool:
        """Make a dead letter a task again, at its original place in its group.

        Args:
            letter: which.
            envelope: stored in its place, for a letter that was routed again, or whose body was
                not in Redis. Only this death is redriven then: another may be of another body.
            priority: seconds, for a letter that was routed again.
            place: where `envelope` was read, if not in Redis.
            beside: what lay there with it.
            delayed_memory: bytes of tasks that may wait for delays.
            max_queued: by rule, how many tasks may wait in one of its groups.
            is_moved: it came from another partition, which keeps its id known.
            note: of its old body, where `envelope` has another: `redrive.note_of`.

        Returns:
            Whether it was still there.

        Raises:
            LetterArchived: its body isn't in Redis, and `envelope` isn't from where it lies.
            GroupFull: as many tasks wait in its group as may; nothing was written.
            NoRoomForDelay: tasks that wait for delays are at their bound; nothing was written.
            StoreFull: there is no memory for its body; nothing was written.
        """
        order = "" if priority is None else microseconds(priority)
        group, packed, rule, pool, facts = letter.group, b"", "", "", ("", "", "")
        origin = None
        if envelope is not None:
            group, packed = envelope.group, envelope.pack()
            rule, pool = envelope.rule or "", envelope.named_pool or ""
            origin = envelope.origin
            facts = (envelope.type, envelope.tenant or "", envelope.scope)
        beside = beside or Beside("", "", "")
        arguments = (
            *(letter.id, group or "", packed, order, *facts),
            *(delayed_memory, place.message_id if place else "", beside.errors, beside.context),
            *(pool, "" if priority is None or is_moved else uuid4().hex),
            *(beside.corrections, note, microseconds(letter.died_at)),
            *(orjson.dumps(max_queued) if max_queued else b"", rule),
            orjson.dumps(origin) if origin else b"",
        )
        verdict = await self._run(letter.partition, OperatorVerb.REDRIVE, *arguments)
        if verdict == GROUP_FULL:
            raise GroupFull(
                f"its group {group} is full: wait until fewer tasks wait in it, or raise "
                "max_queued of its rule"
            )
        if verdict == NO_ROOM:
            raise NoRoomForDelay(
                "it has to wait for the rest of its delay, and what does so holds as much as "
                "redis.delayed_memory lets it: wait, drop delayed tasks, or raise that"
            )
        if verdict < 0:
            raise LetterArchived(f"the body of {letter.id} lies in RabbitMQ")
        return bool(verdict)

    async def memory(self, partition: int = 0) -> Memory:
        """How much the Redis of a partition has and uses; zeros if its user may not ask."""
        try:
            found = await self._namespace.clients[partition].info("memory")
        except GroupflowError:
            return Memory(0, 0)
        return Memory(int(found["used_memory"]), int(found.get("maxmemory", 0)))

    async def drop(self, letter: DeadLetter) -> bool:
        """Remove a dead letter for good.

        Returns:
            Whether it was still there.
        """
        line = history_line("dropped", letter.type, letter.group, letter.attempts)
        return bool(await self._run(letter.partition, OperatorVerb.DROP, letter.id, line))

    async def _run(self, place: int, verb: OperatorVerb, *arguments: Argument) -> Any:
        return await self._namespace.ask(place, lambda client: client.run(verb, *arguments))


async def sweep_letters(client: StoreClient, retention: float, most: int) -> list[str]:
    """Remove dead letters of a partition older than `retention` seconds, `most` of them at most.

    Returns:
        The ids that were removed.
    """
    line = history_line("swept", "", None)
    ids = await client.run(OperatorVerb.SWEEP, microseconds(retention), most, line)
    return [id_.decode() for id_ in ids]


def beginning_of(body: bytes, most: int) -> dict[str, str | None]:
    """So many bytes of a body, as text; in base64 where the body isn't UTF-8."""
    try:
        body.decode()
        return {"body": body[:most].decode(errors="ignore"), "body_base64": None}
    except UnicodeDecodeError:
        return {"body": None, "body_base64": base64.b64encode(body[:most]).decode()}


def _facts(row: Sequence[Any], place: int) -> dict[str, Any]:
    """A dead letter as `letters.lua` answers it, by the names of its fields."""
    facts = {"group": None, "tenant": None, "partition": place, **named(row, "died_at")}
    return {**facts, "died_at_the_door": facts["died_at_the_door"] == 1}


async def _look(client: StoreClient, wanted: Filter, passed: int, limit: int) -> Slice[DeadLetter]:
    found: Slice[DeadLetter] = Slice()
    for _ in range(LOOKS):
        rows = limit - len(found.rows)
        read = await read_letters(client, wanted, most=rows, passed=passed + found.looked)
        for number, letter in read.letters:
            found.add(letter, -letter.died_at, found.looked + number)
        found.looked += read.looked
        if not read.left:
            return found
        if len(found.rows) >= limit:
            break
    found.next = passed + found.looked
    return found


@dataclass(frozen=True, slots=True)
class Read:
    """Some letters of one partition, by one script."""

    looked: int  # how many were looked at
    letters: list[tuple[int, DeadLetter]]  # how many were looked at up to each, and it
    left: int  # how many are older than those that were looked at


async def read_letters(
    client: StoreClient,
    wanted: Filter,
    *,
    most: int,
    passed: int = 0,
    left: int | None = None,
) -> Read:
    """Look for `most` letters behind those passed over, or among the oldest `left` ones."""
    begin = "" if left is None else left
    rows = most if wanted.cause is None else PAGE
    found = named(await client.run(OperatorVerb.DEAD, passed, PAGE, rows, wanted.pack(), begin))
    facts = [_facts(row, client.keys.partition or 0) for row in found["letters"]]
    every = [(each.pop("place"), DeadLetter(**each)) for each in facts]
    letters = [(place, letter) for place, letter in every if wanted.passes(letter)]
    looked, older = found["looked_at"], found["left"]
    if len(letters) > most:  # the next look goes on behind the last of these
        letters = letters[:most]
        looked, older = letters[-1][0], older + looked - letters[-1][0]
    return Read(looked, letters, older)
