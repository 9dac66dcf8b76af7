"""A namespace as operators see it: its partitions, asked side by side, and which of them are away.

This module alone decides what it means if a partition gives no answer.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from time import monotonic
from typing import Any, Generic, TypeVar

from groupflow.core.errors import (
    AmbiguousId,
    ArchiveRefused,
    BodyMissing,
    BodyUnfit,
    GroupflowError,
    GroupFull,
    NoRoomForDelay,
    ServerUnreachable,
    StoreFull,
    StoreUnavailable,
    Unroutable,
)
from groupflow.core.routing import Router
from groupflow.operate.scripts import OperatorVerb
from groupflow.settings.model import Settings
from groupflow.store.client import Argument, StoreClient
from groupflow.store.keys import Keys
from groupflow.store.layout import compare
from groupflow.store.partitions import Partitions, partition_of
from groupflow.store.scripts import AnyVerb

RECALL = 1.0
"""Seconds for which each caller waits for a sign of a partition that was away when last asked."""
IDLE: ContextVar[list[float] | None] = ContextVar("groupflow_idle", default=None)
"""Takes, as its first item, the seconds of waiting only for partitions that are away."""

_Answer = TypeVar("_Answer")
_Meant = TypeVar("_Meant")
_Part = TypeVar("_Part", bound=Any)
_KEEP_ONE = (
    AmbiguousId,
    ArchiveRefused,
    BodyMissing,
    BodyUnfit,
    GroupFull,
    NoRoomForDelay,
    StoreFull,
    StoreUnavailable,
    Unroutable,
)


@dataclass(frozen=True, slots=True)
class Away:
    """A partition that did not answer when it was last asked."""

    partition: int  # its number, from 0
    why: str  # the error of the client that asked

    def __str__(self) -> str:
        return f"partition {self.partition} is away: {self.why}"


@dataclass(frozen=True, slots=True)
class Answers(Generic[_Answer]):
    """The partitions' answers to one question."""

    by_partition: dict[int, _Answer]  # those that did, in order
    away: list[Away]  # those that didn't

    @property
    def all(self) -> list[_Answer]:
        """The answers alone."""
        return [*self.by_partition.values()]


