"""What a claim gives: a task, and where it begins a run those behind it, which are read in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from groupflow.core.task import Task
from groupflow.store.clock import seconds
from groupflow.store.envelope import Envelope
from groupflow.store.keys import split_element
from groupflow.store.life import Life

NO_LIFE = Life()
_ROW = 7  # values a claim


class Rest(Sequence["Claim"]):
    """The rest of a run: claims that its slot goes on with, in order.

    Each is read when its turn has come: to read all at once, the first tasks of many runs would
    wait for the last ones of each.
    """

    def __init__(
        self, slot: str, group: str | None, fence: int, told: Sequence[bytes], now: int
    ) -> None:
        """A slot's, of one group.

        Args:
            slot: its name.
            group: of all of them.
            fence: of the first one; the others' follow.
            told: in turn, the element and the envelope of each.
            now: Redis's clock (µs).
        """
        self._slot, self._group, self._fence, self._now = slot, group, fence, now
        self._elements, self._packed = told[::2], told[1::2]

    def __len__(self) -> int:
        return len(self._elements)

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
            self._elements[place],
            self._group,
            self._packed[place],
            NO_LIFE,
            self._now,
        )

    @property
    def last_fence(self) -> int:
        """Of the last one; 0 where there is none."""
        return self._fence + len(self) - 1 if self._elements else 0

    @property
    def last_element(self) -> bytes:
        """Of the last one, which there is."""
        return self._elements[-1]

    @property
    def bytes(self) -> int:
        """Of all envelopes, with their bodies."""
        return sum(map(len, self._packed))

    def waits(self) -> Iterator[float]:
        """What `Claim.waited` will say of each."""
        for element in self._elements:
            yield seconds(max(0, self._now - split_element(element)[0]))


NO_REST = Rest("", None, 0, [], 0)


@dataclass(slots=True, eq=False)
class Claim:
    """A task in the hands of this daemon."""

    slot: str  # the name of the slot that holds it; its checkpoint lies under that name
    fence: int  # the claim's number; every settle must show it
    element: bytes  # the task as it stands in lists
    task: Task  # the attempt that the handler gets
    rule: str | None  # the name of the rule that grouped the task
    # one entry for each attempt that failed, oldest first
    errors: list[dict[str, Any]] = field(default_factory=list)
    # seconds, by Redis's clock, from when the task could first have been claimed; None where it
    # had been claimed before
    waited: float | None = None
    scope: str | None = None  # whose its id is; None where nobody wrote that down
    # What stood behind it in its group when it was claimed, nearest first: element, and envelope
    # with body. Nobody has claimed that.
    behind: list[tuple[bytes, bytes]] = field(default_factory=list)
    run: Rest = NO_REST

    @property
    def bytes(self) -> int:
        """Of its body, and of the messages of its run."""
        return len(self.task.body) + self.run.bytes

    @property
    def last_fence(self) -> int:
        """Its own, or that of the last one of its run."""
        return self.run.last_fence or self.fence


def claims_from(rows: list[Any], now: int) -> list[Claim]:
    """The claims in a reply, seven values each; `now` is Redis's clock (µs)."""
    return [_claim_from(rows[at : at + _ROW], now) for at in range(0, len(rows), _ROW)]


def _claim_from(row: list[Any], now: int) -> Claim:
    slot, fence, element, raw_group, packed, flat_life, told = row
    life = Life.of(flat_life) if flat_life else NO_LIFE
    claim = claim_of(slot.decode(), fence, element, raw_group.decode() or None, packed, life, now)
    if not told or not isinstance(told, list):  # nothing; or since when, of who pulls
        return claim
    if told[0]:
        claim.run = Rest(claim.slot, claim.task.group, int(told[0]), told[1:], now)
    else:
        claim.behind = pairs(told[1:])
    return claim


def pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    """What comes in turn: elements and envelopes."""
    return list(zip(flat[::2], flat[1::2], strict=True))


def claim_of(  # noqa: PLR0917  what a row has, in its order
    slot: str,
    fence: bytes | int,
    element: bytes,
    group: str | None,
    packed: bytes,
    life: Life,
    now: int,
) -> Claim:
    """A claim; `now` is Redis's clock (µs)."""
    arrival, id_ = split_element(element)
    # Without a type, as what isn't ours, it will be buried.
    envelope = Envelope.unpack_any(packed, group)
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
        lost_leases=life.lost_leases,
        stage=life.stage,
        context=life.context,
    )
    waited = None if since is None else seconds(max(0, now - since))
    rule, scope = envelope.rule, envelope.scope
    return Claim(slot, task.fence, element, task, rule, life.errors, waited, scope)
