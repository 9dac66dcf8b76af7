"""How simulated daemons are configured, what they run, and what of the product a run replaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from redis.asyncio import Redis

from groupflow import App, Done, Message, Retry, Scan, Task, daemon
from groupflow.core.events import ENDS
from groupflow.settings import model
from groupflow.settings.changes import report
from groupflow.settings.ends import Events
from groupflow.settings.model import Settings, Tenants
from groupflow.settings.rules import GroupRule, PoolRule, ScheduleRule, TenantRule, TypeRule
from groupflow.store.partitions import telling_of
from groupflow.store.scripts import Order, Script, Scripts, render
from groupflow.upkeep.lease import ENDS_WITHIN, LeaseThread
from tests.history import handlers
from tests.history.configuration import BATCH, MAX_ATTEMPTS, MAX_BLOCK, QUIET, RUN, SEVERAL
from tests.history.events import Event
from tests.history.handlers import Write, noted
from tests.simulation import jobs
from tests.simulation.clock import pass_virtual
from tests.simulation.processes import ThreadLoop, own_process

if TYPE_CHECKING:
    from tests.simulation.acts import Timer
    from tests.simulation.fleet import Fleet
    from tests.simulation.plan import Plan

NAMESPACE = "sim"
QUEUE = "sim.jobs"
PULL_LEASE = 1.5  # seconds
TICKS = 1000  # the number of a task that the first schedule makes, as its body says
TICKS_TENANT = 7
QUICK, SLOW = (0.002, 0.05), (0.3, 3.0)  # seconds
DRAINED = "drained"  # the type of the tasks that tell of drained groups
EXCHANGE = "sim.events"
ASIDE = "aside-"  # how groups begin whose tasks step aside while they wait


_RABBITMQ = model.RabbitMQ(
    queue=QUEUE, prefetch=20, max_body=jobs.MAX_BODY, max_headers=jobs.MAX_HEADERS
)
_REDIS: dict[str, Any] = {"namespace": NAMESPACE, "timeout": 1.0}
_WORKERS: dict[str, Any] = {
    "max_block": MAX_BLOCK,
    "drain": 3.0,
    "max_crashes": 10,
    "unknown_for": 1.0,
}
_POOLS = {jobs.POOL: PoolRule(types=jobs.POOLED, lease=PULL_LEASE)}
_TENANTS = Tenants(
    named={
        "7": TenantRule(weight=3),
        "8": TenantRule(concurrency=jobs.MOST_OF_TENANT),
        "9": TenantRule(rate="20/s burst 5", weight=2),
    }
)


TYPES = {
    "slow": TypeRule(concurrency=2),
    "deliver": TypeRule(concurrency=1),  # of a pool, if there is one
    "st*": TypeRule(rate="10/s burst 3"),
    "s*": TypeRule(concurrency=9),
}
"""Limits of types, of which one covers the rest of another's."""


_EVENTS = Events(exchange=EXCHANGE, names=ENDS, replies=(jobs.ANSWERS,), max_memory=4096)
"""What is told, and how much may wait for that: a dozen tasks."""


@cache
def scripts_of(order: Order, partitions: int, *, tells: bool) -> Scripts:
    """The scripts of a namespace, as daemons render them."""
    own = Settings(events=_EVENTS) if tells else Settings()
    return Scripts(order, partitions=partitions, telling=telling_of(own))


@cache
def by_name(*told: Any, **facts: Any) -> Script:
    """A script that is loaded by its name: its text is long, and the server knows it."""
    sha = render(*told, **facts).sha
    return Script(sha, sha)


@cache
def settings_of(plan: Plan, grouped: int, partitions: int) -> Settings:
    """The configuration of all daemons."""
    entity = "{entity}:{tenant_id}"

    on_drained = DRAINED if "drains" in plan.features else ""

    def rule(name: str, **options: Any) -> GroupRule:
        options["on_drained"] = on_drained
        app = "sim" if name == "entities" else f"sim-{name}"
        return GroupRule(name=name, app=app, key=entity, shares=True, **options)

    # Where no rule has a limit, scripts go other ways: so only those that a run needs are there.
    used = {job.rule for job in plan.jobs}
    aside = dict.fromkeys(("on_retry", "on_delay", "stage_order"), "step-aside")
    others = (
        rule("runs", run=RUN),
        rule("several", concurrency=SEVERAL, rate="50/s burst 20"),
        rule("batches", batch=BATCH, batch_wait=0.2),
        rule("bursts", debounce=QUIET),
        rule("newest", newest="running", newest_max=jobs.NEWEST_MAX),
        rule("aside", **aside),
        rule("parks", on_dead="park"),
        rule("full", max_queued=jobs.MOST_QUEUED),
        rule("paced", rate="10/s burst 3"),
    )
    return Settings(
        rabbitmq=_RABBITMQ,
        redis=model.Redis(**_REDIS, partitions=partitions, replicas=plan.replicas),
        workers=model.Workers(
            **_WORKERS, plain=plan.plain, grouped=grouped, lease=plan.lease, order=plan.order
        ),
        retry=model.RetryDefaults(max_attempts=MAX_ATTEMPTS, interval=-0.05),
        http=model.Http(listen=""),
        events=_EVENTS if "events" in plan.features else Events(),
        tenants=_TENANTS if "tenants" in plan.features else Tenants(),
        types=TYPES if "types" in plan.features else {},
        groups=(rule("entities"), *(each for each in others if each.name in used)),
        schedules=tuple(_schedule(number, timer) for number, timer in enumerate(plan.timers)),
        pools=_POOLS if "pullers" in plan.features else {},
    )


