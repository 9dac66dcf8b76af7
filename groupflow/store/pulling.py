"""pull: what one partition gives a puller, and what it takes back from it.

To the store a puller is a daemon by the name of ``pool/<pool>/<worker>``: it has a session, a
lease, slots with checkpoints, and fences. All of that is in Redis; so each call may be answered by
another process. No recovery waits for a puller after a fail-over (docs/adr/0071).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from secrets import token_hex
from time import monotonic
from typing import Literal, TypeAlias

from groupflow.core.errors import PoolFull, SessionLost, StoreUnavailable
from groupflow.core.progress import Progress
from groupflow.store.carrying import Carrying
from groupflow.store.claims import Claims, ExchangeReply
from groupflow.store.client import Argument, Call, StoreClient
from groupflow.store.clock import microseconds, seconds
from groupflow.store.enqueue import CARRIED, TRIES
from groupflow.store.epochs import Epoch
from groupflow.store.given import Claim, claims_from
from groupflow.store.keys import split_checkpoint, split_entry
from groupflow.store.progress import Said, progress_of, write_progress
from groupflow.store.scripts import Verb
from groupflow.store.sessions import REAPED_AT_ONCE, Session
from groupflow.store.settlements import Release, Settlement

MOST_HELD = 500  # tasks of one worker; what one script gives at most
Where: TypeAlias = Literal["ordered", "quarantined_plain", "delayed", "types"]
# Where plain tasks wait; what goes from one to another while they are walked is seen in the last.
PLACES: tuple[Where, ...] = ("ordered", "quarantined_plain", "delayed", "types")
Mark: TypeAlias = tuple[int, str]  # fence and id: two partitions may give the same fence
Word: TypeAlias = Literal["added", "kept", "assigned", "over", "dead", "foreign"]
PROMOTED_AT_ONCE = 200  # tasks, and groups
LOOKED_AT = 1000  # tasks that a step of pruning looks at, about
_FOR_GOOD = 2**52  # µs for which a dead letter keeps its id from a list: as long as it is there

_NUMBER = 17  # where the process begins in what a session shows
_LIVE, _SETTLED = ord("L"), ord("S")


@dataclass(frozen=True, slots=True)
class Puller:
    """A worker that pulls."""

    pool: str
    name: str
    lease: float  # seconds
    most: int = 0  # workers that its pool may have, 0 for any number

    @property
    def daemon(self) -> str:
        """The name under which the store knows it."""
        return daemon_name(self.pool, self.name)


def daemon_name(pool: str, worker: str) -> str:
    return f"pool/{pool}/{worker}"


def puller_of(daemon: str) -> tuple[str, str] | None:
    """The pool and the worker that a name in the store is of; ``None`` for a daemon's."""
    kind, _, rest = daemon.partition("/")
    pool, _, worker = rest.partition("/")
    return (pool, worker) if kind == "pool" and worker else None


@dataclass(frozen=True, slots=True)
class HeldSlot:
    """A slot of a worker's that holds a claim."""

    slot: str
    fence: int  # rises in a partition; two partitions may give the same
    since: float  # Unix seconds by Redis's clock
    entry: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """Something that the worker could claim; the smallest order goes first."""

    order: bytes
    is_group: bool  # else it is a plain task


@dataclass(frozen=True, slots=True)
class Poll:
    """What a worker's call found."""

    session: Session | None  # None where it has none, and was not to get one
    now: float  # Unix seconds by Redis's clock
    lease_until: float  # the same clock
    held: dict[int, HeldSlot]  # by fence
    settled: frozenset[int]  # fences that its slots settled last
    heads: list[Head]  # the best first
    cancelled: list[tuple[str, int]]  # ids and fences of what it holds and is to be cancelled

    def idle(self, number: int) -> list[str]:
        """So many of its slots that hold nothing."""
        busy = {each.slot for each in self.held.values()}
        return list(islice((slot for slot in map(str, count()) if slot not in busy), number))


@dataclass(frozen=True, slots=True)
class Listed:
    """A task of the list that a pool's plain tasks are to be."""

    id: str
    priority: float  # seconds
    packed: bytes  # envelope and body
    facts: bytes  # as `Envelope.pack_facts` has them
    scope: str

    def arguments(self, envelope: bytes | str) -> tuple[Argument, ...]:
        """What `put.lua` takes for it, given its envelope or where that lies."""
        return self.id, microseconds(self.priority), envelope, self.facts, self.scope


