"""claim: what a slot is given, and the round trip that settles and claims at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from groupflow.core.task import Task
from groupflow.store.client import Argument, StoreClient
from groupflow.store.clock import seconds
from groupflow.store.envelope import Envelope, Pool
from groupflow.store.keys import split_element
from groupflow.store.life import Life
from groupflow.store.scripts import Verb
from groupflow.store.sessions import Session
from groupflow.store.settlements import Claim, Settlement, calls_of

_CLAIM = {"plain": Verb.CLAIM_PLAIN, "grouped": Verb.CLAIM_GROUPED}
_NO_LIFE = Life()


@dataclass(frozen=True, slots=True)
class Answer:
    """What one exchange brought."""

    refused: list[Settlement]  # since their fence is stale
    claims: list[Claim]
    # whether the daemon ran a suspect, in whichever pool, when the store last answered a claim of
    # this one
    beside_suspect: bool = False


class Claims:
    """The claims of one pool of workers."""

    def __init__(
        self,
        client: StoreClient,
        session: Session,
        pool: Pool,
        on_settled: Callable[[Sequence[Settlement]], None] = lambda _: None,
    ) -> None:
        """Binds the claims of one pool.

        Args:
            client: the one that intake writes through: a claim runs behind a batch written before.
            session: whose claims these are.
            pool: of which workers.
            on_settled: told the settlements of an exchange that were accepted.
        """
        self._client = client
        self._on_settled = on_settled
        self._session = session
        self.pool = pool
        self._beside_suspect = False
        self._claim = _CLAIM[pool]

    @property
    def extended(self) -> float:
        """When an answer that was coming was last given more time (monotonic). From any thread."""
        return self._client.extended

    async def exchange(self, settlements: Sequence[Settlement], slots: Sequence[str]) -> Answer:
        """Settle what is finished, then claim for the idle slots, in one round trip.

        A suspect (a task with crashes) comes alone, whatever else could be claimed.

        May be called again with the same arguments after any error: settles and claims that had
        run answer as they did the first time.

        Raises:
            SessionLost: every claim of the session is gone.
            SessionReplaced: the daemon's name was taken over.
            StoreUnavailable: no answer; all of it or none may have run.
        """
        front: list[Argument] = [self._session.daemon, self._session.shown]
        ordered, calls = calls_of(front, settlements, wake=len(slots) < len(settlements))
        if slots:
            calls.append((self._claim, [*front, *slots]))
        if not calls:
            return Answer([], [], self._beside_suspect)
        # Behind a server that was replaced, a claim has to wait for its session.
        epoch = self._session.epoch if self._session.epoch.id else None
        replies = await self._client.run_all(calls, epoch)
        for state, *_ in replies:
            self._session.check(state)
        rows, now = [], 0
        if slots:
            _, rows, now, suspect = replies.pop()
            self._beside_suspect = bool(suspect)
        verdicts = [verdict for _, verdicts in replies for verdict in verdicts]
        judged = list(zip(ordered, verdicts, strict=True))
        refused = [each for each, ok in judged if not ok]
        self._on_settled([each for each, ok in judged if ok] if refused else ordered)
        claims = [_claim_from(rows[at : at + 6], now) for at in range(0, len(rows), 6)]
        if claims:
            seen = self._session.seen
            seen.fence = max(seen.fence, *[claim.fence for claim in claims])
        return Answer(refused, claims, self._beside_suspect)


def _claim_from(row: list[Any], now: int) -> Claim:
    slot, fence, element, raw_group, packed, flat_life = row
    arrival, id_ = split_element(element)
    group = raw_group.decode() or None
    # Without a type, as what isn't ours, it will be buried.
    envelope = Envelope.unpack_any(packed, group)
    life = Life.of(flat_life) if flat_life else _NO_LIFE
    if life.enqueued is not None:
        arrival = life.enqueued
    since = None if life.was_claimed else max(arrival, life.due or 0)
    # Its own `__init__` sets what is frozen field by field, and takes three times as long. So each
    # field stands here.
    task = Task.__new__(Task)
    vars(task).update(
        id=id_,
        type=envelope.type,
        group=group,
        body=envelope.body,
        headers=envelope.headers,
        tenant=envelope.tenant,
        fence=int(fence),
        enqueued_at=seconds(arrival),
        attempt=life.attempt,
        crashes=life.crashes,
        stage=life.stage,
        context=life.context,
    )
    waited = None if since is None else seconds(max(0, now - since))
    rule, scope = envelope.rule, envelope.scope
    return Claim(slot.decode(), task.fence, element, task, rule, life.errors, waited, scope)