def _schedule(number: int, timer: Timer) -> ScheduleRule:
    entity = {"entity": f"g-{timer.name}"} if timer.is_grouped else {}
    return ScheduleRule(
        name=timer.name,
        every=timer.every,
        app="sim" if timer.is_grouped else "plain",
        tenant=TICKS_TENANT,
        type=timer.type,
        body={"n": TICKS + number, **entity},
        overlap=timer.overlap,
        missed=timer.missed,
    )


def app_of(
    write: Write,
    chance: Random,
    scans: Sequence[Scan] = (),
    hear: Callable[[Task], None] = lambda _: None,
    *,
    brings: bool = False,
) -> App:
    """An application whose handlers tell `write` what happens to them, and in which process.

    `hear` gets each task that tells of a drained group. It may have the handler that a deploy
    brings.
    """

    def tell(event: Event) -> None:
        write(replace(event, pid=_pid()))

    app = handlers.app_of(tell, chance, quick=QUICK, slow=SLOW)

    @app.handler("group-later")
    @app.handler("tenant-later")
    async def later(task: Task) -> Retry | None:
        with noted(tell, task):
            await pass_virtual(chance.uniform(*QUICK))
            scope: Any = task.type.removesuffix("-later")
            return Retry(after=0.3, scope=scope) if task.attempt == 1 else None

    @app.handler(DRAINED)
    async def drained(task: Task) -> None:
        hear(task)
        with noted(tell, task):
            await pass_virtual(chance.uniform(*QUICK))

    @app.handler(jobs.FOLLOWED)
    async def followed(task: Task) -> Done:
        body = task.json()
        with noted(tell, task):
            await pass_virtual(chance.uniform(*QUICK))
        follow_up = Message({"app_name": "plain", "n": 0}, type="work")
        then = [follow_up] * (1 + body["n"] % 2)
        return Done(result={"n": body["n"]}, then=then)

    if brings:

        @app.handler(jobs.BROUGHT)
        async def brought(task: Task) -> None:
            with noted(tell, task):
                await pass_virtual(chance.uniform(*QUICK))

    for scan in scans:
        app.include(scan)
    return app


class SimulatedLease(LeaseThread):
    """A lease whose thread is one of its process's, on the loop that all share."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """As the product's."""
        process = own_process()
        assert process is not None
        loop: Any = asyncio.get_running_loop()
        for each in self._leases:
            each.listener.loop = ThreadLoop(loop, process.main)  # type: ignore[assignment]
        self.watch.begin()
        lease: Any = ThreadLoop(loop, process.lease)
        self._loop = lease
        began: Future[Any] = Future()
        living = lease.create_task(self._stay(began))
        await asyncio.wrap_future(began)
        try:
            yield
        finally:
            lease.call_soon_threadsafe(self._leaving.set)
            await asyncio.wait([living], timeout=ENDS_WITHIN)


def _pid() -> int:
    process = own_process()
    return process.pid if process is not None else 0


_reports: dict[int, tuple[Settings, dict[str, Any]]] = {}


def _report_once(settings: Settings) -> dict[str, Any]:
    """What daemons tell of a configuration, which many have."""
    if id(settings) not in _reports:
        _reports[id(settings)] = settings, report(settings)
    return _reports[id(settings)][1]


def patched(fleet: Fleet) -> list[Any]:
    """What of the product is replaced for a run: RabbitMQ's connections, and the lease's thread."""
    connect: Callable[..., Any] = fleet.rabbitmq.connect
    return [
        patch("groupflow.store.scripts.render", by_name),
        patch("groupflow.store.node.Redis", cache(Redis)),  # one for all calls on a pool
        patch("redis.asyncio.client.CaseInsensitiveDict", dict),  # all commands are in capitals
        patch("groupflow.flow.intake.connect", connect),
        patch("groupflow.flow.intakes.connect", connect),
        patch("groupflow.broker.events.connect", connect),
        patch.object(daemon, "LeaseThread", SimulatedLease),
        patch("groupflow.daemon.configure_logging"),
        patch("groupflow.daemon.report", _report_once),
        patch("groupflow.broker.connection._hear_out"),  # there is no reader behind a channel
        patch("groupflow.building.os", SimpleNamespace(getpid=_pid)),
        # One for all: so a process that comes takes the place of the one that has its name.
        patch("groupflow.building.this_process", return_value="simulated"),
        patch("groupflow.upkeep.elder.this_process", return_value="simulated"),
        patch("groupflow.building.socket", SimpleNamespace(gethostname=lambda: "simulated")),
    ]
