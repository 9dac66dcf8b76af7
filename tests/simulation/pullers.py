"""Workers that pull: they claim, settle late and twice, fall silent, die, and come back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import orjson

from tests.history.events import Event, Kind
from tests.history.invariants import Violation
from tests.simulation import clock
from tests.simulation.acts import Pull, Said
from tests.simulation.clock import pass_virtual
from tests.simulation.configured import PULL_LEASE
from tests.simulation.fleet import Fleet
from tests.simulation.pages import NoAnswer, Page
from tests.simulation.processes import Process, context_of

PAGES = 2
_WORKER = "/pools/{pool}/workers/{worker}"
Key: TypeAlias = tuple[str, int]  # a task with its stage, and the fence of a claim

STEADY = 0.2  # seconds between two calls of a worker that only does its work
TRIES = 5  # of a worker that leaves
_CLAIM, _SETTLE, _LEAVE = Pull("claim"), Pull("settle"), Pull("leave")


@dataclass(slots=True)
class Having:
    """A task that a worker believes to hold.

    Attributes:
        start: what was written down when it began.
        said: how often it was said what became of it.
        is_cut: whether the worker has given it up.
        is_over: whether the store took what was said of it.
    """

    start: Event
    said: int = 0
    is_cut: bool = False
    is_over: bool = False


class Puller:
    """One worker, on a machine that its process may leave and come back to."""

    def __init__(self, fleet: Fleet, pages: Sequence[Page], name: str) -> None:
        self.name = name
        self.process: Process
        self._fleet = fleet
        self._pages = pages
        self._pid = 0
        self._held: dict[Key, Having] = {}
        self._known: dict[Key, Having] = {}
        self._heard_at = float("-inf")  # when it sent the last call that was answered
        self._life = 0  # of the server, by then
        self.violations: list[Violation] = []
        self.accepted = self.stale = 0
        self._revive()

    def _revive(self) -> None:
        self.process = self._fleet.make_process(self.name)
        self.process.pulls = True
        self._pid = self._pid or self.process.pid  # its attempts are its machine's

    async def run(self, pulls: Sequence[Pull]) -> None:
        """Do all that a plan says, each in the process that there is by then."""
        for pull in pulls:
            await pass_virtual(pull.wait)
            if pull.kind == "die":
                self._fleet.tell(f"{self.process} dies")
                self._fleet.loop.kill(self.process)
                await pass_virtual(pull.pick * 2 * PULL_LEASE)
                self._revive()
                continue
            await self._do(pull)

    async def work(self) -> None:
        """Only do what there is to do; for as long as the run drains."""
        for number in itertools.count():
            await pass_virtual(STEADY)
            await self._do(_SETTLE if number % 2 else _CLAIM)

    async def say_good_bye(self) -> None:
        """Let go of all, as nothing is left."""
        await self._do(_LEAVE)

    async def _do(self, pull: Pull) -> None:
        """One thing, in its own process, which may stand meanwhile."""
        while self._fleet.is_moving:
            await pass_virtual(STEADY)
        context = context_of(self.process.main)
        doing = self._fleet.loop.create_task(self._try(pull), context=context)
        await asyncio.wait([doing])
        doing.result()

    async def _try(self, pull: Pull) -> None:
        with suppress(NoAnswer):
            await getattr(self, f"_{pull.kind}")(pull)

    async def _settle(self, pull: Pull) -> None:
        await self._say_of(pull, [*self._held.values()][: pull.limit])

    async def _late(self, pull: Pull) -> None:
        over = [have for key, have in self._known.items() if key not in self._held]
        await self._say_of(pull, over[int(pull.pick * len(over)) :][:1])

    async def _renew(self, pull: Pull) -> None:
        answer = await self._ask(pull, f"POST {_WORKER}/renewal", {})
        self._keep({key for key in self._held if key[1] in answer.fences})
        if strange := [each for each in answer.cancelled if each.fence not in answer.fences]:
            text = f"{self.name} is to end what it does not hold: {strange}"
            self.violations.append(Violation("S3", text))
        await self._end_cancelled(pull, {(each.id, each.fence) for each in answer.cancelled})

    async def _end_cancelled(self, pull: Pull, asked: set[Key]) -> None:
        """End what runs of tasks that are to be cancelled, and begin none of them."""
        ends = [have for have in self._held.values() if have.start.claim in asked]
        await self._say_of(replace(pull, said="retry", after=None), ends)
        new = asked - {have.start.claim for have in self._known.values()}
        if new:
            told = [{"id": id_, "fence": fence, "outcome": "retry"} for id_, fence in sorted(new)]
            await self._ask(pull, f"POST {_WORKER}/settlements", told, is_heard=False)

    async def _silent(self, pull: Pull) -> None:
        await pass_virtual(PULL_LEASE * (0.3 + 2 * pull.pick))

    async def _look(self, pull: Pull) -> None:
        await self._ask(pull, f"GET {_WORKER}", {}, is_heard=False)

    async def _ask(self, pull: Pull, path: str, said: Any, *, is_heard: bool = True) -> Any:
        page = self._pages[int(pull.page * len(self._pages))]
        sent, task_state = clock.now(), self._fleet.redis.task_state
        answer = await page.ask(path, self.name, said, is_lost=pull.is_lost)
        if is_heard:
            self._heard(sent, task_state)
        return answer

    def _heard(self, sent: float, task_state: int) -> None:
        """The store answered a call that pushed its lease back: so it has a session there."""
        self.look()
        self._heard_at, self._life = sent, task_state

    def look(self) -> None:
        """What was not heard of for its lease it gave up by then."""
        ended = self._heard_at + PULL_LEASE
        if ended < clock.now():
            self._cut(self._held.values(), ended)

    def hand_over(self) -> None:
        """A server that begins again lets all that it holds go, without a crash."""
        for have in self._known.values():
            if not have.is_over:
                self._fleet.resumed.add(have.start.claim)

    async def _claim(self, pull: Pull) -> None:
        if len(self._held) > pull.limit:  # the newest go back, so it stops them first
            newest = sorted(self._held.values(), key=lambda have: have.start.at)[pull.limit :]
            self._give_back(self._held.values() if len(self._fleet.partitions) > 1 else newest)
        holding = len(self._held)
        wanted = {"limit": pull.limit, "wait": pull.wait_for, "holding": holding}
        task_state = self._fleet.redis.task_state
        answer = await self._ask(pull, f"POST {_WORKER}/claims", wanted)
        self._keep({_key_of(task) for task in answer["tasks"]})
        asked = {(each.id, each.fence) for each in answer["cancelled"]}
        for task in answer["tasks"]:
            if (task["id"], task["fence"]) not in asked or _key_of(task) in self._known:
                self._take(task)
        if task_state != self._fleet.redis.task_state:
            self.hand_over()  # some may be of the server before
        await self._end_cancelled(pull, asked)

    def _keep(self, keys: set[Key]) -> None:
        """What isn't its own any more it gives up."""
        for key, have in [*self._held.items()]:
            if key not in keys:
                self._cut([have])
                del self._held[key]

    def _take(self, task: dict[str, Any]) -> None:
        key = id_, fence = _key_of(task)
        if key not in self._known:
            body = orjson.loads(orjson.dumps(task["body"]))
            start = Event(
                *("start", id_, clock.now(), task["group"], task["tenant"], int(body["n"])),
                fence=fence,
                attempt=task["attempt"],
                crashes=task["crashes"],
                pid=self._pid,
                wall=clock.wall(),
            )
            self._known[key] = Having(start)
            self._fleet.write(start)
        self._held[key] = self._known[key]

    def _cut(self, those: Iterable[Having], at: float = 0.0) -> None:
        for have in those:
            if not have.is_cut and not have.said:
                self._write("end", have, "cut", max(at, have.start.at))
            have.is_cut = True

    def _write(self, kind: Kind, have: Having, how: str, at: float = 0.0) -> None:
        now, wall = at or clock.now(), clock.wall()
        self._fleet.write(replace(have.start, kind=kind, how=how, at=now, wall=wall))

    def _give_back(self, those: Iterable[Having]) -> None:
        """Stop some, before the store is told: they may run again for that."""
        for have in those:
            self._cut([have])
            self._fleet.resumed.add(have.start.claim)

    async def _say_of(self, pull: Pull, those: Sequence[Having]) -> None:
        """Say what became of some, once or twice."""
        self.look()
        once = {have.start.task: have for have in those}
        if not once:
            return
        settlements = []
        for id_, have in once.items():
            is_last = pull.said == "advance" and "#" in have.start.id
            outcome: Said = "done" if is_last else pull.said
            told: dict[str, Any] = {"id": id_, "fence": have.start.fence, "outcome": outcome}
            told |= {"stage": "second"} if outcome == "advance" else {}
            if pull.after is not None and outcome in ("retry", "advance"):
                told["after"] = pull.after
            settlements.append(told)
            is_well = outcome in ("done", "advance")
            if is_well and (have.is_cut or have.said):  # the word before may not have come
                self._write("settle", have, "said")
            elif not have.said and not have.is_cut:
                self._write("end", have, "done" if is_well else "failed")
        for _ in range(1 + pull.is_again):
            await self._say(pull, [*once.values()], settlements)

    async def _say(self, pull: Pull, those: Sequence[Having], settlements: list[Any]) -> None:
        sent, heard_at, task_state = clock.now(), self._heard_at, self._life
        firsts = [not have.said for have in those]
        for have in those:
            have.said += 1
        task_state_now, path = self._fleet.redis.task_state, f"POST {_WORKER}/settlements"
        rows = await self._ask(pull, path, settlements, is_heard=False)
        has_lease = (
            clock.now() - heard_at < PULL_LEASE and task_state == self._fleet.redis.task_state
        )
        if any(row.verdict == "accepted" for row in rows):  # else it may have no session any more
            self._heard(sent, task_state_now)
        for have, row, is_first in zip(those, rows, firsts, strict=True):
            was_held = self._held.pop((have.start.id, have.start.fence), None) is not None
            if row.verdict == "accepted":
                self.accepted += 1
                have.is_over = True
                if is_first and (was_held or not self._has_double(have)):
                    self._write("settle", have, "accepted", sent)
                continue
            self.stale += 1
            if was_held and has_lease and is_first and not have.is_cut:
                text = f"{self.name} settled {have.start.claim} within its lease: stale"
                self.violations.append(Violation("S3", text))

    def _has_double(self, have: Having) -> bool:
        """Whether it has had another partition's claim of that fence: a verdict may be of that."""
        own, same = have.start.id, have.start.fence
        return any(fence == same and id_ != own for id_, fence in self._known)

    async def _leave(self, pull: Pull) -> None:
        self._give_back(self._held.values())
        for _ in range(TRIES):
            try:
                await self._ask(pull, f"DELETE {_WORKER}", {}, is_heard=False)
            except NoAnswer:
                await pass_virtual(STEADY)
            else:
                self._held.clear()
                self._heard_at = float("-inf")
                return


