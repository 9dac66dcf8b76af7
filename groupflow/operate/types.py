"""Types: which of them no daemon knows, and how many tasks wait for one that does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from groupflow.operate.namespace import Namespace
from groupflow.operate.scripts import OperatorVerb, named
from groupflow.store.client import StoreClient
from groupflow.store.clock import seconds


@dataclass(frozen=True, slots=True)
class UnknownType:
    """A type that tasks wait for a daemon to know."""

    type: str
    tasks: int  # how many wait
    seconds: float  # for which no living daemon has known it


@dataclass(frozen=True, slots=True)
class UnknownTypes:
    """What daemons don't know."""

    missing: list[str]  # of the types asked for, those that no running daemon knows
    waiting: list[UnknownType]  # the longest unknown first, some of each partition


async def read_unknown_types(namespace: Namespace, asked: Sequence[str]) -> UnknownTypes:
    """The types that no daemon knows; none of those asked for is missing where no daemon runs.

    Raises:
        StoreUnavailable: no partition answers.
    """

    async def ask(client: StoreClient) -> dict[str, Any]:
        return named(await client.run(OperatorVerb.TYPES, *asked))

    answers = (await namespace.ask_all(ask)).all
    # A daemon that has no session in one partition may have one in another.
    missing = [
        {name.decode() for name in answer["missing"]} for answer in answers if answer["knowing"]
    ]
    everywhere = set.intersection(*missing) if missing else set[str]()
    waiting = dict[str, UnknownType]()
    for each in (each for answer in answers for each in _waiting(answer)):
        before = waiting.get(each.type, each)
        tasks = each.tasks + (before.tasks if each.type in waiting else 0)
        longest = max(each.seconds, before.seconds)
        waiting[each.type] = UnknownType(each.type, tasks, longest)
    return UnknownTypes(
        sorted(everywhere), sorted(waiting.values(), key=lambda each: -each.seconds)
    )


def _waiting(answer: dict[str, Any]) -> Iterator[UnknownType]:
    for row in answer["waiting"]:
        facts = named(row)
        age = seconds(answer["now"]) - seconds(facts["since"])
        yield UnknownType(facts["type"], facts["tasks"], age)
