"""Dead letters of a whole namespace, each with the partition in which it lies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar

from groupflow.core.errors import StoreUnavailable
from groupflow.operate.archiving import Whole
from groupflow.operate.bodies import whole_letter
from groupflow.operate.dead import DeadKind, DeadLetter, DeadLetters, DeadPage, DeadStory, Filter
from groupflow.operate.moving import move_letter
from groupflow.operate.pages import Cursor, Slice, merge
from groupflow.operate.redrive import Redriver
from groupflow.operate.whole.choosing import ANY, Choice, choose
from groupflow.operate.whole.namespace import Namespace, missing
from groupflow.settings.model import Settings
from groupflow.store.client import StoreClient

_PAGES = 4  # that a count of kinds reads
_A_PAGE = 500
_ALIKE = 60  # characters of a reason that tell letters without a kind apart
_SHOWN = 200  # characters of a reason

_Letter = TypeVar("_Letter", DeadLetter, DeadStory)


@dataclass(frozen=True, slots=True)
class Lying(Generic[_Letter]):
    """A dead letter, and the partition where it lies."""

    partition: int
    letter: _Letter


def _beginning(one: str, other: str) -> str:
    """The beginning that both texts share."""
    pairs = enumerate(zip(one, other, strict=False))
    length = next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))
    return one[:length]


AnyLying: TypeAlias = Lying[DeadLetter] | Lying[DeadStory]


class AllLetters:
    """The dead letters of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._stores = [DeadLetters(client) for client in namespace.clients]

    async def each(self, wanted: Filter | None = None) -> AsyncIterator[Lying[DeadLetter]]:
        """The matching dead letters, the latest death first; see `DeadLetters.each`.

        Raises:
            StoreUnavailable: no partition answers. One that stops answering is left out.
        """
        streams = [store.each(wanted) for store in self._stores]

        def next_of(number: int) -> Callable[[StoreClient], Awaitable[DeadLetter | None]]:
            return lambda _: anext(streams[number], None)

        first = await self._namespace.ask_each({n: next_of(n) for n in range(len(streams))})
        heads = {n: letter for n, letter in first.by_partition.items() if letter is not None}
        while heads:
            latest = max(heads, key=lambda number: heads[number].died_at)
            yield Lying(latest, heads.pop(latest))
            try:
                following = await self._namespace.ask(latest, next_of(latest))
            except StoreUnavailable:
                if len(streams) == 1:
                    raise
            else:
                if following is not None:
                    heads[latest] = following

    async def page(self, wanted: Filter, *, passed: str = "0", limit: int = 50) -> DeadPage:
        """Some of the matching dead letters; see `DeadLetters.page`.

        Raises:
            StoreUnavailable: no partition answers.
            ValueError: `passed` is neither a number nor the `next` of a page.
        """
        stores = self._stores
        if len(stores) == 1:
            only, number = stores[0], Cursor.parse(passed, 1).places[0] or 0
            return await self._namespace.ask(
                0, lambda _: only.page(wanted, passed=number, limit=limit)
            )
        at = Cursor.parse(passed, len(stores))

        def look_of(number: int) -> Callable[[StoreClient], Awaitable[Slice[DeadLetter]]]:
            return lambda _: stores[number].look(wanted, at.places[number] or 0, limit)

        answers = await self._namespace.ask_each({n: look_of(n) for n in at.open})
        page = merge(answers.by_partition, at, limit)
        following = page.cursor.told({each.partition for each in answers.away})
        return DeadPage(page.looked, following, page.rows, answers.away)

    async def kinds(self, wanted: Filter) -> tuple[int, bool, list[DeadKind]]:
        """What the matching dead letters died of, by a bounded look at the latest of them.

        Returns:
            How many were looked at, whether they were all, and the kinds, the most frequent first.

        Raises:
            StoreUnavailable: no partition answers.
        """
        looked, passed = 0, "0"
        found: dict[str, DeadKind] = {}
        for _ in range(_PAGES):
            page = await self.page(wanted, passed=passed, limit=_A_PAGE)
            looked += page.looked_at
            for letter in page.letters:
                name = letter.kind or letter.reason[:_ALIKE]
                known = found.get(name)
                reason = letter.reason.partition("\n")[0][:_SHOWN]
                found[name] = (
                    DeadKind(letter.kind, reason, 1, letter.died_at, letter.id, letter.tenant)
                    if known is None
                    else replace(
                        known,
                        count=known.count + 1,
                        reason=_beginning(known.reason, reason),
                    )
                )
            if page.next is None:
                break
            passed = str(page.next)
        kinds = sorted(found.values(), key=lambda each: (-each.count, -each.last_at))
        return looked, page.next is None, kinds

    async def find(self, id_: str, choice: Choice = ANY) -> Lying[DeadStory] | None:
        """The dead letter of that id, or ``None``.

        Raises:
            AmbiguousId: several tasks have the id, dead or not: the caller may mean either.
            StoreUnavailable: no partition that answers has it, and some partition is away.
        """
        found = await choose(self._namespace, id_, choice)
        if found is None or found[1].state != "dead":
            missing(self._namespace.away if choice.partition is None else [])
            return None
        place, store = found[0], self._stores[found[0]]
        letter = await self._namespace.ask(place, lambda _: store.get(id_))
        return None if letter is None else Lying(place, letter)

    async def drop(self, lying: AnyLying) -> bool:
        """Remove a dead letter for good; see `DeadLetters.drop`."""
        return await self._stores[lying.partition].drop(lying.letter)

    async def whole(self, settings: Settings, lying: AnyLying) -> Whole:
        """A dead letter with headers, body and errors; see `whole_letter`."""
        return await whole_letter(settings, self._stores[lying.partition], lying.letter.id)

    async def redrive(self, settings: Settings, lying: AnyLying) -> bool:
        """Put a dead letter back at its original place in its group; see `Redriver.redrive`."""
        here = lying.partition

        async def forward(letter: DeadLetter, group: str) -> tuple[DeadLetters, DeadLetter] | None:
            there = self._namespace.place_of(group)
            if there == here:
                return self._stores[here], letter
            clients = self._namespace.clients
            id_ = await move_letter(clients[here], clients[there], letter.id)
            return None if id_ is None else (self._stores[there], replace(letter, id=id_))

        redriver = Redriver(settings, self._stores[here], forward)
        try:
            return await redriver.redrive(lying.letter)
        except KeyError:  # another process took it a moment ago
            return False
