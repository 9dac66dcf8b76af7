"""Gives a worker that pulls its claims, and settles what it reports; in all partitions at once.

No call needs state kept here: any process may answer any call. The process remembers a claim's
facts for a while, since a task is nearly always settled where it was given; else it reads them
again.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import structlog

from groupflow.core.errors import SessionLost, StoreUnavailable
from groupflow.core.outcome import Dead, Outcome, Retry
from groupflow.core.policy import Policies
from groupflow.core.progress import Progress
from groupflow.flow.counting import report_crowded_out, report_drained, report_ended
from groupflow.flow.settling import Ran, settlement_of
from groupflow.settings.model import Settings
from groupflow.store.carrying import Carrying
from groupflow.store.client import StoreClient
from groupflow.store.given import Claim
from groupflow.store.pulling import Head, Mark, Poll, Puller, Pulling
from groupflow.store.settlements import FREED, Bury, Settlement
from groupflow.store.settlements import Retry as TryAgain

log = structlog.get_logger("groupflow.pools")

SettleVerdict: TypeAlias = Literal["accepted", "stale"]
_Placed: TypeAlias = tuple[int, Settlement]  # and its place in the worker's report

# Calls that one claim may take: a quarantined task comes alone, and other workers may be faster.
_ROUNDS = 4
_REMEMBERED = 50_000  # claims, without their bodies
_PAGE = 8 * 1024 * 1024  # bytes of bodies in an answer, unless the first alone is larger
_AT_ONCE = 64  # calls of a pool in the store; others wait before the time for an answer begins


@dataclass(frozen=True, slots=True)
class CancelledTask:
    """A task that is to be cancelled."""

    id: str
    fence: int  # of the claim that the worker has


@dataclass(frozen=True, slots=True)
class Lease:
    """What a worker holds, as its renewal tells."""

    until: float  # Unix seconds by Redis's clock
    fences: list[int]
    cancelled: list[CancelledTask]  # those of them that are to be cancelled


@dataclass(frozen=True, slots=True)
class Given:
    """What a worker holds now."""

    claims: list[Claim]  # the newest last; only the oldest, where all would be too many bytes
    more: bool  # whether it holds others too
    lease_until: float  # Unix seconds by Redis's clock
    is_new: bool  # whether any is new
    cancelled: list[CancelledTask]  # those of all that it holds that are to be cancelled


@dataclass(frozen=True, slots=True)
class TaskReport:
    """A worker's report on a task."""

    id: str
    fence: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class HeldClaims:
    """What a worker holds, for any caller."""

    claims: list[tuple[Claim, float]]  # and since when, Unix seconds
    more: bool  # as of `Given`
    lease_until: float | None  # None where it has no session
    progress: Mapping[Mark, Progress]  # how far they have got, where it said so


