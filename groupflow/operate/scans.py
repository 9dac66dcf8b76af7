"""Scans as operators see them: the state of each shard, and what a scan has done and left."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, TypeVar

import orjson

from groupflow.operate.groups import Groups, Why
from groupflow.operate.namespace import Answers, Namespace, missing
from groupflow.operate.reasons import duration
from groupflow.operate.scripts import OperatorVerb, named
from groupflow.store.client import StoreClient
from groupflow.store.scans import Record, ScanRecords, group_of, hasten

_Answer = TypeVar("_Answer")
_INDEX = re.compile("[0-9]{1,9}")  # of a shard; any group may end in what else counts as a digit


@dataclass(frozen=True, slots=True)
class ShardRow:
    """A shard of a scan in a list; times in Unix seconds."""

    index: int
    group: str  # the group that it is
    place: str  # running, asleep, waiting (for a worker), dead, or gone
    held: str | None  # paused or parked, if its group is
    daemon: str | None  # the one that runs it
    until: float | None  # when its sleep ends
    last_pass: float | None  # when it last had nothing more to do
    trouble: str  # why it can't fetch
    rows_done: int  # in this generation
    rows_deferred: int  # that failed, and are to be tried again
    rows_dead: int  # that are dead letters, as far as pages skip them


@dataclass(frozen=True, slots=True)
class ShardStory(ShardRow):
    """The same at this instant, with the rows."""

    now: float
    deferred: frozenset[str]  # keys of rows
    dead: frozenset[str]  # ids of dead letters

    @property
    def row(self) -> ShardRow:
        """The public shape."""
        return ShardRow(**{each.name: getattr(self, each.name) for each in fields(ShardRow)})

    def words(self, *, with_words: bool = True) -> str:
        """Its state in words; without `with_words`, not the error of its database."""
        trouble = f" ({self.trouble})" if with_words else ""
        match self.place:
            case "asleep" if self.trouble:
                what = f"can't fetch{trouble}, and tries again in {duration(self._left)}"
            case "asleep":
                what = f"asleep for another {duration(self._left)}: it found nothing to do"
            case "running":
                what = f"at work on {self.daemon}"
            case "waiting":
                what = "waits for a worker"
            case "dead":
                what = "a dead letter: redrive it"
            case _:
                what = "not there: a daemon that has the scan makes it"
        if self.held:
            what += f"; its group is {self.held}"
        rows = f"{self.rows_done} done, {self.rows_deferred} deferred, {self.rows_dead} dead"
        return f"{what}; rows: {rows}"

    def on(self, why: Why, *, with_words: bool = True) -> Why:
        """What to say of its group: a shard that sleeps is not in its lane."""
        words = self.words(with_words=with_words)
        reason = f"{why.reason}; {words}" if why.state != "idle" else words
        if why.state == "idle" and self.place == "asleep":
            return replace(why, state="delayed", queued=1, until=self.until, reason=reason)
        return replace(why, reason=reason)

    @property
    def _left(self) -> float:
        return max(0.0, (self.until or self.now) - self.now)


@dataclass(frozen=True, slots=True)
class ScanStory:
    """A scan at this instant."""

    name: str
    shards: int
    running: int  # shards that are at work or wait for a worker
    idle: int  # shards that sleep
    rows_done: int
    rows_deferred: int  # that failed, and are to be tried again
    rows_dead: int  # that are dead letters, and skipped
    last_pass: float | None
    """Unix seconds: when all shards last had nothing more to do; ``None`` if one never had."""
    stopped: int = 0  # shards that are paused, parked, dead or gone
    changing_to: int | None = None  # how many shards it is to have, if that is another number
    trouble: str = ""  # why a shard can't fetch


@dataclass(frozen=True, slots=True)
class ScanPage:
    """A scan and its shards."""

    scan: ScanStory
    shards: list[ShardRow]


async def look_at_shards(
    client: StoreClient, record: Record, indexes: Sequence[int]
) -> list[ShardStory]:
    """The state of some shards that lie in one partition."""
    groups = [group_of(record.name, index) for index in indexes]
    names = [(record.id_of(index), group) for index, group in zip(indexes, groups, strict=True)]
    rows = await client.run_all([(OperatorVerb.FIND, each) for each in names])
    return [_story(*each) for each in zip(indexes, groups, rows, strict=True)]


def _story(index: int, group: str, row: Sequence[Any]) -> ShardStory:
    facts = named(row, "now", "aside")
    context = orjson.loads(facts.get("context", "null")) or {}
    place = "asleep" if "aside" in facts else "waiting"
    if "type" not in facts:
        place = "gone"
    elif "died" in facts:
        place = "dead"
    elif "daemon" in facts:
        place = "running"
    deferred = frozenset(context.get("deferred", ()))
    dead = frozenset(context.get("dead", {}).values())
    return ShardStory(
        index,
        group,
        place,
        held=facts.get("held"),
        daemon=facts.get("daemon"),
        until=facts["aside"] if place == "asleep" else None,
        last_pass=context.get("last_pass"),
        trouble=context.get("trouble", ""),
        rows_done=context.get("done", 0),
        rows_deferred=len(deferred),
        rows_dead=len(dead),
        now=facts["now"],
        deferred=deferred,
        dead=dead,
    )


def story_of(record: Record, shards: Sequence[ShardStory]) -> ScanStory:
    """A scan's story, from those of its shards."""
    moving = [each for each in shards if not each.held and each.place not in ("dead", "gone")]
    passes = [each.last_pass for each in shards if each.last_pass is not None]
    return ScanStory(
        name=record.name,
        shards=record.count,
        running=sum(each.place in ("running", "waiting") for each in moving),
        idle=sum(each.place == "asleep" for each in moving),
        rows_done=record.done + sum(each.rows_done for each in shards),
        # Each new shard knows the rows of all old ones.
        rows_deferred=len(set().union(*(each.deferred for each in shards))),
        rows_dead=len(set().union(*(each.dead for each in shards))),
        last_pass=min(passes) if passes and len(passes) == record.count else None,
        stopped=len(shards) - len(moving),
        changing_to=record.wanted if record.closing else None,
        trouble=next((each.trouble for each in shards if each.trouble), ""),
    )


