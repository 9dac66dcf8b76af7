"""All dead letters that match a filter: what is done to them all, and what they died of.

What is done to them all is done by bounded steps.
A step goes from the latest death to the oldest, and its cursor counts those that are left, older.
So letters that go meanwhile, or die (even those that a step before has redriven), don't move it,
and the steps end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial

from groupflow.operate.dead import LOOKS, DeadLetter, DeadLetters, Filter, read_letters
from groupflow.operate.namespace import Away, Namespace
from groupflow.operate.pages import each_page, walk
from groupflow.store.client import StoreClient

MOST = 500  # letters a step
LATEST = 10  # steps that a look at causes takes, if it doesn't look at all letters
CAUSES = 100  # causes that it tells


@dataclass(frozen=True, slots=True)
class Step:
    """Some of the dead letters that match."""

    letters: list[DeadLetter]
    next: str | None  # where the next step begins, None at the end
    away: list[Away]  # the partitions that it passed over


async def step(namespace: Namespace, wanted: Filter, cursor: str = "0", most: int = MOST) -> Step:
    """Some of the matching dead letters, by a bounded look.

    Args:
        namespace: whose letters.
        wanted: which.
        cursor: ``0``, or `next` of the step before.
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

    return Step(found, *await walk(namespace, cursor, look, LOOKS))


async def each_step(namespace: Namespace, wanted: Filter) -> AsyncIterator[list[DeadLetter]]:
    """The letters of all steps.

    Raises:
        StoreUnavailable: no partition answers.
    """
    async for found in each_page(partial(step, namespace, wanted)):
        yield found.letters


async def count(namespace: Namespace, wanted: Filter) -> int:
    """How many match.

    Raises:
        StoreUnavailable: no partition answers.
    """
    return sum([len(letters) async for letters in each_step(namespace, wanted)])


@dataclass(slots=True)
class Cause:
    """Dead letters of one type that died of the same."""

    cause: str  # digits that a filter takes
    type: str  # of the tasks, empty if they had none
    kind: str  # an error's name, without its words; empty if unknown
    reason: str  # the reason that they share: `…` stands for what differs
    count: int
    last_at: float  # Unix seconds: the latest death
    example: str  # the id of that letter
    tenant: str | None  # its tenant


@dataclass(frozen=True, slots=True)
class Reasons:
    """Dead letters by what they died of."""

    looked_at: int  # letters; by a look at all of them, those that match
    is_whole: bool  # whether these were all; of very many the latest are looked at
    matching: int  # of those that were looked at, how many match
    causes: int  # how many causes these have
    with_words: bool  # whether causes are told apart by their words, or by their kinds alone
    reasons: list[Cause]  # of those the most frequent, the most frequent first


async def read_causes(
    namespace: Namespace, wanted: Filter, *, looks: int | None = LATEST, shown: int = CAUSES
) -> Reasons:
    """What the matching dead letters died of.

    Args:
        namespace: whose letters.
        wanted: which; also whether causes are told apart by their words.
        looks: steps that may look at letters; ``None`` for all that it takes.
        shown: causes at most.

    Raises:
        StoreUnavailable: no partition answers.
    """
    looked, is_whole, found = 0, True, dict[str, Cause]()
    if looks is None:  # one partition after another, so that no letter is read twice
        async for some in each_step(namespace, wanted):
            looked += len(some)
            _count(found, some, with_words=wanted.with_words)
    else:
        async for page in each_page(partial(DeadLetters(namespace).page, wanted, limit=MOST)):
            looked, looks, is_whole = looked + page.looked_at, looks - 1, page.next is None
            _count(found, page.letters, with_words=wanted.with_words)
            if not looks:
                break
    causes = sorted(found.values(), key=lambda each: (-each.count, -each.last_at))
    matching = sum(each.count for each in causes)
    numbers = (looked, is_whole, matching, len(causes), wanted.with_words)
    return Reasons(*numbers, causes[:shown])


def _count(found: dict[str, Cause], letters: Sequence[DeadLetter], *, with_words: bool) -> None:
    for letter in letters:
        reason, cause = letter.cause(with_words=with_words)
        known = found.get(cause)
        if known is None:
            facts = (cause, letter.type, letter.kind, reason or letter.kind, 1, letter.died_at)
            found[cause] = Cause(*facts, letter.id, letter.tenant)
            continue
        known.count += 1
        if letter.died_at > known.last_at:  # in another partition
            known.last_at, known.example, known.tenant = letter.died_at, letter.id, letter.tenant
