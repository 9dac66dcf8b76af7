"""Finding tasks: where one is now and what has happened to it; some of those in a state."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import orjson

from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient
from groupflow.store.clock import MICROSECONDS
from groupflow.store.keys import ARRIVAL_DIGITS, split_checkpoint

TaskState: TypeAlias = Literal["queued", "running", "delayed", "dead", "done", "dropped", "expired"]


ListedState: TypeAlias = Literal["queued", "running", "delayed", "done"]


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a task.

    Attributes:
        id: the task.
        state: where it is. A dead letter that was dropped or outlived its retention says so for
            as long as the history lasts.
        type: its type.
        group: its group, ``None`` for a plain task.
        tenant: its tenant, where that is still known.
        attempt: the attempt that runs or is next; of a finished task, the one that ended it.
        crashes: how many claims of it ended in a crash.
        stage: the stage that it has reached.
        daemon: who runs it, if it runs; `worker` and `fence` likewise.
        worker: within the daemon.
        fence: the claim's number.
        since: Unix seconds since when it runs, is dead or is over.
        until: Unix seconds until when it is delayed.
        reason: why it is dead.
        errors: one entry for each failed attempt that is remembered, oldest first.
    """

    id: str
    state: TaskState
    type: str
    group: str | None = None
    tenant: str | None = None
    attempt: int = 1
    crashes: int = 0
    stage: str | None = None
    daemon: str | None = None
    worker: str | None = None
    fence: int | None = None
    since: float | None = None
    until: float | None = None
    reason: str | None = None
    errors: list[dict[str, Any]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The public shape of ``groupflow task --json``."""
        return asdict(self)


async def find_task(client: StoreClient, id_: str) -> Found | None:
    """Find a task by its id, or ``None``: it never was, or its history has rolled away.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    now, is_there, type_, group, tenant, life, *rest = await client.run(OperatorVerb.FIND, id_)
    died, ended, daemon, worker, checkpoint = rest
    if not is_there:
        return _ended(id_, ended) if ended else None
    attempt, crashes, stage, due, reason, errors = life
    facts: dict[str, Any] = {
        "id": id_,
        "type": type_.decode(),
        "group": group.decode() or None,
        "tenant": tenant.decode() or None,
        "attempt": int(attempt or 1),
        "crashes": int(crashes or 0),
        "stage": stage.decode() if stage is not None else None,
        "errors": orjson.loads(errors or b"[]"),
    }
    if died:
        return Found(
            state="dead",
            since=float(died) / MICROSECONDS,
            reason=(reason or b"").decode(),
            **facts,
        )
    if checkpoint:
        fence, since, _, _ = split_checkpoint(checkpoint)
        return Found(
            state="running",
            daemon=daemon.decode(),
            worker=worker.decode(),
            fence=fence,
            since=since / MICROSECONDS,
            **facts,
        )
    if due is not None and int(due) > now:
        return Found(state="delayed", until=int(due) / MICROSECONDS, **facts)
    return Found(state="queued", **facts)


async def list_tasks(
    client: StoreClient, state: ListedState, limit: int
) -> list[tuple[str, str | None]]:
    """Some tasks of a state, by id and group, `limit` of them at most.

    Those that wait come with the next to run first; groups that run, wait or stand follow. For
    counts see `read_status`, for the dead `DeadLetters`.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    rows = await client.run(OperatorVerb.LIST, state, limit)
    return [(id_.decode(), group.decode() or None) for id_, group in rows]


def _ended(id_: str, line: bytes) -> Found:
    state, type_, group, attempt, crashes, *_scope = orjson.loads(line[ARRIVAL_DIGITS:])
    since = int(line[:ARRIVAL_DIGITS]) / MICROSECONDS
    return Found(id_, state, type_, group, attempt=attempt, crashes=crashes, since=since)