async def explain(
    namespace: Namespace,
    group: str,
    *,
    max_queued: Mapping[str, int] | None = None,
    with_words: bool = True,
) -> Why:
    """The state that a group is in, and why; of a shard also what its scan does.

    Without words the reason has only the kinds of errors. `max_queued` is as of `Groups.why`.

    Raises:
        StoreUnavailable: its partition is away.
    """
    groups = Groups(namespace)
    why = await groups.why(group, max_queued=max_queued, with_words=with_words)
    shard = await Scans(namespace).shard(group)
    return why if shard is None else shard.on(why, with_words=with_words)


class Scans:
    """The scans of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def every(self) -> list[ScanStory]:
        """All scans, by name."""
        async with self._namespace.common() as client:
            records = ScanRecords(client)
            found = [await records.look(name) for name in await records.names()]
        return [story_of(each, await self._shards(each)) for each in found if each is not None]

    async def shard(self, group: str) -> ShardStory | None:
        """The shard that a group is, or ``None`` if it is none."""
        front, _, index = group.rpartition(":")
        name = front.partition(":")[2]
        if not _INDEX.fullmatch(index) or group_of(name, int(index)) != group:
            return None
        try:
            record = await self._record(name)
        except KeyError:
            return None
        if int(index) >= record.count:
            return None
        place = self._namespace.place_of(group)
        question = partial(look_at_shards, record=record, indexes=[int(index)])
        return (await self._namespace.ask(place, question))[0]

    async def wake(self, name: str) -> None:
        """End the sleep of a scan's shards.

        Raises:
            KeyError: there is no such scan.
            StoreUnavailable: a partition is away, and its shards may sleep on.
        """
        record = await self._record(name)

        async def wake(client: StoreClient, indexes: Sequence[int]) -> int:
            return await hasten(client, [record.id_of(index) for index in indexes])

        missing((await self._ask_shards(record, wake)).away)

    async def look(self, name: str) -> tuple[ScanStory, list[ShardStory]]:
        """A scan and its shards.

        Raises:
            KeyError: there is no such scan.
        """
        record = await self._record(name)
        shards = await self._shards(record)
        return story_of(record, shards), shards

    async def pause(self, name: str, by: str) -> bool:
        """Hold all shards of a scan; those that run go on to the end of their page.

        Returns:
            Whether any was not paused.

        Raises:
            KeyError: there is no such scan.
            StoreUnavailable: a partition is away; the rest is paused.
        """
        return await self._change(name, OperatorVerb.PAUSE, by, "")

    async def resume(self, name: str) -> bool:
        """Let all shards of a scan go on; raises as `pause`. Returns whether any was paused."""
        return await self._change(name, OperatorVerb.RESUME)

    async def _change(self, name: str, verb: OperatorVerb, *arguments: str) -> bool:
        record = await self._record(name)

        async def change(client: StoreClient, indexes: Sequence[int]) -> bool:
            calls = [(verb, (group_of(record.name, index), *arguments)) for index in indexes]
            return any(await client.run_all(calls))

        answers = await self._ask_shards(record, change)
        missing(answers.away)
        return any(answers.all)

    async def drop(self, name: str) -> bool:
        """Forget a scan that no daemon has any more. Returns whether there was one."""
        async with self._namespace.common() as client:
            return await ScanRecords(client).drop(name)

    async def _record(self, name: str) -> Record:
        async with self._namespace.common() as client:
            record = await ScanRecords(client).look(name)
        if record is None:
            raise KeyError(name)
        return record

    async def _shards(self, record: Record) -> list[ShardStory]:
        answers = await self._ask_shards(record, partial(look_at_shards, record=record))
        found = [each for shards in answers.all for each in shards]
        return sorted(found, key=lambda each: each.index)

    async def _ask_shards(
        self, record: Record, question: Callable[..., Awaitable[_Answer]]
    ) -> Answers[_Answer]:
        """Ask each partition where shards lie; `question` takes the client, and their indexes."""
        places: dict[int, list[int]] = defaultdict(list)
        for index in record.shards:
            places[self._namespace.place_of(group_of(record.name, index))].append(index)
        return await self._namespace.ask_each(
            {place: partial(question, indexes=indexes) for place, indexes in places.items()}
        )
