"""Operators: what people do by the command line, again where no answer comes, or they die."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from groupflow.core import errors
from groupflow.core.limits import HandLimit, Limited
from groupflow.operate.cancelling import Several, every_step
from groupflow.operate.dead import DeadLetter, DeadLetters
from groupflow.operate.groups import ALL, Groups
from groupflow.operate.limits import LimitsByHand
from groupflow.operate.namespace import Namespace, check_number
from groupflow.operate.redrive import NewBody, Redriver
from groupflow.operate.tasks import Choice, Tasks
from groupflow.store.keys import split_entry
from groupflow.store.partitions import open_partitions
from tests.history.events import Event
from tests.history.stored import Stored
from tests.simulation import clock
from tests.simulation.acts import Act
from tests.simulation.clock import pass_virtual
from tests.simulation.fleet import Fleet
from tests.simulation.processes import context_of

BY = "somebody"
HAND = 30.0  # seconds for which a limit by hand holds, unless an operator ends it
AGAIN = 0.4  # seconds until a call without an answer is made again
ASKS_FOR = 20.0  # seconds for which an operator asks again
CORRECTED = 0.3  # of redrives of one letter: those that bring another body
SHARDS = "scan:"  # how ids of shards begin: one that is dropped is not made again for an hour
RUNNING = 0.7  # of cancels: those of a task that runs
BY_TYPE = 0.5  # of cancels of many tasks: those by their type
CANCELLED = ("flaky", "slow", "deliver")
SETTLED = 0.1  # seconds after which what was given up has arrived, or never does
UNANSWERED = (errors.StoreUnavailable, errors.ServerUnreachable, errors.OtherLayout, TimeoutError)
KINDS: dict[str, Limited] = {"g": "group", "t": "tenant", "y": "type"}  # as the store notes them
HOLDS = ("paused_all", "paused", "by_hand", "parked")  # keys that say who holds what

Ask = Callable[[Namespace], Awaitable[object]]


@dataclass(slots=True)
class Hold:
    """A time in which nothing of a group, or of anything, may be started.

    Attributes:
        group: which; empty for all.
        fences: of each partition, the highest that was given out before.
        since: monotonic seconds.
        until: monotonic seconds.
    """

    group: str
    fences: list[int]
    since: float
    until: float = float("inf")


@dataclass(slots=True)
class Known:
    """What operators know to hold, for the judge.

    Attributes:
        holds: pauses that were answered, and over.
        dropped: tasks whose drop, or end by a cancel, was answered: when, and how often servers
            had lost writes by then.
        hurried: tasks that an operator let run before their time.
    """

    holds: list[Hold] = field(default_factory=list)
    dropped: dict[str, tuple[float, int]] = field(default_factory=dict)
    hurried: set[str] = field(default_factory=set)


class Operators:
    """Those of one run."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._raw: Any = fleet.raw
        self.known = Known()
        self._open: dict[str, tuple[Hold, int]] = {}
        self._acts: Counter[str] = Counter()  # on a group's pauses, that have begun
        self._ended: Counter[str] = Counter()

    async def run(self) -> None:
        """All acts, each at its time, until each is over."""
        async with asyncio.TaskGroup() as group:
            for act in self._fleet.plan.acts:
                group.create_task(self._act(act))

    async def _act(self, act: Act) -> None:
        await pass_virtual(act.at)
        self._fleet.tell(f"operator: {act}")
        await getattr(self, f"_{act.kind}")(act)

    async def tidy(self) -> None:
        """Let all go on that operators hold; for as long as the run drains."""
        while True:
            await self._tidy_once()
            await pass_virtual(0.5)

    async def _tidy_once(self) -> None:
        for keys in self._fleet.partitions:
            if self._raw.exists(keys("paused_all")):
                await self._let_go(ALL)
            kinds = (("paused", self._let_go), ("by_hand", self._unlimit), ("parked", self._unpark))
            for kind, end in kinds:
                for name in sorted(self._raw.hkeys(keys(kind))):
                    await end(name.decode())
        for id_ in self._refused() + self._half_moved():
            await self._redrive_one(id_)

    def _half_moved(self) -> list[str]:
        """The dead letters that lie in two partitions: a server forgot how their move ended."""
        notes = (note for keys in self._fleet.partitions for note in self._raw.hkeys(keys("moved")))
        ids = sorted({note.partition(b" ")[2].decode() for note in notes})
        dead = [keys("dead") for keys in self._fleet.partitions]
        return [
            id_ for id_ in ids if sum(self._raw.zscore(key, id_) is not None for key in dead) > 1
        ]

    def _refused(self) -> list[str]:
        """The dead letters that full groups refused; each comes back once there is room."""
        return [
            id_.decode()
            for keys in self._fleet.partitions
            for id_ in self._raw.zrange(keys("dead"), 0, -1)
            if self._raw.hget(keys("task_state", id_.decode()), "kind") == b"group full"
        ]

    @property
    def is_tidy(self) -> bool:
        """Whether operators hold nothing."""
        keys_of_all = [keys(kind) for keys in self._fleet.partitions for kind in HOLDS]
        return not (self._raw.exists(*keys_of_all) or self._refused() or self._half_moved())

    # How operators ask:

    async def ask(self, ask: Ask, steps: int = 0) -> object:
        """What the store answers in the end; `None` where it doesn't, or nothing was found.

        The first process dies after so many callbacks, unless that is 0.
        """
        until = clock.now() + ASKS_FOR
        while clock.now() < until:
            process = self._fleet.make_process("operator")
            process.fuse, steps = steps, 0
            work = self._ask_once(ask)
            asking = self._fleet.loop.create_task(work, context=context_of(process.main))
            while not asking.done() and not process.is_dead and clock.now() < until:
                await asyncio.wait([asking], timeout=AGAIN)
            if asking.done():
                with suppress(*UNANSWERED):
                    return asking.result()
            elif not process.is_dead:
                self._fleet.troubles.append(f"an operator got no answer in {ASKS_FOR} s: {asking}")
                self._fleet.loop.kill(process)
            await pass_virtual(AGAIN)
        return None

    async def _ask_once(self, ask: Ask) -> object:
        settings = self._fleet.settings
        partitions = open_partitions(settings)
        try:
            await check_number(settings, partitions)
            return await ask(Namespace(partitions))
        finally:
            await partitions.close()

    # Pauses:

    async def _pause(self, act: Act) -> None:
        await self._hold(act.group, act.steps, act.seconds if act.kind == "pause_for" else None)

    _pause_for = _pause

    async def _pause_all(self, act: Act) -> None:
        await self._hold(ALL, act.steps)
        await pass_virtual(act.seconds)
        await self._let_go(ALL)

    async def _resume(self, act: Act) -> None:
        await self._let_go(act.group, act.steps)

    async def _hold(self, group: str, steps: int, for_: float | None = None) -> None:
        is_alone = self._acts[group] == self._ended[group]
        number, began, lost = self._begins(group), clock.now(), self._fleet.calls_lost
        answer = await self.ask(lambda all_: Groups(all_).pause(group, BY, for_), steps)
        self._ended[group] += 1
        await pass_virtual(SETTLED)
        if answer is None or not is_alone or self._acts[group] > number:
            return
        until = began + for_ if for_ else float("inf")
        fences = [int(self._raw.get(k("fence")) or 0) for k in self._fleet.partitions]
        self._open[group] = Hold(group, fences, clock.now(), until), lost

    async def _let_go(self, group: str, steps: int = 0) -> None:
        self._begins(group)
        await self.ask(lambda all_: Groups(all_).resume(group), steps)
        self._ended[group] += 1

    def _begins(self, group: str) -> int:
        """An operator changes whether a group is paused, so what holds may end; its number."""
        self._end_hold(group)
        self._acts[group] += 1
        return self._acts[group]

    def _end_hold(self, group: str) -> None:
        hold, lost = self._open.pop(group, (None, 0))
        if hold is not None and lost == self._fleet.calls_lost:
            hold.until = min(hold.until, clock.now())
            self.known.holds.append(hold)

    def end(self) -> None:
        """Nothing more happens."""
        for group in [*self._open]:
            self._end_hold(group)

    # Limits:

    async def _limit_group(self, act: Act) -> None:
        most = act.most if act.group.startswith(("several-", "g")) else 1
        limit = HandLimit("group", act.group, most)
        await self._limit(limit, act.steps, self._fleet.watch.raised)

    async def _limit_tenant(self, act: Act) -> None:
        limit = HandLimit("tenant", str(act.tenant), act.most)
        await self._limit(limit, act.steps, self._fleet.watch.raised_tenants)

    async def _limit_type(self, act: Act) -> None:
        limit = HandLimit("type", act.group, act.most)
        await self._limit(limit, act.steps, self._fleet.watch.raised_types)

    async def _end_type(self, act: Act) -> None:
        await self._unlimit(f"y{act.group}", act.steps)

    async def _limit(self, limit: HandLimit, steps: int, raised: dict[str, int]) -> None:
        raised[limit.name] = max(limit.concurrency or 99, raised.get(limit.name, 0))
        await self.ask(lambda all_: LimitsByHand(all_).begin(limit, BY, HAND), steps)

    async def _end_limit(self, act: Act) -> None:
        await self._unlimit(f"g{act.group}" if act.pick < 0.5 else f"t{act.tenant}", act.steps)

    async def _unlimit(self, whose: str, steps: int = 0) -> None:
        kind, name = KINDS[whose[0]], whose[1:]
        await self.ask(lambda all_: LimitsByHand(all_).end(kind, name, BY), steps)

    # Tasks that wait:

    async def _drop(self, act: Act) -> None:
        if id_ := self._some("waiting", act.pick):
            await self._end(id_, "done", self._changed(Tasks.drop, id_, act.steps))

    async def _cancel(self, act: Act) -> None:
        state = "running" if act.pick < RUNNING else "waiting"
        id_ = self._some(state, act.pick % RUNNING / RUNNING) or self._some("waiting", act.pick)
        if id_:
            asked = self.ask(lambda all_: Tasks(all_).cancel(id_, BY), act.steps)
            await self._end(id_, "cancelled", asked)

    async def _end(self, id_: str, wanted: str, asked: Awaitable[object]) -> None:
        """The judge gets to know a task that is to end, and that it is answered to have ended."""
        if await asked == wanted:
            self.known.dropped[id_] = clock.now(), self._fleet.calls_lost

    async def _cancel_all(self, act: Act) -> None:
        """All of a group, or of a type that not too many have."""
        meant = Several(group=act.group)
        if act.pick < BY_TYPE:
            meant = Several(type=CANCELLED[int(act.pick / BY_TYPE * len(CANCELLED))])

        async def ask(namespace: Namespace) -> object:
            return [step async for step in every_step(namespace, meant, BY)]

        await self.ask(ask, act.steps)

    async def _run_now(self, act: Act) -> None:
        id_ = self._some("waiting", act.pick)
        if act.pick < 0.7:  # one that is delayed rather than any
            delayed = self._delayed()
            id_ = delayed[int(act.pick / 0.7 * len(delayed))] if delayed else id_
        if id_ is not None:
            self.known.hurried.add(id_)
            await self._changed(Tasks.run_now, id_, act.steps)

    async def _changed(
        self, change: Callable[[Tasks, str], Awaitable[str | None]], id_: str, steps: int
    ) -> object:
        """Whether a task that waits was changed: "done", or why not; `None` without an answer."""

        async def ask(namespace: Namespace) -> object:
            left = await change(Tasks(namespace), id_)
            return "done" if left is None else left

        return await self.ask(ask, steps)

    def _some(self, state: str, pick: float) -> str | None:
        """One of the tasks that are in a state just now."""
        states = Stored(self._fleet.raw, self._fleet.partitions).states
        ids = sorted(id_ for id_, each in states.items() if each == state)
        if state != "dead":
            ids = [id_ for id_ in ids if not id_.startswith(SHARDS)]
        return ids[int(pick * len(ids))] if ids else None

    def _delayed(self) -> list[str]:
        return sorted(
            split_entry(entry)[1]
            for keys in self._fleet.partitions
            for entry in self._raw.zrange(keys("delayed"), 0, -1)
        )

    # Dead letters:

    async def _redrive(self, act: Act) -> None:
        if id_ := self._some("dead", act.pick):
            await self._redrive_one(id_, act.steps, corrects=act.pick * 10 % 1 < CORRECTED)

    async def _redrive_one(self, id_: str, steps: int = 0, *, corrects: bool = False) -> None:
        async def ask(namespace: Namespace) -> object:
            letters = DeadLetters(namespace)
            letter = await self._letter(letters, id_)
            if letter is None:
                return False
            new = None
            if corrects:  # another body that means the same
                try:
                    envelope, _ = await letters.envelope(id_, letter.partition)
                except KeyError:  # another operator took it a moment ago
                    return False
                new = NewBody(envelope.body + b" ", BY)
            return await self._redriven(namespace, letter, new)

        await self.ask(ask, steps)

    async def _letter(self, letters: DeadLetters, id_: str) -> DeadLetter | None:
        """The dead letter of an id; of two, that which another operator's move has left behind."""
        try:
            return await letters.find(id_)
        except errors.AmbiguousId:
            spaces = list(enumerate(self._fleet.partitions))
            dead = [n for n, keys in spaces if self._raw.zscore(keys("dead"), id_) is not None]
            copies = [n for n, keys in spaces if self._raw.exists(keys("moved"))]
            partition = next((n for n in dead if n not in copies), 0)
            return await letters.find(id_, Choice(partition=partition))

    async def _redrive_all(self, act: Act) -> None:
        async def ask(namespace: Namespace) -> object:
            every = [letter async for letter in DeadLetters(namespace).each()]
            return [await self._redriven(namespace, letter) for letter in every]

        await self.ask(ask, act.steps)

    async def _redriven(
        self, namespace: Namespace, letter: DeadLetter, new: NewBody | None = None
    ) -> bool:
        """Redrive one; what may have run is written down, and what surely hasn't is not."""
        event = Event("redriven", letter.id, clock.now())
        self._fleet.write(event)
        try:
            is_done = await Redriver(self._fleet.settings, namespace).redrive(letter, new)
        except (errors.BodyUnfit, errors.GroupFull, errors.Unroutable):
            is_done = False
        if not is_done:
            self._fleet.events.remove(event)
        return is_done

    async def _drop_letter(self, act: Act) -> None:
        if id_ := self._some("dead", act.pick):
            await self._drop_one(id_, act.steps)

    async def _drop_one(self, id_: str, steps: int = 0) -> None:
        async def ask(namespace: Namespace) -> object:
            letters = DeadLetters(namespace)
            letter = await self._letter(letters, id_)
            return letter is not None and await letters.drop(letter)

        await self.ask(ask, steps)

    async def _unpark(self, group: str) -> None:
        """A group that a dead letter holds: redrive it once, then drop it."""

        async def ask(namespace: Namespace) -> object:
            return (await Groups(namespace).why(group)).behind

        behind = await self.ask(ask)
        if isinstance(behind, str):
            redriven = any(e.kind == "redriven" and e.id == behind for e in self._fleet.events)
            await (self._drop_one(behind) if redriven else self._redrive_one(behind))