class Pullers:
    """Gives and takes, on connections of its own."""

    def __init__(self, clients: Sequence[StoreClient], settings: Callable[[], Settings]) -> None:
        """Takes the clients in the order of the partitions, and the settings with the policies."""
        self._settings = settings
        lease, redis = settings().workers.lease, settings().redis
        self._stores = [Pulling(client, lease, Carrying(client, redis)) for client in clients]
        self._claims: OrderedDict[int, Claim] = OrderedDict()  # by fence; the oldest first
        self._by: tuple[Settings, Policies] | None = None
        # By pool: a pool's calls wait behind none of another's.
        self._few = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(_AT_ONCE))

    async def claim(self, puller: Puller, limit: int) -> Given:
        """Top a worker up to a limit; where it holds more, the newest go back.

        Raises:
            PoolFull: it is not one of the pool's workers, and the pool has as many as it may.
            StoreUnavailable: no answer; what it was given comes with its next call.
        """
        async with self._few[puller.pool]:
            return await self._claim(puller, limit)

    async def _claim(self, puller: Puller, limit: int) -> Given:
        found: list[Claim] = []
        polls = await self._poll(puller, limit)
        held = sum(len(poll.held) for poll in polls)
        if held > limit:
            polls = await self._hand_back(puller, polls, held - limit)
        # A poisonous one is among these where the answer to its burial was lost.
        kept = await self._without_poison(puller, await self._read(puller, polls))
        for _ in range(_ROUNDS):
            room = limit - len(kept) - len(found)
            given = await self._give(polls, room)
            report_drained(given)
            found += await self._without_poison(puller, given)
            if not given or len(kept) + len(found) >= limit:
                break
            polls = await self._poll(puller, limit)
        for claim in found:
            self._remember(claim)
        claims = [*kept, *sorted(found, key=lambda each: each.fence)]
        if found and sum(map(_size, claims)) > _PAGE:
            # In the order in which any process answers from now on.
            claims = await self._read(puller, await self._poll(puller))
        page = await self._page(claims)
        lease_until = min(poll.lease_until for poll in polls)
        return Given(page, len(page) < len(claims), lease_until, bool(found), _cancelled(polls))

    async def _page(self, claims: Sequence[Claim]) -> list[Claim]:
        """As many claims, with whole bodies, as fit into an answer; at least one."""
        page, size = list[Claim](), 0
        for claim in claims:
            size += _size(claim)
            if page and size > _PAGE:
                break
            if not claim.apart or await claim.fetch():
                page.append(claim)
        return page

    async def settle(self, puller: Puller, told: Sequence[TaskReport]) -> list[SettleVerdict]:
        """Settle what a worker reports, and push its lease back; a verdict each, in that order.

        Raises:
            StoreUnavailable: no answer from a partition that may have some of it; the same report
                again gets the same answer.
        """
        async with self._few[puller.pool]:
            return await self._settle(puller, told)

    async def _settle(self, puller: Puller, told: Sequence[TaskReport]) -> list[SettleVerdict]:
        parts = (self._settle_in(store, puller, told) for store in self._stores)
        verdicts: list[SettleVerdict] = ["stale"] * len(told)
        away: StoreUnavailable | None = None
        for found in await asyncio.gather(*parts, return_exceptions=True):
            if isinstance(found, StoreUnavailable):
                away = found
            elif isinstance(found, BaseException):
                raise found
            else:
                for place in found:
                    verdicts[place] = "accepted"
        if away is not None and "stale" in verdicts:  # it may be there
            raise away
        return verdicts

    async def _settle_in(
        self, store: Pulling, puller: Puller, told: Sequence[TaskReport]
    ) -> list[int]:
        """Settle what a partition has of it; returns the places of what it accepts."""
        poll = await store.poll(puller, opens=False)
        policies, tells = self._policies(), "done" in self._settings().events.told
        types = self._settings().pools[puller.pool].types
        live = [each.fence for each in told if each.fence in poll.held]
        known = await self._known(store, puller, poll, live)
        settlements, accepted = list[_Placed](), list[int]()
        for place, each in enumerate(told):
            claim = known.get(each.fence)
            if claim is not None and claim.task.id == each.id:
                since = poll.held[each.fence].since
                ran = Ran(since, max(0.0, poll.now - since), puller.daemon, tells)
                policy = policies.of(claim.rule, None)
                settlement = settlement_of(claim, each.outcome, policy, ran)
                if isinstance(each.outcome, Retry) and (each.id, each.fence) in poll.cancelled:
                    settlement = _without_death(settlement)
                settlements.append((place, settlement))
            elif each.fence in poll.settled:
                accepted.append(place)
        for portion in _portions(settlements):
            accepted += await self._write(store, poll, portion, types)
        return accepted

    async def renew(self, puller: Puller, said: Mapping[Mark, bytes]) -> Lease:
        """Push a worker's lease back, and note what it says of its tasks' progress.

        Raises:
            PoolFull: as of `claim`.
            StoreUnavailable: no answer; call again.
        """
        async with self._few[puller.pool]:
            polls = await self._poll(puller)
            pairs = zip(self._stores, polls, strict=True)
            await asyncio.gather(*(store.note(poll, said) for store, poll in pairs if said))
        fences = sorted(fence for poll in polls for fence in poll.held)
        return Lease(min(poll.lease_until for poll in polls), fences, _cancelled(polls))

    async def look(self, daemon: str) -> HeldClaims:
        """What a worker holds, by its name in the store; its lease is left alone."""
        found = await asyncio.gather(*(store.holdings(daemon) for store in self._stores))
        claims = [each for holdings in found for each in holdings.claims]
        leases = [each.lease_until for each in found if each.lease_until]
        claims.sort(key=_age)
        async with self._few[""]:
            page = {id(claim) for claim in await self._page([claim for claim, _ in claims])}
        shown = [each for each in claims if id(each[0]) in page]
        progress = {mark: each for holdings in found for mark, each in holdings.progress.items()}
        return HeldClaims(shown, len(shown) < len(claims), min(leases, default=None), progress)

    async def leave(self, puller: Puller) -> int:
        """Let all that a worker holds go back; how many."""
        polls = await self._poll(puller, opens=False)
        pairs = zip(self._stores, polls, strict=True)
        await asyncio.gather(*(store.leave(poll) for store, poll in pairs))
        return sum(len(poll.held) for poll in polls)

    async def _poll(self, puller: Puller, limit: int = 0, *, opens: bool = True) -> list[Poll]:
        """Poll all partitions. The first counts the workers: the others let in those it let in."""
        first, *others = self._stores
        asking = [store.poll(puller, limit, opens=False) for store in others]
        polls = await asyncio.gather(first.poll(puller, limit, opens=opens), *asking)
        if opens and not all(poll.session for poll in polls):
            asking = [store.poll(puller, limit, counts=False) for store in others]
            polls = [polls[0], *await asyncio.gather(*asking)]
        return polls

    async def _hand_back(self, puller: Puller, polls: list[Poll], number: int) -> list[Poll]:
        """Hand back the newest, over all partitions."""
        every = [
            (held.since, held.fence, place)
            for place, poll in enumerate(polls)
            for held in poll.held.values()
        ]
        newest = Counter(place for _, _, place in sorted(every, reverse=True)[:number])
        for place, (store, poll) in enumerate(zip(self._stores, polls, strict=True)):
            await store.hand_back(poll, newest[place])
        return await self._poll(puller)

    async def _give(self, polls: list[Poll], room: int) -> list[Claim]:
        """Claim the best tasks over all partitions."""
        heads = [(head, place) for place, poll in enumerate(polls) for head in poll.heads]
        heads.sort(key=lambda each: each[0].order)
        best = heads[: max(0, room)]
        asked = [_count(head for head, at in best if at == place) for place in range(len(polls))]
        given = await asyncio.gather(
            *(
                store.claim(poll, groups=groups, plain=plain)
                for store, poll, (groups, plain) in zip(self._stores, polls, asked, strict=True)
                if groups or plain
            )
        )
        return [claim for some in given for claim in some]

    async def _without_poison(self, puller: Puller, claims: list[Claim]) -> list[Claim]:
        """Bury tasks that have ended too many claims in a crash, in place of giving them out."""
        most = self._settings().workers.max_crashes
        poison = [claim for claim in claims if claim.task.crashes >= most]
        for claim in poison:
            self._remember(claim)
            reason = f"{claim.task.crashes} workers fell silent, or died, while they had it"
            await self._settle(puller, [TaskReport(claim.task.id, claim.fence, Dead(reason))])
        return [claim for claim in claims if claim not in poison] if poison else claims

    async def _read(self, puller: Puller, polls: list[Poll]) -> list[Claim]:
        """The claims that a worker already holds, with their bodies."""
        asking = [
            store.holdings(puller.daemon, [each.slot for each in poll.held.values()])
            for store, poll in zip(self._stores, polls, strict=True)
            if poll.held
        ]
        found = await asyncio.gather(*asking) if asking else []
        every = [each for holdings in found for each in holdings.claims]
        return [claim for claim, _ in sorted(every, key=_age)]

    async def _known(
        self, store: Pulling, puller: Puller, poll: Poll, fences: Iterable[int]
    ) -> dict[int, Claim]:
        """The claims by their fences; read from the store where another process gave them."""
        wanted = set(fences)
        found = {fence: self._claims[fence] for fence in wanted if self._is_same(fence, poll)}
        missing = wanted - found.keys()
        if missing:
            slots = [poll.held[fence].slot for fence in missing]
            holdings = await store.holdings(puller.daemon, slots)
            found |= {claim.fence: claim for claim, _ in holdings.claims}
        return found

    def _is_same(self, fence: int, poll: Poll) -> bool:
        """Whether the remembered claim of a fence is this one, and not another partition's."""
        claim, held = self._claims.get(fence), poll.held[fence]
        return claim is not None and (claim.slot, claim.entry) == (held.slot, held.entry)

    async def _write(
        self, store: Pulling, poll: Poll, settlements: list[_Placed], types: Container[str]
    ) -> list[int]:
        """Settle in one script; returns the places of accepted settlements."""
        try:
            answer = await store.exchange(poll, [each for _, each in settlements], types)
        except SessionLost:
            return []
        accepted = [(place, each) for place, each in settlements if each not in answer.refused]
        for advance in answer.crowded_out:
            report_crowded_out(advance)
        for _, each in accepted:
            self._claims.pop(each.claim.fence, None)
            if each in answer.cancelled:
                report_ended(each.claim, "cancelled")
            elif each in answer.replaced:
                report_ended(each.claim, "superseded")
            else:
                _report(answer.written(each), poll)
        return [place for place, _ in accepted]

    def _remember(self, claim: Claim) -> None:
        task = replace(claim.task, body=b"", headers={})
        self._claims[claim.fence] = replace(claim, task=task, apart=_size(claim))
        while len(self._claims) > _REMEMBERED:
            self._claims.popitem(last=False)

    def _policies(self) -> Policies:
        settings = self._settings()
        if self._by is None or self._by[0] is not settings:
            self._by = settings, settings.policies()
        return self._by[1]


