"""claim and settle: one round trip settles all that is finished and claims for all that is idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import orjson

from groupflow.core.task import Task
from groupflow.store.client import Argument, Call, StoreClient
from groupflow.store.enqueue import MICROSECONDS
from groupflow.store.envelope import Envelope
from groupflow.store.keys import split_element
from groupflow.store.scripts import Verb
from groupflow.store.sessions import Session

Pool: TypeAlias = Literal["plain", "grouped"]
_CLAIM = {"plain": Verb.CLAIM_PLAIN, "grouped": Verb.CLAIM_GROUPED}


@dataclass(slots=True, eq=False)
class Claim:
    """A task in a worker's hands.

    Attributes:
        worker: who holds it.
        fence: the claim's number; every settle must show it.
        element: the task as it stands in lists.
        task: the attempt that the handler gets.
        rule: the name of the rule that grouped the task.
        errors: one entry for each attempt that failed, oldest first.
    """

    worker: str
    fence: int
    element: bytes
    task: Task
    rule: str | None
    errors: list[dict[str, Any]] = field(default_factory=list)

    @property
    def group(self) -> str:
        """The group as scripts take it: empty for a plain task."""
        return self.task.group or ""


@dataclass(frozen=True, slots=True)
class Complete:
    """The task is done."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Release:
    """The task goes back unfinished, as the next of its group."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Bury:
    """The task becomes a dead letter.

    Attributes:
        claim: which task.
        reason: what its dead letter says.
        errors: the history of its attempts.
        park: whether its group stands still behind it.
    """

    claim: Claim
    reason: str
    errors: list[dict[str, Any]]
    park: bool = False


Settlement: TypeAlias = Complete | Release | Bury


class Claims:
    """The claims of one pool of workers, on a connection of its own."""

    def __init__(self, client: StoreClient, session: Session, pool: Pool) -> None:
        self._client = client
        self._session = session
        self._claim = _CLAIM[pool]

    async def exchange(
        self, settlements: Sequence[Settlement], idle: Sequence[str]
    ) -> tuple[list[Settlement], list[Claim]]:
        """Settle what is finished, then claim for the idle workers, in one round trip.

        May be called again with the same arguments after any error: settles and claims that had
        run answer as they did the first time.

        Returns:
            The settlements that were refused, since their fence is stale, and the new claims.

        Raises:
            SessionLost: every claim of the session is gone.
            SessionReplaced: the daemon's name was taken over.
            StoreUnavailable: no answer; all of it or none may have run.
        """
        number = self._session.number
        front: list[Argument] = [self._session.daemon, number]
        ordered, calls = _settle_calls(front, settlements)
        if idle:
            calls.append((self._claim, [*front, *idle]))
        if not calls:
            return [], []
        replies = await self._client.run_all(calls)
        for state, _ in replies:
            self._session.check(state, number)
        rows = replies.pop()[1] if idle else []
        verdicts = [verdict for _, verdicts in replies for verdict in verdicts]
        refused = [each for each, ok in zip(ordered, verdicts, strict=True) if not ok]
        return refused, [_claim_from(row) for row in rows]


def _settle_calls(
    front: list[Argument], settlements: Sequence[Settlement]
) -> tuple[list[Settlement], list[Call]]:
    """The calls that settle, and the settlements in the order of the verdicts they will give."""
    completes = [each for each in settlements if isinstance(each, Complete)]
    releases = [each for each in settlements if isinstance(each, Release)]
    buries = [each for each in settlements if isinstance(each, Bury)]
    calls: list[Call] = []
    if completes:
        arguments = list(front)
        for each in completes:
            arguments += [*_proof(each.claim), _history_line(each.claim, "done")]
        calls.append((Verb.COMPLETE, arguments))
    if releases:
        arguments = list(front)
        for release in releases:
            arguments += _proof(release.claim)
        calls.append((Verb.RELEASE, arguments))
    for bury in buries:
        calls.append(
            (
                Verb.BURY,
                [
                    *front,
                    *_proof(bury.claim),
                    bury.reason,
                    orjson.dumps(bury.errors),
                    "park" if bury.park else "skip",
                ],
            )
        )
    return [*completes, *releases, *buries], calls


def _proof(claim: Claim) -> tuple[Argument, ...]:
    return claim.worker, claim.fence, claim.element, claim.group


def _history_line(claim: Claim, outcome: str) -> bytes:
    task = claim.task
    return orjson.dumps([outcome, task.type, task.group, task.attempt, task.crashes, claim.fence])


def _claim_from(row: list[Any]) -> Claim:
    worker, fence, element, group, packed, flat_life = row
    arrival, id_ = split_element(element)
    envelope = Envelope.unpack(packed)
    task_facts: dict[str, Any] = {}
    errors: list[dict[str, Any]] = []
    if flat_life:
        life = dict(zip(flat_life[::2], flat_life[1::2], strict=True))
        stage, context = life.get(b"stage"), life.get(b"context")
        task_facts = {
            "attempt": int(life.get(b"attempt", 1)),
            "crashes": int(life.get(b"crashes", 0)),
            "stage": stage.decode() if stage is not None else None,
            "context": orjson.loads(context) if context is not None else None,
        }
        arrival = int(life.get(b"enqueued", arrival))
        errors = orjson.loads(life.get(b"errors", b"[]"))
    task = Task(
        id=id_,
        type=envelope.type,
        group=group.decode() or None,
        body=envelope.body,
        headers=envelope.headers,
        tenant=envelope.tenant,
        fence=fence,
        enqueued_at=arrival / MICROSECONDS,
        **task_facts,
    )
    return Claim(worker.decode(), fence, element, task, envelope.rule, errors)
