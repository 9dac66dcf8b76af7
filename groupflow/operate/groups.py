"""Groups: pause and resume them, and say why one isn't moving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import orjson

from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient
from groupflow.store.clock import MICROSECONDS
from groupflow.store.keys import split_checkpoint, split_element

State: TypeAlias = Literal["idle", "ready", "running", "delayed", "parked", "paused"]
_NAMED = 3  # daemons in a reason
ALL = ""  # in place of a group: everything


@dataclass(frozen=True, slots=True)
class Holder:
    """Who runs a group's task.

    Attributes:
        daemon: by name.
        worker: within the daemon.
        fence: the claim's number.
        lease_left: seconds until others may take over, if the daemon doesn't renew.
    """

    daemon: str
    worker: str
    fence: int
    lease_left: float


@dataclass(frozen=True, slots=True)
class Why:
    """One group's story at this instant.

    Attributes:
        group: which.
        state: the one state that it is in.
        queued: how many tasks wait in it.
        head: the id of the task that runs, or else of the one that is next; ``None`` if neither.
        holder: who runs the head, if it runs.
        since: Unix seconds since when the state holds, where that is known.
        until: Unix seconds until when it will, where that is known.
        reason: the answer in one line.
    """

    group: str
    state: State
    queued: int
    head: str | None
    holder: Holder | None
    since: float | None
    until: float | None
    reason: str

    def as_json(self) -> dict[str, Any]:
        """The public shape of ``groupflow why --json``."""
        return asdict(self)


class Groups:
    """The groups of one store."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    async def pause(self, group: str, by: str) -> bool:
        """Hold a group, or everything (`ALL`).

        Returns:
            Whether it wasn't paused already.
        """
        return bool(await self._client.run(OperatorVerb.PAUSE, group, by))

    async def resume(self, group: str) -> bool:
        """Let a group, or everything (`ALL`), go on.

        Returns:
            Whether it was paused.
        """
        return bool(await self._client.run(OperatorVerb.RESUME, group))

    async def why(self, group: str, *, with_words: bool = True) -> Why:
        """Say what state a group is in, and why.

        Args:
            group: which.
            with_words: whether the reason may repeat what handlers and dead letters said; else it
                has the kinds of errors alone.
        """
        return _why(group, *await self._client.run(OperatorVerb.WHY, group), with_words=with_words)


def _why(  # noqa: PLR0917  the row that why.lua answers, in its order
    group: str,
    now: int,
    queued: int,
    lock: bytes,
    checkpoint: bytes,
    lease: int,
    head: bytes,
    life: Sequence[bytes | None],
    ready: bytes,
    held: bytes,
    parked: bytes,
    paused: bytes,
    paused_all: bytes,
    busy: list[bytes],
    *,
    with_words: bool,
) -> Why:
    head_id = split_element(head)[1] if head else None
    attempt = int(life[0] or 1)

    def told(
        state: State,
        reason: str,
        *,
        head: str | None = head_id,
        holder: Holder | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> Why:
        return Why(group, state, queued, head, holder, since, until, reason)

    if lock:
        return _running(told, now, lock, checkpoint, lease, attempt)
    if paused or (paused_all and queued):
        by, at = orjson.loads(paused or paused_all)
        what = "the group" if paused else "everything"
        return told("paused", f"{by} paused {what}", since=int(at) / MICROSECONDS)
    if parked:
        id_, at, reason = orjson.loads(parked)
        said = f" ({reason})" if with_words else ""
        return told(
            "parked",
            f"parked behind dead letter {id_}{said}: redrive or drop it",
            since=int(at) / MICROSECONDS,
        )
    if held:
        due = float(held) / MICROSECONDS
        left = due - now / MICROSECONDS
        reason = _delay_reason(attempt, life[1], left, with_words=with_words)
        return told("delayed", reason, until=due)
    if ready:
        return told("ready", _ready_reason(int(life[2] or 0), [name.decode() for name in busy]))
    return told("idle", "nothing waits in it")


def _running(  # noqa: PLR0917  private, and called once
    told: Any, now: int, lock: bytes, checkpoint: bytes, lease: int, attempt: int
) -> Why:
    fence, _, rest = lock.decode().partition(" ")
    daemon, _, worker = rest.rpartition(" ")
    left = lease / MICROSECONDS
    holder = Holder(daemon, worker, int(fence), round(left, 3))
    result: Why
    if not checkpoint.startswith(b"L"):
        reason = f"its lock says that {daemon}, {worker} runs a task, whose checkpoint says nothing"
        result = told("running", f"{reason}: somebody changed keys by hand", holder=holder)
        return result
    _, since_us, element, _ = split_checkpoint(checkpoint)
    since = since_us / MICROSECONDS
    id_ = split_element(element)[1]
    reason = (
        f"attempt {attempt} of task {id_} runs on {daemon}, {worker}, for "
        f"{now / MICROSECONDS - since:.1f} s; its lease has {left:.1f} s left"
    )
    result = told("running", reason, head=id_, holder=holder, since=since)
    return result


def _ready_reason(crashes: int, busy: list[str]) -> str:
    if not crashes:
        return "its head may be claimed: all workers are busy, or none is running"
    died = f"its head is a suspect, since {crashes} of its claims ended in a crash"
    if not busy:
        return f"{died}; it may be claimed: all workers are busy, or none is running"
    names = ", ".join(busy[:_NAMED]) + (f" and {len(busy) - _NAMED} more" * (len(busy) > _NAMED))
    return f"{died}: a daemon runs one suspect at a time; that run another: {names}"


def _delay_reason(attempt: int, failed: bytes | None, left: float, *, with_words: bool) -> str:
    errors = orjson.loads(failed or b"[]")
    if errors:
        said = errors[-1]["message" if with_words else "error"]
        return f"attempt {attempt} of its head is due in {left:.1f} s, after {said}"
    return f"its head is delayed for another {left:.1f} s"
