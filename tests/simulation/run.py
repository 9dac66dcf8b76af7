"""One run: a fleet lives through its plan, drains, stops, and is judged."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import random
import traceback
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import BinaryIO, NoReturn

import structlog

from tests.history.invariants import Violation
from tests.simulation import clock
from tests.simulation.audits import Audits, Bounds, Unsound
from tests.simulation.clock import pass_virtual
from tests.simulation.configured import patched
from tests.simulation.faults import Faults
from tests.simulation.fleet import Fleet
from tests.simulation.judging import judge, left_by
from tests.simulation.loop import Stuck
from tests.simulation.moves import Moves
from tests.simulation.operators import Operators
from tests.simulation.plan import Plan
from tests.simulation.pullers import Pullers
from tests.simulation.redis_side import RealRedis
from tests.simulation.rows import Rows
from tests.simulation.timers import Timers
from tests.simulation.watch import Death

WITHIN = 60.0  # virtual seconds, after the last fault, in which all tasks have to end


@dataclass(slots=True)
class Outcome:
    """What a run has shown.

    Attributes:
        plan: what it was.
        violations: every broken promise.
        digest: of all that happened: two runs of a plan have the same.
        story: what happened, line by line.
        died_at: where the next steps of processes would have been, when they died.
        deaths: where all tasks of these were, and what went on.
        figures: what was counted.
        seconds: virtual, that it took.
    """

    plan: Plan
    violations: list[Violation] = field(default_factory=list)
    digest: str = ""
    story: list[str] = field(default_factory=list)
    died_at: list[str] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def run(plan: Plan, real: RealRedis) -> Outcome:
    """Let a plan happen, in a process of its own: what the dead leave in memory ends with that."""
    for partitions in (plan.partitions, *(move.partitions for move in plan.moves)):
        tells = "events" in plan.features
        real.know_all(plan.order, partitions, tells=tells)  # and the runs that follow, too
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            _run_and_end(plan, real, pipe)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        code = os.waitstatus_to_exitcode(status)
        text = f"the process of this run ended with {code}: {said.decode(errors='replace')}"
        return Outcome(plan, [Violation("L2", text)])
    outcome: Outcome
    outcome, real.loaded = pickle.loads(said)
    return outcome


def _run_and_end(plan: Plan, real: RealRedis, pipe: BinaryIO) -> NoReturn:
    """Tell what came of a run, or how it failed, and end this process without any tidying."""
    code = 1
    try:
        pipe.write(pickle.dumps((_run(plan, real), real.loaded)))
        code = 0
    except BaseException:
        pipe.write(traceback.format_exc().encode())
    finally:
        pipe.flush()
        os._exit(code)


def _run(plan: Plan, real: RealRedis) -> Outcome:
    gc.disable()  # what a dead process leaves must not be collected: Python would go on with it
    clock.set_now(clock.BEGIN)
    random.seed(plan.seed)
    fleet = Fleet(plan, real)
    outcome = Outcome(plan)
    with ExitStack() as stack:
        for each in patched(fleet):
            stack.enter_context(each)
        structlog.configure(
            processors=[fleet.logged],
            wrapper_class=structlog.make_filtering_bound_logger(30),
            cache_logger_on_first_use=False,
        )
        try:
            bounds = Bounds(fleet, real)
            fleet.loop.run(_live(fleet, outcome))
            outcome.figures["refused"] = bounds.refused
        except Stuck as stuck:
            outcome.violations.append(Violation("L2", str(stuck)))
        except Unsound as unsound:
            outcome.violations += unsound.violations
    outcome.digest = fleet.digest
    outcome.story = fleet.story
    outcome.died_at = [process.died_at for process in fleet.processes if process.is_dead]
    outcome.deaths = fleet.watch.deaths
    outcome.violations += [Violation("L6", trouble) for trouble in fleet.troubles]
    outcome.seconds = clock.now() - clock.BEGIN
    outcome.figures |= {"steps": fleet.loop.steps, "calls": fleet.redis.calls}
    outcome.figures |= {"faults": len(plan.faults), "deaths": len(outcome.died_at)}
    return outcome


async def _live(fleet: Fleet, outcome: Outcome) -> None:
    audits, operators, pullers = Audits(fleet), Operators(fleet), Pullers(fleet)
    timers, rows = Timers(fleet, operators), Rows(fleet, operators)
    for member in fleet.members:
        fleet.start(member)
        await pass_virtual(fleet.network.delay())
    async with asyncio.TaskGroup() as group:
        group.create_task(fleet.publish())
        moves = Moves(fleet, operators, pullers)
        for actor in (Faults(fleet, pullers), operators, pullers, moves):
            group.create_task(actor.run())
    fleet.tell("the last fault is over, and everything is published")
    actors = (operators, pullers, timers, rows)
    tidying = [asyncio.create_task(actor.tidy()) for actor in actors]
    until = clock.now() + WITHIN

    def is_all_over() -> bool:
        return timers.is_over and rows.is_over and operators.is_tidy and fleet.is_drained

    while not (is_over := is_all_over()) and clock.now() < until:
        await pass_virtual(0.25)
        for each in tidying:
            if each.done():
                each.result()
    if not is_over:
        found = {name: n for name, n in fleet.counts().items() if n}
        text = f"after {WITHIN:g} s not everything has ended: {found}, {fleet.rabbitmq.left} queued"
        outcome.violations.append(Violation("L2", text))
    operators.end()
    for each in tidying:
        each.cancel()
    await pullers.leave()
    await asyncio.gather(*(fleet.stop(member) for member in fleet.members))
    outcome.figures |= {"audits": audits.done, "pulled": pullers.accepted, "stale": pullers.stale}
    outcome.violations += fleet.watch.violations + pullers.violations + timers.violations
    outcome.violations += left_by(fleet)
    if outcome.violations:
        return
    verdict = judge(fleet, operators.known)
    outcome.violations += [*verdict.violations, *timers.check(), *rows.check()]
    outcome.figures |= {"rows": len(rows.done)}
    outcome.figures |= verdict.figures
