"""What people do in stories: to dead letters, and to tasks that wait or run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from groupflow.operate.busy import read_busy
from groupflow.operate.cancelling import Several, count_all, every_step
from groupflow.operate.dead import DeadLetters
from groupflow.operate.ended import ended_lately
from groupflow.operate.groups import Groups
from groupflow.operate.redrive import note_of
from groupflow.operate.tasks import Tasks
from groupflow.operate.tenants import Tenants
from tests.deadlines import deadline
from tests.store import task_state
from tests.store.actors import Actors


class People(Actors):
    """Those who look after a store."""

    async def redrive(self, *named: str) -> None:
        """Dead letters are tasks again."""
        await task_state.redrive(self.shop, *named)

    async def correct(self, *named: str) -> None:
        """The same, with another body; made again, that changes nothing."""
        letters = DeadLetters(self.shop.namespace)
        for id_ in named:
            dead, (old, _) = await task_state.letter(self.shop, id_), await letters.envelope(id_)
            new, note = replace(old, body=old.body + b" "), note_of(old.body, "ops")
            assert await letters.redrive(dead, new, note=note)
            before = self.shop.dump()
            assert not await letters.redrive(dead, new, note=note)
            assert self.shop.dump() == before

    async def drop(self, id_: str, left: str = "None") -> None:
        """A dead letter or a waiting task is dropped; or left alone, being so."""
        letters = DeadLetters(self.shop.namespace)
        if letter := await letters.find(id_):
            assert await letters.drop(letter)
        else:
            assert str(await Tasks(self.shop.namespace).drop(id_)) == left

    async def cancel(self, id_: str, verdict: str = "cancelled") -> None:
        """A task is cancelled, or what else becomes of it."""
        assert await Tasks(self.shop.namespace).cancel(id_, "ops", "mistake") == verdict

    async def cancel_all(self, kind: str, name: str, waiting: str, *running: str) -> None:
        """A group or a type is cancelled: so many wait, and these run; no more in a second time."""
        meant = Several(group=name) if kind == "group" else Several(type=name)
        counted = await count_all(self.shop.namespace, meant)
        assert (str(counted.waiting), sorted(counted.running)) == (waiting, sorted(running))
        await self.cancel_once(kind, name, waiting, *running)
        await self.cancel_once(kind, name, "0")

    async def cancel_once(self, kind: str, name: str, waiting: str, *running: str) -> None:
        """A group or a type is cancelled: so many waited, and these run."""
        meant = Several(group=name) if kind == "group" else Several(type=name)
        steps = [each async for each in every_step(self.shop.namespace, meant, "ops")]
        assert str(sum(each.waiting for each in steps)) == waiting
        assert sorted(id_ for each in steps for id_ in each.running) == sorted(running)

    async def counted(self, *facts: str) -> None:
        """How many tasks of tenants there are; ``1=3+1``: of 1 three tasks wait, one runs."""
        tenants = Tenants(self.shop.namespace)
        page = await tenants.page(await tenants.count())
        told = [f"{row.name}={row.waiting}+{row.running}" for row in page.tenants]
        assert (sorted(told), page.is_whole) == ([*facts], True)

    async def seen(self, id_: str, *words: str) -> None:
        """How far a task has got, as all who look are told; ``-``: nothing."""
        task = await Tasks(self.shop.namespace).find(id_)
        assert task is not None
        looks: list[Any] = [
            each for each in await read_busy(self.shop.namespace) if each.task == id_
        ]
        looks += [await Groups(self.shop.namespace).why(task.group)] if task.group else []
        told = [look.progress for look in (task, *looks)]
        assert [each.words().partition(" (")[0] if each else "-" for each in told] == [
            " ".join(words)
        ] * len(told)
        assert all(3 <= each.age < deadline() for each in told if each)

    async def lately(self, group: str, *words: str) -> None:
        """How the last tasks of a group ended, the newest first: ``a1/cancelled``."""
        found = await ended_lately(self.shop.namespace, group)
        assert [f"{each.id}/{each.state}" for each in found] == [*words]

    async def run_now(self, id_: str, left: str = "None") -> None:
        """A waiting task needs to wait no more; or is left alone, being so."""
        assert str(await Tasks(self.shop.namespace).run_now(id_)) == left
