"""A namespace gets another number of partitions: between two fleets, in the middle of a run."""

from __future__ import annotations

import asyncio

from groupflow.core.errors import GroupflowError
from groupflow.operate.moving import DaemonsRun
from groupflow.operate.repartition import repartitioned
from groupflow.store.partitions import keys_of
from tests.simulation.acts import Move
from tests.simulation.clock import pass_virtual
from tests.simulation.configured import NAMESPACE
from tests.simulation.fleet import Fleet
from tests.simulation.operators import Operators
from tests.simulation.processes import context_of
from tests.simulation.pullers import Pullers

AGAIN = 0.3  # seconds until it is given again
MOST = 200  # times


class Moves:
    """Those of one run."""

    def __init__(self, fleet: Fleet, operators: Operators, pullers: Pullers) -> None:
        self._fleet = fleet
        self._operators = operators
        self._pullers = pullers

    async def run(self) -> None:
        """All moves, one behind the other."""
        for move in self._fleet.plan.moves:
            await pass_virtual(move.wait)
            await self._move(move)

    async def _move(self, move: Move) -> None:
        fleet = self._fleet
        while fleet.is_lossy or fleet.former:
            await pass_virtual(AGAIN)
        fleet.tell(f"the namespace is to have {move.partitions} partitions")
        self._operators.end()
        began = fleet.begin_trouble()
        fleet.is_moving = True  # from here on no daemon starts
        old = fleet.partitions
        fleet.partitions = [*dict.fromkeys([*old, *keys_of(NAMESPACE, move.partitions)])]
        await asyncio.gather(*(fleet.stop(member) for member in fleet.members))
        kills = [*move.kills]
        for _ in range(MOST):
            if await self._try(move.partitions, kills.pop(0) if kills else 0):
                break
            await pass_virtual(AGAIN)
        else:
            fleet.troubles.append("the namespace could not be moved")
        await pass_virtual(move.rest)
        fleet.settle(move.partitions)
        fleet.tell("the next fleet begins")
        for page in self._pullers.pages:
            await page.kill(1)
        fleet.end_trouble(began)

    async def _try(self, count: int, steps: int) -> bool:
        """Give `groupflow repartition` once; its process dies after so many callbacks, unless 0."""
        process = self._fleet.make_process("repartition")
        process.fuse = steps
        work = repartitioned(self._fleet.settings, count)
        moving = self._fleet.loop.create_task(work, context=context_of(process.main))
        while not moving.done() and not process.is_dead:
            await asyncio.wait([moving], timeout=AGAIN)
        if not moving.done():
            return False
        try:
            self._fleet.tell(f"moved: {moving.result()}")
            self._fleet.moves += 1
        except DaemonsRun:
            return False
        except GroupflowError as error:
            self._fleet.tell(f"not moved: {error}")
            return False
        return True
