"""What dead letters died of: counts by the kind, of the latest of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from groupflow.operate.dead import DeadLetter, DeadLetters, Filter

_PAGES = 4  # that a count of kinds reads
_A_PAGE = 500
_ALIKE = 60  # characters of a reason that tell letters without a kind apart
_SHOWN = 200  # characters of a reason


@dataclass(frozen=True, slots=True)
class DeadKind:
    """Dead letters that died of the same."""

    kind: str  # an error's name, without its words; empty if unknown
    reason: str  # the beginning that all of their reasons share
    count: int
    last_at: float  # Unix seconds: the latest death
    example: str  # the id of that letter
    tenant: str | None  # its tenant


async def read_kinds(letters: DeadLetters, wanted: Filter) -> tuple[int, bool, list[DeadKind]]:
    """What the matching dead letters died of, by a bounded look at the latest of them.

    Returns:
        How many were looked at, whether they were all, and the kinds, the most frequent first.

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
    return looked, page.next is None, kinds


def _kind_of(letters: Sequence[DeadLetter]) -> DeadKind:
    """What letters died of alike, the latest death first."""
    last = letters[0]
    lines = [each.reason.partition("\n")[0][:_SHOWN] for each in letters]
    shared = takewhile(lambda some: len({*some}) == 1, zip(*lines, strict=False))
    reason = "".join(character for character, *_ in shared)
    return DeadKind(last.kind, reason, len(letters), last.died_at, last.id, last.tenant)