class Pulling:
    """One partition, as pullers see it."""

    def __init__(self, client: StoreClient, lease: float, carrying: Carrying | None = None) -> None:
        """Binds it; `lease` (s) is a daemon's. Without `carrying`, tasks carry what they like."""
        self._client = client
        self._carrying = carrying
        self._lease = microseconds(lease)
        self._reaps_from = 0.0  # monotonic

    async def poll(
        self, puller: Puller, limit: int = 0, *, opens: bool = True, counts: bool = True
    ) -> Poll:
        """Note that a worker called.

        Args:
            puller: which.
            limit: how many tasks it may hold in all; 0 where it asks for none.
            opens: whether it gets a session where it has none.
            counts: whether this partition is the one that counts the workers of pools.

        Raises:
            PoolFull: it has no session, and its pool has as many workers as it may.
            StoreUnavailable: no answer; call again.
            OtherLayout: the namespace has another number of partitions than is configured.
        """
        arguments: list[Argument] = [
            puller.daemon,
            microseconds(puller.lease),
            self._lease,
            limit,
            "open" if opens else "",
            puller.most if counts else 0,
        ]
        state = b"GOING"
        while state == b"GOING":
            state, shown, now, ends, epoch, flat, heads, cancels = await self._client.run(
                Verb.POLL, *arguments
            )
        if state == b"FULL":
            raise PoolFull(
                f"Pool {puller.pool!r} has {puller.most} workers, as many as [pools.{puller.pool}] "
                f"max_workers lets it have, so {puller.name!r} can't be one more. Let workers keep "
                "their names, DELETE those that end, or raise max_workers; who is silent for "
                f"{puller.lease:g} s makes room."
            )
        session = None
        if state == b"HAS":
            session = Session(puller.daemon)
            session.number, session.process = shown[: _NUMBER - 1].decode(), shown[16:].decode()
            session.epoch = Epoch(epoch.decode(), monotonic())
        held, settled = _slots(flat)
        return Poll(
            session,
            seconds(now),
            seconds(ends),
            held,
            settled,
            [Head(order, kind == b"g") for kind, order in zip(*[iter(heads)] * 2, strict=True)],
            [*_named(held.values(), {id_.decode() for id_ in cancels})],
        )

    async def claim(self, poll: Poll, *, groups: int, plain: int) -> list[Claim]:
        """Claim heads of so many groups and so many plain tasks, at most, for idle slots.

        Raises:
            SessionLost: it was silent for its lease, meanwhile.
            StoreUnavailable: no answer; the next poll finds what ran.
        """
        session, found = _session_of(poll), list[Claim]()
        slots = poll.idle(groups + plain)
        for pool, some in (("grouped", slots[:groups]), ("plain", slots[groups:])):
            if some:
                answer = await Claims(self._client, session, pool).exchange([], some)  # type: ignore[arg-type]
                found += answer.claims
        return found

    async def settle(self, poll: Poll, settlements: Sequence[Settlement]) -> list[Settlement]:
        """Settle claims; those whose fence is stale are returned. See `exchange`."""
        return (await self.exchange(poll, settlements)).refused

    async def exchange(
        self, poll: Poll, settlements: Sequence[Settlement], types: Container[str] = ()
    ) -> ExchangeReply:
        """Settle claims; the answer says which of them are stale, and which there was no room for.

        Tasks of these types are counted by name.

        Raises:
            SessionLost: none of them is its own any more.
            StoreUnavailable: no answer; call again.
        """
        session = _session_of(poll)
        claims = Claims(self._client, session, "plain", carrying=self._carrying, types=types)
        return await claims.exchange(settlements, [])

    async def hand_back(self, poll: Poll, number: int) -> None:
        """Let so many of the newest claims go, each task to its place.

        Raises:
            SessionLost: none is its own any more.
            StoreUnavailable: no answer; call again.
        """
        if number == 0:  # without slots all of its claims would be read
            return
        newest = sorted(poll.held, reverse=True)[:number]
        slots = [poll.held[fence].slot for fence in newest]
        found = await self.holdings(_session_of(poll).daemon, slots)
        claims = [claim for claim, _ in found.claims if claim.fence in newest]
        await self.settle(poll, [Release(claim) for claim in claims])

    async def leave(self, poll: Poll) -> None:
        """Let all of it go, and end the session."""
        if poll.session is None:
            return
        await self.hand_back(poll, len(poll.held))
        await self._client.run(Verb.LEAVE, poll.session.daemon, poll.session.shown, self._lease)

    async def note(self, poll: Poll, said: Mapping[Mark, bytes]) -> None:
        """Note how far a worker's tasks have got (`pack_progress`), of those that it holds here.

        Raises:
            StoreUnavailable: no answer; call again.
        """
        held = {(fence, split_entry(each.entry)[1]): each for fence, each in poll.held.items()}
        known = [(Said(held[mark].slot, mark[0], said[mark]), 0.0) for mark in said.keys() & held]
        with suppress(SessionLost):
            await write_progress(self._client, _session_of(poll), known)

    async def holdings(self, daemon: str, slots: Sequence[str] = ()) -> Holdings:
        """What a worker holds, in some slots or in all; its lease isn't pushed back."""
        now, ends, rows, *told = await self._client.run(Verb.HOLDINGS, daemon, *slots)
        claims = claims_from(rows, now, self._client.read_apart)
        since = [seconds(row) for row in rows[6::7]]
        found = [progress_of(each.decode() or None, seconds(now)) for each in told]
        progress = {
            (claim.fence, claim.task.id): each
            for claim, each in zip(claims, found, strict=False)
            if each is not None
        }
        held = list(zip(claims, since, strict=True))
        return Holdings(seconds(now), seconds(ends), held, progress)

    async def tend(self) -> bool:
        """Let what is due be claimed, and reap silent sessions: also where no daemon runs.

        For a lease after it got no answer it reaps none: living daemons are about to renew.

        Returns:
            Whether there is more to take.

        Raises:
            StoreUnavailable: no answer.
        """
        calls: list[Call] = [(Verb.PROMOTE, [PROMOTED_AT_ONCE])]
        if monotonic() >= self._reaps_from:
            calls.append((Verb.REAP, [REAPED_AT_ONCE, self._lease]))
        try:
            _, *reaped = await self._client.run_all(calls)
        except StoreUnavailable:
            self._reaps_from = monotonic() + seconds(self._lease)
            raise
        return any(wait == 0 for wait, _ in reaped)

    async def begin_list(self, pool: str) -> str:
        """The number of a list that begins now, higher than those of all before."""
        number, *_ = await self._client.run(Verb.PUT, pool, _FOR_GOOD, "", "")
        return str(number.decode())

    async def put(self, pool: str, number: str, tasks: Sequence[Listed]) -> list[Word]:
        """Make some of a list wait in a pool; returns what became of each. May be run again.

        Raises:
            StoreUnavailable: no answer; it may have been written.
            StoreFull: Redis has no memory for it.
        """
        words: list[Word] = []
        small: list[Listed] = []
        for task in tasks:
            if len(task.packed) <= CARRIED:
                small.append(task)
                continue
            words += await self._put_small(pool, number, small)
            words.append(await self._put_large(pool, number, task))
            small = []
        return words + await self._put_small(pool, number, small)

    async def _put_small(self, pool: str, number: str, tasks: Sequence[Listed]) -> list[Word]:
        """Put tasks whose envelopes one script is given."""
        if not tasks:
            return []
        arguments = _put_front(pool, number)
        for task in tasks:
            arguments += task.arguments(task.packed)
        _, *words = await self._client.run(Verb.PUT, *arguments)
        return [word.decode() for word in words]

    async def _put_large(self, pool: str, number: str, task: Listed) -> Word:
        """Put one whose envelope is laid in front of the script, under the id that it will have."""
        at = task.id
        for _ in range(TRIES):
            laid = f"@{len(task.packed)} {at}"
            arguments = [*_put_front(pool, number), *task.arguments(laid)]
            (_, word), *_ = await self._client.run_replicated(
                Verb.PUT, arguments, None, "tasks", at, task.packed
            )
            if not isinstance(word, list):
                found: Word = word.decode()
                return found
            at = word[0].decode()  # its id is taken: it comes under another
        raise StoreUnavailable(f"{task.id!r}: others took each id that was free")

    async def prune(self, pool: str, number: str, where: Where, cursor: str) -> tuple[str, int]:
        """A step of removing what waits in a pool and isn't in the list.

        Returns:
            Where to go on, ``"0"`` at the end; and how many were removed.
        """
        following, removed = await self._client.run(
            Verb.PRUNE, pool, number, where, cursor, LOOKED_AT
        )
        return following.decode(), removed