def _portions(settlements: Sequence[_Placed]) -> Iterator[list[_Placed]]:
    """Settlements in portions of which one script may free the bodies."""
    portion, freed = list[_Placed](), 0
    for each in settlements:
        portion.append(each)
        freed += _size(each[1].claim)
        if freed >= FREED:
            yield portion
            portion, freed = [], 0
    if portion:
        yield portion


def _without_death(settlement: Settlement) -> Settlement:
    """A retry though no attempt is left, which cancels a task that is to be cancelled."""
    if not isinstance(settlement, Bury):
        return settlement
    return TryAgain(settlement.claim, 0.0, settlement.errors)


def _size(claim: Claim) -> int:
    """Bytes that it takes in an answer, about."""
    return claim.apart or len(claim.task.body)


def _cancelled(polls: Iterable[Poll]) -> list[CancelledTask]:
    return [CancelledTask(*each) for poll in polls for each in poll.cancelled]


def _age(held: tuple[Claim, float]) -> tuple[float, int]:
    """Sorts claims in the order in which they were made."""
    return held[1], held[0].fence


def _count(heads: Iterable[Head]) -> tuple[int, int]:
    """How many groups, and how many plain tasks."""
    kinds = [head.is_group for head in heads]
    return kinds.count(True), kinds.count(False)


def _report(settlement: Settlement, poll: Poll) -> None:
    task, worker = settlement.claim.task, poll.session and poll.session.daemon
    told = log.bind(task=task.id, type=task.type, group=task.group, fence=task.fence, worker=worker)
    if isinstance(settlement, Bury):
        told.error("task.buried", reason=settlement.reason)
    else:
        told.debug("task.settled", outcome=settlement.outcome)
