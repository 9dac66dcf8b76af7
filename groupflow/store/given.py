"""What a claim gives: a task, and where it begins a run those behind it, which are read in turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, overload

import orjson

from groupflow.core.task import Task
from groupflow.store.clock import seconds
from groupflow.store.envelope import Envelope
from groupflow.store.keys import split_entry
from groupflow.store.task_state import TaskState

NO_STATE = TaskState()
FetchLargeTask: TypeAlias = Callable[[str], Awaitable[tuple[bytes | None, bytes | None]]]
"""Fetches the envelope and the context of a task, by its id."""
_ROW = 7  # values a claim


class Rest(Sequence["Claim"]):
    """The rest of a run: claims that its slot goes on with, in order.

    Each is read when its turn has come: if all were read at once, the first tasks of many runs
    would wait for the last ones of each.
    """

    def __init__(
        self, slot: str, group: str | None, fence: int, told: Sequence[bytes], now: int
    ) -> None:
        """A slot's, of one group.

        Args:
            slot: its name.
            group: of all of them.
            fence: of the first one; the others' follow.
            told: in turn, the entry and the envelope of each.
            now: Redis's clock (µs).
        """
        self._slot, self._group, self._fence, self._now = slot, group, fence, now
        self._entries, self._packed = told[::2], told[1::2]

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, place: int) -> Claim: ...
    @overload
    def __getitem__(self, place: slice) -> list[Claim]: ...
    def __getitem__(self, place: int | slice) -> Claim | list[Claim]:
        if isinstance(place, slice):
            return [self[n] for n in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        return claim_of(
            self._slot,
            self._fence + place,
            self._entries[place],
            self._group,
            self._packed[place],
            NO_STATE,
            self._now,
        )

    @property
    def last_fence(self) -> int:
        """Of the last one; 0 where there is none."""
        return self._fence + len(self) - 1 if self._entries else 0

    @property
    def bytes(self) -> int:
        """Of all envelopes, with their bodies."""
        return sum(map(len, self._packed))

    def waits(self) -> Iterator[float]:
        """What `Claim.waited` will say of each."""
        for entry in self._entries:
            yield seconds(max(0, self._now - split_entry(entry)[0]))


NO_REST = Rest("", None, 0, [], 0)


@dataclass(slots=True, eq=False)
class Claim:
    """A task in the hands of this daemon."""

    slot: str  # the name of the slot that holds it; its checkpoint lies under that name
    fence: int  # the claim's number; every settle must show it
    entry: bytes  # the task as it stands in lists
    task: Task  # the attempt that the handler gets
    rule: str | None  # the name of the rule that grouped the task
    # one entry for each attempt that failed, oldest first
    errors: list[dict[str, Any]] = field(default_factory=list)
    # seconds, by Redis's clock, from when the task could first have been claimed; None where it
    # had been claimed before
    waited: float | None = None
    scope: str = ""  # whose its id is
    drained: bool = False  # whether it tells that its group is drained
    origin: Mapping[str, str] | None = None  # see `Envelope`
    redriven: int = 0  # how many times it was a dead letter that became a task again
    run: Rest = NO_REST
    # Bytes of its envelope and its context that aren't here, but are to be fetched, or were let go:
    # its task has no body, no headers, and maybe no context. 0 where it is whole.
    apart: int = 0
    fetched: int = 0  # of these, those that were fetched
    reads: FetchLargeTask | None = None  # what fetches them

    async def fetch(self) -> bool:
        """Make it whole. False where its task is gone: another daemon has ended it.

        Raises:
            StoreUnavailable: no answer; call again.
        """
        assert self.reads is not None  # noqa: S101  a claim with bytes apart has one
        packed, context = await self.reads(self.task.id)
        if packed is None:
            return False
        envelope = Envelope.unpack_any(packed, self.task.group)
        known = None if context is None else orjson.loads(context)
        # Where only its context is large, the envelope alone tells what task it is.
        facts: dict[str, Any] = {"type": envelope.type, "tenant": envelope.tenant}
        facts |= {"body": envelope.body, "headers": envelope.headers, "context": known}
        self.task = replace(self.task, **facts)
        self.rule, self.scope = envelope.rule, envelope.scope
        self.apart, self.fetched, self.origin = 0, self.apart, envelope.origin
        return True

    def let_go(self) -> None:
        """Keep no body: the claim is settled without one, and its slot may name it for long."""
        self.apart = self.apart or self.fetched
        self.task = replace(self.task, body=b"", headers={}, context=None)

    @property
    def bytes(self) -> int:
        """Of its body and those of its run, as far as they are here."""
        return len(self.task.body) + self.run.bytes

    @property
    def last_fence(self) -> int:
        """Its own, or that of the last one of its run."""
        return self.run.last_fence or self.fence


def claims_from(rows: list[Any], now: int, reads: FetchLargeTask) -> list[Claim]:
    """The claims in a reply, seven values each.

    Args:
        rows: the values.
        now: Redis's clock (µs).
        reads: fetches what a script could not read.
    """
    return [_claim_from(rows[at : at + _ROW], now, reads) for at in range(0, len(rows), _ROW)]


def _claim_from(row: list[Any], now: int, reads: FetchLargeTask) -> Claim:
    slot, fence, entry, raw_group, packed, flat_state, told = row
    group, apart = raw_group.decode() or None, 0
    if not flat_state and not told:  # nearly always
        return claim_of(slot.decode(), fence, entry, group, packed, NO_STATE, now)
    task_state = TaskState.of(flat_state) if flat_state else NO_STATE
    if isinstance(packed, int):  # envelope, or context, are to be fetched: its state has the facts
        facts, apart = dict(zip(flat_state[::2], flat_state[1::2], strict=True)), packed
        known = (facts.get(name, b"").decode() for name in (b"type", b"tenant", b"rule", b"scope"))
        type_, tenant, rule, scope = known
        origin = orjson.loads(facts.get(b"origin", b"{}"))
        whole = Envelope(type_, group, tenant or None, rule or None, {}, b"", scope, None, origin)
        packed = whole.pack()
    claim = claim_of(slot.decode(), fence, entry, group, packed, task_state, now)
    if apart:
        claim.apart, claim.reads = apart, reads
    elif told and isinstance(told, list):  # else no run; or since when, of a puller
        claim.run = Rest(claim.slot, group, int(told[0]), told[1:], now)
    return claim


def claim_of(  # noqa: PLR0917  what a row has, in its order
    slot: str,
    fence: bytes | int,
    entry: bytes,
    group: str | None,
    packed: bytes,
    task_state: TaskState,
    now: int,
) -> Claim:
    """A claim; `now` is Redis's clock (µs)."""
    arrival, id_ = split_entry(entry)
    # Without a type, as what isn't ours, the daemon will bury it.
    envelope = Envelope.unpack_any(packed, group)
    since: int | None = arrival
    if task_state is not NO_STATE:
        if task_state.enqueued is not None:
            arrival = task_state.enqueued
        since = None if task_state.was_claimed else max(arrival, task_state.due or 0)
    # `Task.__init__` sets frozen fields one by one, and takes three times as long. So each field
    # stands here.
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
        attempt=task_state.attempt,
        crashes=task_state.crashes,
        lost_leases=task_state.lost_leases,
        stage=task_state.stage,
        context=task_state.context,
    )
    waited = None if since is None else max(0.0, seconds(now - since))
    rule, scope = envelope.rule, envelope.scope
    errors, drained = task_state.errors, task_state.drained
    claim = Claim(slot, task.fence, entry, task, rule, errors, waited, scope, drained)
    if envelope.origin:
        claim.origin = envelope.origin
    if task_state.redriven:
        claim.redriven = task_state.redriven
    return claim