def _put_front(pool: str, number: str) -> list[Argument]:
    """What stands in front of the tasks of a list."""
    return [pool, _FOR_GOOD, token_hex(16), number]


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a worker holds in a partition."""

    now: float  # Unix seconds by Redis's clock
    lease_until: float  # the same clock; 0 where it has no session
    claims: list[tuple[Claim, float]]  # and since when it holds each, Unix seconds
    progress: Mapping[Mark, Progress]  # how far they have got, if all slots were asked about


def _session_of(poll: Poll) -> Session:
    if poll.session is None:
        raise SessionLost("it has no session")
    return poll.session


def _named(held: Iterable[HeldSlot], ids: Set[str]) -> Iterator[tuple[str, int]]:
    """The ids and fences of the claims of these tasks."""
    for each in held:
        _, id_ = split_entry(each.entry)
        if id_ in ids:
            yield id_, each.fence


def _slots(flat: Sequence[bytes]) -> tuple[dict[int, HeldSlot], frozenset[int]]:
    """The claims in a worker's checkpoints, and the fences that each slot settled last."""
    held, settled = dict[int, HeldSlot](), set[int]()
    for slot, checkpoint in zip(flat[::2], flat[1::2], strict=True):
        if checkpoint[0] == _LIVE:
            fence, since, entry, _ = split_checkpoint(checkpoint)
            held[fence] = HeldSlot(slot.decode(), fence, seconds(since), entry)
            settled.add(int(checkpoint[_NUMBER : _NUMBER + 16]))
        elif checkpoint[0] == _SETTLED:
            settled.add(int(checkpoint[1:_NUMBER]))
    return held, frozenset(settled - {0})