class Namespace:
    """The partitions of a namespace, through one client each."""

    def __init__(
        self, clients: Sequence[StoreClient], router: Callable[[], Router] | None = None
    ) -> None:
        """Takes the clients in the order of the partitions; the caller closes them.

        `router` gives the loaded configuration's, which finds the application of a message.
        """
        self.clients = clients
        self.router = router
        self.closed = ""  # why nothing is to be asked just now
        self._away: dict[int, Away] = {}

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def away(self) -> list[Away]:
        """The partitions that gave no answer when they were last asked."""
        return [self._away[number] for number in sorted(self._away)]

    def place_of(self, group: str | None, id_: str = "") -> int:
        """The partition in which a task belongs: by its group, or without one by its id."""
        return partition_of(group, id_, len(self.clients))

    @asynccontextmanager
    async def common(self) -> AsyncIterator[StoreClient]:
        """A client for the keys that all partitions share."""
        first = self.clients[0]
        if len(self) == 1:
            yield first
            return
        client = first.beside(Keys(first.keys.namespace))
        try:
            yield client
        finally:
            await client.close()

    async def ask(
        self, partition: int, question: Callable[[StoreClient], Awaitable[_Answer]]
    ) -> _Answer:
        """Ask one partition.

        Raises:
            StoreUnavailable: it does not answer.
        """
        answer = await self._ask(partition, question, None)
        if isinstance(answer, Away):
            raise StoreUnavailable(str(answer))
        return answer

    async def run_at(self, group: str, verb: AnyVerb, *arguments: Argument) -> Any:
        """Run a script in the partition of a group.

        Raises:
            StoreUnavailable: it does not answer.
        """
        return await self.ask(self.place_of(group), lambda client: client.run(verb, *arguments))

    async def run_everywhere(self, verb: AnyVerb, *arguments: Argument) -> list[Any]:
        """Run a script in all partitions.

        Raises:
            StoreUnavailable: some don't answer; it ran in the others.
        """
        answers = await self.ask_all(lambda client: client.run(verb, *arguments))
        missing(answers.away)
        return answers.all

    async def ask_all(
        self,
        question: Callable[[StoreClient], Awaitable[_Answer]],
        timeout: float | None = None,
    ) -> Answers[_Answer]:
        """Ask all partitions at once, and do without those that don't answer.

        Args:
            question: asked of each.
            timeout: seconds for each of them, besides its client's own timeout.

        Raises:
            StoreUnavailable: none answers.
            ServerUnreachable: the only one refused the credentials.
            TimeoutError: the only one did not answer within `timeout`.
        """
        return await self.ask_each(dict.fromkeys(range(len(self.clients)), question), timeout)

    async def ask_each(
        self,
        questions: Mapping[int, Callable[[StoreClient], Awaitable[_Answer]]],
        timeout: float | None = None,
    ) -> Answers[_Answer]:
        """The same, with a question of its own for each partition that is asked."""
        times = dict[int, float]()  # when each had its answer, or was given up

        async def ask(number: int) -> _Answer | Away:
            try:
                return await self._ask(number, questions[number], timeout)
            finally:
                times[number] = monotonic()

        came = await asyncio.gather(*map(ask, questions), return_exceptions=True)
        found: dict[int, _Answer] = {}
        away: list[Away] = []
        for number, answer in zip(questions, came, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            if isinstance(answer, Away):
                away.append(answer)
            else:
                found[number] = answer
        if away and not found:
            raise StoreUnavailable(f"no partition answers; {away[0]}")
        if away and (idle := IDLE.get()):
            idle[0] += max(0.0, max(times.values()) - max(times[number] for number in found))
        return Answers(found, away)

    async def seek(
        self, question: Callable[[StoreClient], Awaitable[_Answer | None]]
    ) -> dict[int, _Answer]:
        """Ask all partitions for a thing that only some have.

        Returns:
            What those that have it say, by partition.

        Raises:
            StoreUnavailable: no partition that answers has it, and one that is away may.
        """
        answers = await self.ask_all(question)
        found = {n: each for n, each in answers.by_partition.items() if each is not None}
        if not found:
            missing(answers.away)
        return found

    async def act_on_each(
        self,
        meant: Iterable[_Meant],
        act: Callable[[_Meant], Awaitable[str | None]],
        *,
        fails_alone: bool = False,
    ) -> AsyncIterator[tuple[_Meant, str | GroupflowError | None]]:
        """Act on each task, and yield it with what kept it as it was: that keeps no other.

        Args:
            meant: the tasks, in any form.
            act: returns why a task stays as it is; ``None`` where it was done.
            fails_alone: whether an id is raised that is ambiguous, where it is the only one.

        Raises:
            AmbiguousId: likewise.
            StoreUnavailable: the only partition is away.
        """
        of_each = dict.fromkeys(meant)
        for each in of_each:
            kept: str | GroupflowError | None
            try:
                kept = await act(each)
            except _KEEP_ONE as error:
                keeps_all = fails_alone and isinstance(error, AmbiguousId) and len(of_each) == 1
                if keeps_all or (isinstance(error, StoreUnavailable) and len(self) == 1):
                    raise
                kept = error
            yield each, kept

    async def _ask(
        self,
        number: int,
        question: Callable[[StoreClient], Awaitable[_Answer]],
        timeout: float | None,
    ) -> _Answer | Away:
        """A partition's answer, or that it is away; an only partition raises its error."""
        if self.closed:
            raise StoreUnavailable(self.closed)
        client, waits = self.clients[number], timeout
        try:
            async with asyncio.timeout(timeout):
                if number in self._away:  # is it back? The question itself may take longer
                    waits = min(timeout or RECALL, RECALL)
                    async with asyncio.timeout(waits):
                        await client.run(OperatorVerb.NUMBER)
                    waits = timeout
                answer = await question(client)
        except (StoreUnavailable, ServerUnreachable, TimeoutError) as error:
            if len(self.clients) == 1:
                raise
            self._away[number] = away = Away(number, str(error) or f"no answer in {waits} s")
            return away
        self._away.pop(number, None)
        return answer


async def check_number(settings: Settings, partitions: Partitions) -> None:
    """Check that a namespace has the configured number of partitions and our format, if it has any.

    What is common to all partitions lies on one node; if that is away, the number stays unchecked.

    Raises:
        OtherLayout: it has another of these, or is being moved.
        StoreUnavailable: the only partition does not answer.
    """
    name, count = settings.redis.namespace, len(partitions)
    try:
        async with Namespace(partitions).common() as client:
            noted = await client.run(OperatorVerb.NUMBER)
    except StoreUnavailable:
        if count == 1:
            raise
    else:
        if noted[0]:
            compare(name, count, *noted)


def summed(parts: Iterable[_Part], *largest: str) -> _Part:
    """The partitions' parts of one thing as a whole: of their integers the sums.

    Of times, and of the numbers named `largest`, it has the largest; all else is of the first.
    """
    first, *others = parts
    whole: dict[str, Any] = {}
    for name, kind in ((each.name, each.type) for each in fields(first)):
        if kind in {"int", "float"} and others:
            one_of = max if kind == "float" or name in largest else sum
            whole[name] = one_of([getattr(part, name) for part in (first, *others)])
    return replace(first, **whole)


def by_name(parts: Iterable[_Part], name: str = "name") -> dict[str, list[_Part]]:
    """The parts of each thing, sorted by its name, which that attribute has."""
    found: dict[str, list[_Part]] = defaultdict(list)
    for part in parts:
        found[getattr(part, name)].append(part)
    return dict(sorted(found.items()))


def missing(away: Sequence[Away]) -> None:
    """Raise an error if a question to all partitions lacks answers.

    Raises:
        StoreUnavailable: some are away.
    """
    if away:
        raise StoreUnavailable("; ".join(map(str, away)))
