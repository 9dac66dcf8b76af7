"""claim: what a slot is given, and the round trip that settles and claims at once."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

import orjson

from groupflow.store.carrying import CarriedLimits, Carrying
from groupflow.store.client import Argument, StoreClient
from groupflow.store.envelope import Pool
from groupflow.store.given import Claim, claims_from
from groupflow.store.scripts import Verb
from groupflow.store.sessions import Session
from groupflow.store.settlements import Advance, Defer, Settlement, calls_of, one_by_one

_ACCEPTED = 1
_ENDING = 2  # accepted, and the run should end
_SUPERSEDED = 3  # accepted: a retry that gave way to a newer task
_CANCELLED = 5  # accepted: its task was to be cancelled, and has ended
_REPLACED = 6  # accepted: its task had to make way for a newer one, and has ended
_UNKNOWN = 7  # accepted: a deferred task of a type that no living daemon knows
_GIVEN_UP = 8  # accepted: the same, for so long that it is dead
_CROWDED_OUT = 4  # accepted: an advance for which there was no room, and which is a failed attempt


@dataclass(frozen=True, slots=True)
class ExchangeReply:
    """What one exchange brought."""

    refused: list[Settlement]  # since their fence is stale
    claims: list[Claim]
    # whether the daemon ran a quarantined task, in either pool, when the store last answered a
    # claim of this pool
    beside_quarantined: bool = False
    # whether the next task is kept for a worker that waits, as its type has a limit
    is_kept: bool = False
    ending: frozenset[str] = frozenset()  # slots whose runs should end
    superseded: int = 0  # of the settled ones, those whose tasks gave way to newer ones
    # what was settled as a failed attempt, since there was no room for what it hands on
    crowded_out: Sequence[Advance] = ()
    cancelled: Sequence[Settlement] = ()  # what would have let a cancelled task wait again
    replaced: Sequence[Settlement] = ()  # the same of one that had to make way for a newer task
    unknown: Sequence[Defer] = ()  # of types that no living daemon knows
    given_up: Sequence[Defer] = ()  # the same, and dead

    def written(self, settlement: Settlement) -> Settlement:
        """What a settlement came to, where the store wrote another one in its stead."""
        if isinstance(settlement, Advance) and settlement in self.crowded_out:
            return settlement.otherwise or settlement
        if isinstance(settlement, Defer) and settlement in self.given_up:
            return settlement.otherwise
        return settlement


class Claims:
    """The claims of one pool of workers."""

    def __init__(
        self,
        client: StoreClient,
        session: Session,
        pool: Pool,
        on_settled: Callable[[Sequence[Settlement]], None] = lambda _: None,
        carrying: Carrying | None = None,
        *,
        types: Container[str] = (),
    ) -> None:
        """Binds the claims of one pool.

        Args:
            client: the one that intake writes through: a claim runs behind a batch written before.
            session: whose claims these are.
            pool: of which workers.
            on_settled: told the settlements of an exchange that were accepted.
            carrying: how much tasks may carry from stage to stage; without a bound if none.
            types: those that are counted by name; all others are one.
        """
        self._client = client
        self._on_settled = on_settled
        self._session = session
        self._carrying = carrying
        self._types = types
        self.pool = pool
        self._beside_quarantined = False
        self._packed_runs = b""

    def adopt(self, runs: Mapping[str, int]) -> None:
        """By rule, how many tasks of a group one claim may give; one where nothing is said."""
        several = {rule: number for rule, number in runs.items() if number > 1}
        self._packed_runs = orjson.dumps(several) if several else b""

    @property
    def extended(self) -> float:
        """When an answer that was coming was last given more time (monotonic). From any thread."""
        return self._client.extended

    async def exchange(
        self, settlements: Sequence[Settlement], slots: Sequence[str], beyond: int = 0
    ) -> ExchangeReply:
        """Settle what is finished, then claim for the idle slots, in one round trip.

        A quarantined task (a task with crashes) comes alone, even if other tasks could be claimed.
        No worker waits for so many of the slots (`beyond`): to these no task comes whose type has a
        limit, nor any behind such a task.

        May be called again with the same arguments after any error: settles and claims that ran
        answer as they did the first time.

        Raises:
            SessionLost: every claim of the session is gone.
            SessionReplaced: the daemon's name was taken over.
            StoreUnavailable: no answer; all of it or none may have run.
        """
        front: list[Argument] = [self._session.daemon, self._session.shown]
        room = CarriedLimits()
        if self._carrying is not None and any(isinstance(each, Advance) for each in settlements):
            room = await self._carrying.room()
        runs = self._packed_runs
        ordered, calls = calls_of(
            *(front, self.pool, settlements, slots),
            runs=runs,
            room=room,
            beyond=beyond,
            types=self._types,
        )
        if not calls:
            return ExchangeReply([], [], self._beside_quarantined)
        # A claim waits for its session behind a server that was replaced.
        epoch = self._session.epoch if self._session.epoch.id else None
        replies = await self._client.run_all(calls, epoch)
        verdicts, fences, claims, is_kept = list[int](), [0], list[Claim](), False
        for reply in replies:
            self._session.check(reply[0])
        for (verb, _), (_, judged_here, *found) in zip(calls, replies, strict=True):
            verdicts += judged_here
            if verb is Verb.EXCHANGE:
                rows, now, in_quarantine, fence, kept = found
                is_kept = is_kept or bool(kept)
                claims += claims_from(rows, now, self._client.read_apart)
                fences.append(fence)
                if slots:
                    self._beside_quarantined = bool(in_quarantine)
        fences += [claim.last_fence for claim in claims]
        self._session.seen.fence = max(self._session.seen.fence, *fences)
        if not set(verdicts) - {_ACCEPTED}:  # nearly always
            self._on_settled(one_by_one(ordered))
            return ExchangeReply([], claims, self._beside_quarantined, is_kept)
        judged = list(zip(ordered, verdicts, strict=True))
        refused = [each for each, ok in judged if not ok]
        self._on_settled(one_by_one([each for each, ok in judged if ok]))
        ending = frozenset(each.claim.slot for each, verdict in judged if verdict == _ENDING)
        superseded = verdicts.count(_SUPERSEDED) + verdicts.count(_REPLACED)
        crowded_out = [
            each
            for each, verdict in judged
            if verdict in (_SUPERSEDED, _CROWDED_OUT) and isinstance(each, Advance)
        ]
        deferred = [(each, verdict) for each, verdict in judged if isinstance(each, Defer)]
        return ExchangeReply(
            refused,
            claims,
            self._beside_quarantined,
            is_kept,
            ending,
            superseded,
            crowded_out,
            cancelled=[each for each, verdict in judged if verdict == _CANCELLED],
            replaced=[each for each, verdict in judged if verdict == _REPLACED],
            unknown=[each for each, verdict in deferred if verdict == _UNKNOWN],
            given_up=[each for each, verdict in deferred if verdict == _GIVEN_UP],
        )
