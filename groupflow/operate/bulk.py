"""All dead letters that match a filter: what is done to them all, and what they died of.

What is done to them all is done by bounded steps.
A step goes from the latest death to the oldest, and its cursor counts those that are left, older.
So letters that go meanwhile, or die (even those that a step before has redriven), don't move it,
and the steps end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from groupflow.operate.dead import LOOKS, DeadLetter, DeadLetters, Filter, read_letters
from groupflow.operate.namespace import Namespace
from groupflow.operate.pages import walk
from groupflow.store.client import StoreClient

BEGIN = "0"
MOST = 500  # letters a step
_PAGES = 4  # that a count of kinds reads
_A_PAGE = 500
_ALIKE = 60  # characters of a reason that tell letters without a kind apart
_SHOWN = 200  # characters of a reason


@dataclass(frozen=True, slots=True)
class Step:
    """Some of the dead letters that match."""

    letters: list[DeadLetter]
    next: str | None  # where the next step begins, None at the end


async def step(namespace: Namespace, wanted: Filter, cursor: str = BEGIN, most: int = MOST) -> Step:
    """Some of the matching dead letters, by a bounded look.

    Args:
        namespace: whose letters.
        wanted: which.
        cursor: `BEGIN`, or `next` of the step before.
        most: letters at most.

    Raises:
        StoreUnavailable: no partition answers. Others are passed over, and are in `away`.
        UnknownCursor: the cursor isn't valid here.
    """
    found: list[DeadLetter] = []

    async def look(place: str, client: StoreClient) -> tuple[str, bool]:
        left = int(place) if place else None
        read = await read_letters(client, wanted, most=most - len(found), left=left)
        found.extend(letter for _, letter in read.letters)
        return str(read.left or ""), len(found) >= most

    following, _ = await walk(namespace, cursor, look, LOOKS)
    return Step(found, following)


async def each_step(namespace: Namespace, wanted: Filter) -> AsyncIterator[list[DeadLetter]]:
    """The letters of all steps.

    Raises:
        StoreUnavailable: no partition answers.
    """
    cursor: str | None = BEGIN
    while cursor is not None:
        found = await step(namespace, wanted, cursor)
        yield found.letters
        cursor = found.next


async def count(namespace: Namespace, wanted: Filter) -> int:
    """How many match.

    Raises:
        StoreUnavailable: no partition answers.
    """
    return sum([len(letters) async for letters in each_step(namespace, wanted)])


@dataclass(frozen=True, slots=True)
class DeadKind:
    """Dead letters that died of the same."""

    kind: str  # an error's name, without its words; empty if unknown
    reason: str  # the beginning that all of their reasons share
    count: int
    last_at: float  # Unix seconds: the latest death
    example: str  # the id of that letter
    tenant: str | None  # its tenant


@dataclass(frozen=True, slots=True)
class Reasons:
    """Dead letters by what they died of."""

    looked_at: int
    is_whole: bool  # whether these were all; of very many the latest are looked at
    reasons: list[DeadKind]  # the most frequent first


async def read_kinds(letters: DeadLetters, wanted: Filter) -> Reasons:
    """What the matching dead letters died of, by a bounded look at the latest of them.

    Raises:
        StoreUnavailable: no partition answers.
    """
    looked = 0
    passed: int | str = 0
    found: dict[str, list[DeadLetter]] = defaultdict(list)
    for _ in range(_PAGES):
        page = await letters.page(wanted, passed=passed, limit=_A_PAGE)
        looked += page.looked_at
        for letter in page.letters:
            found[letter.kind or letter.reason[:_ALIKE]].append(letter)
        if page.next is None:
            break
        passed = page.next
    kinds = [_kind_of(some) for some in found.values()]
    kinds.sort(key=lambda each: (-each.count, -each.last_at))
    return Reasons(looked, page.next is None, kinds)


def _kind_of(letters: Sequence[DeadLetter]) -> DeadKind:
    """What letters died of alike, the latest death first."""
    last = letters[0]
    lines = [each.reason.partition("\n")[0][:_SHOWN] for each in letters]
    shared = takewhile(lambda some: len({*some}) == 1, zip(*lines, strict=False))
    reason = "".join(character for character, *_ in shared)
    return DeadKind(last.kind, reason, len(letters), last.died_at, last.id, last.tenant)