def _key_of(task: dict[str, Any]) -> Key:
    id_ = f"{task['id']}#{task['stage']}" if task["stage"] else task["id"]
    return id_, task["fence"]


class Pullers:
    """Those of one run, and the pages that answer them."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        numbers = sorted({pull.worker for pull in fleet.plan.pulls})
        has_any = "pullers" in fleet.plan.features
        self.pages = [Page(fleet, f"page{n}") for n in range(PAGES)] if has_any else []
        self.every = [Puller(fleet, self.pages, f"p{n}") for n in numbers or range(has_any)]
        self._numbers = numbers
        fleet.redis.on_restart = self._hand_over

    def _hand_over(self) -> None:
        for puller in self.every:
            puller.hand_over()

    async def run(self) -> None:
        """All that a plan says."""
        async with asyncio.TaskGroup() as group:
            for number, puller in zip(self._numbers, self.every, strict=False):
                pulls = [pull for pull in self._fleet.plan.pulls if pull.worker == number]
                group.create_task(puller.run(pulls))

    async def tidy(self) -> None:
        """Work on what is left, for as long as the run drains."""
        async with asyncio.TaskGroup() as group:
            for puller in self.every:
                group.create_task(puller.work())

    async def leave(self) -> None:
        """Say good-bye, as the leases of those that don't are left behind."""
        for puller in self.every:
            puller.look()
        await asyncio.gather(*(puller.say_good_bye() for puller in self.every))

    @property
    def violations(self) -> list[Violation]:
        """Verdicts that they should not have got."""
        return [each for puller in self.every for each in puller.violations]

    @property
    def accepted(self) -> int:
        """How often the store took what they said of a task."""
        return sum(puller.accepted for puller in self.every)

    @property
    def stale(self) -> int:
        """How often it did not."""
        return sum(puller.stale for puller in self.every)
