"""The composition root: which parts a daemon has, and in which order they live and end.

Everything runs in one task group. A part that should run for ever and ends by itself ends the
daemon with its error, so that a supervisor can restart it; trouble with a server never does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Literal

import structlog

from groupflow.building import (
    Builder,
    Handlers,
    Partition,
    RedisConnections,
    events_of,
    measures_of,
    process_facts,
    sizes_of,
)
from groupflow.core.app import App
from groupflow.core.backoff import Backoff
from groupflow.core.checkup import Check
from groupflow.core.errors import ConfigError, GroupflowError, StoreUnavailable
from groupflow.core.measures import Vitals
from groupflow.doctor.examination import check_at_start
from groupflow.flow.admission import Admission
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.parts import last_word, run_for_ever, run_part, wait_for
from groupflow.flow.reload import Reloader, Swap
from groupflow.flow.wake import Heard, listen
from groupflow.flow.workforce import Workforce
from groupflow.operate.namespace import Namespace
from groupflow.ops.health import DaemonHealth, Responder
from groupflow.ops.logs import configure_logging
from groupflow.ops.metrics import LoopLag, Metrics
from groupflow.ops.page.facts import Facts
from groupflow.ops.page.process import PageProcess
from groupflow.ops.supervisor import Supervisor
from groupflow.ops.tracing import open_push, open_tracing
from groupflow.scans.shards import AGAIN_SOON
from groupflow.schedule.definitions import definitions_of
from groupflow.settings.changes import report
from groupflow.settings.model import Settings
from groupflow.store.limits import pack
from groupflow.store.partitions import keys_of
from groupflow.store.scripts import Verb
from groupflow.upkeep.block import BlockWatch
from groupflow.upkeep.duty import Duty
from groupflow.upkeep.lease import LeaseThread

log = structlog.get_logger("groupflow.daemon")

INTAKE_END = 5.0  # seconds for the batch in hand


class Daemon:
    """One process of groupflow."""

    def __init__(
        self,
        settings: Settings,
        app: App,
        name: str,
        only: Literal["intake", "workers"] | None = None,
        load: Callable[[], Settings] | None = None,
    ) -> None:
        """Builds all parts, or those of one half `only`; connects nothing yet.

        One process at a time may have the name. A reload loads the configuration with `load`.

        Raises:
            ConfigError: the settings ask for what isn't there.
        """
        self.name = name
        self._settings = settings
        self._app = app
        self._stopping = asyncio.Event()
        self._started = asyncio.Event()
        self._supervisor = Supervisor.from_environment()
        self._reloader = Reloader(settings, load, self)
        self._lag = lag = LoopLag()
        self._handlers = Handlers(app, name)
        rules = self._handlers.rules(settings)
        sizes = {} if only == "intake" else sizes_of(settings)
        measures = measures_of(app, settings, sizes)
        measures.scripts.expect(Verb.REGISTER, Verb.RENEW)
        self._redis = redis = RedisConnections(settings, measures.scripts)
        lease = settings.workers.lease
        watch = BlockWatch(
            lambda: lag.turned,
            lambda attempt: self._workforce.names_of(attempt),  # noqa: PLW0108  made below
            lease=lease,
            max_block=settings.workers.longest_block,
            measures=measures.upkeep,
        )
        build = Builder(
            settings,
            name,
            redis,
            measures,
            {pool: Dispatcher(measures.pools[pool]) for pool in sizes},
            watch,
            workers=lambda: self._workforce.workers,
            info=self._info,
            limits=self._limits,
            types=self._types,
            shortest_lease=lambda: self._settings.shortest_lease,
            retell=self._reloader.retell,
            tracing=open_tracing(settings),
            events=events_of(settings, f"groupflow {name} events"),
        )
        self._events = build.events
        keys = keys_of(settings.redis.namespace, settings.redis.partitions)
        self._partitions = partitions = [Partition(build, n, each) for n, each in enumerate(keys)]
        self._leases = LeaseThread(watch, [each.lease for each in partitions])
        self._workforce = Workforce(
            {pool: build.pool(pool, size, rules, partitions) for pool, size in sizes.items()}
        )
        self._shards = self._handlers.shards = build.shards(app, partitions) if sizes else None
        self._intake = None if only == "workers" else build.intake(partitions, self._stood)
        self._tickers = build.tickers(partitions)
        self._duties = [
            {duty.name: duty for duty in build.duties(each, ticker, self._intake)}
            for each, ticker in zip(partitions, self._tickers, strict=True)
        ]
        read = Namespace([redis.open(each) for each in keys])
        self.metrics = Metrics(measures, self._vitals, read, lease=lease, lag=lag)
        self._push = open_push(self.metrics, name)
        health = DaemonHealth(self._started.is_set, self._checks, read, self.metrics.render)
        self._responder = Responder(settings.http.health, health)
        self._page = PageProcess(settings.http, health, self._facts, self._started)
        self._process = process_facts(settings, app, self._intake, sizes)

    def reload(self) -> None:
        """Take a changed configuration over soon, whole or not at all."""
        if not self.is_stopping:
            self._reloader.request()

    def stop(self) -> None:
        """Ask for an orderly end, after which `run` returns."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    @property
    def has_running_handlers(self) -> bool:
        """Whether a handler still runs that could not be stopped."""
        return any(self._workforce.busy.values())

    async def run(self) -> None:
        """Serve until `stop`. Parts start in the order below, and end in reverse.

        Raises:
            ServerUnreachable: a server refused the credentials.
            NameTaken: another process has this daemon's name, or took it over.
        """
        async with AsyncExitStack() as last, AsyncExitStack() as stack:
            last.push_async_callback(self._redis.close)
            last.push_async_callback(self._events.close)
            await last.enter_async_context(self._leases.running())
            stack.push_async_callback(self._handlers.close)
            await stack.enter_async_context(self._responder.serving())
            await stack.enter_async_context(self._page.serving())
            await stack.enter_async_context(self._app.running())
            if self._shards is not None:
                await stack.enter_async_context(self._shards.running())
            if not await self._open_sessions():
                return
            await self._check_store()
            log.info("daemon.started", daemon=self.name, **self._info())
            self._supervisor.ready()
            self._started.set()
            self._reloader.retell()
            try:
                await self._serve()
            except ExceptionGroup as group:
                raise last_word(group) from None
            if self.has_running_handlers:
                # A handler that can't be stopped runs on while the rest ends, and the application
                # may wait for it. If its task were handed over sooner, it would run a second time
                # beside it. So that comes last, and this process ends right after it.
                last.push_async_callback(self._leave)
                await last.enter_async_context(self._renewing())
            else:
                await self._leave()
        log.info("daemon.stopped", daemon=self.name)

    async def _leave(self) -> None:
        await self._leases.opened()
        leaving = (each.sessions.leave() for each in self._partitions)
        for left in await asyncio.gather(*leaving, return_exceptions=True):
            if isinstance(left, BaseException) and not isinstance(left, GroupflowError):
                raise left

    @asynccontextmanager
    async def _renewing(self) -> AsyncIterator[None]:
        """Keep the lease beyond the end of all parts, for as long as the loop turns."""
        renewing = (self._leases.carry(renewer.run()) for renewer in self._leases.renewers)
        keeping = asyncio.gather(*renewing, self._lag.run(), return_exceptions=True)
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])

    async def _open_sessions(self) -> bool:
        """Open a session a partition, as soon as Redis answers. False where a stop comes first.

        Raises:
            ConfigError: the namespace has another number of partitions.
        """
        backoff = Backoff()
        while not self._stopping.is_set():
            try:
                await self._leases.open()
            except StoreUnavailable as error:
                log.debug("session.not_opened", error=str(error))
                await asyncio.sleep(backoff.next())
            else:
                for each in self._partitions:
                    if not each.lease.renewer.is_begun:
                        each.holding.session_lost()  # no claims until it has begun
                return True
        return False

    async def _check_store(self) -> None:
        """Refuse to work on a Redis that would lose tasks; log what else operators should know.

        Raises:
            ConfigError: Redis evicts keys.
        """
        try:
            for each in self._partitions:
                if each.lease.renewer.is_open:
                    await check_at_start(each.upkeep, self._settings)
        except ConfigError:
            await self._leave()
            raise

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            services = [
                group.create_task(run_for_ever(name, run)) for name, run in self._endless().items()
            ]
            watch = self._leases.watch
            feeding = self._supervisor.run(self._seconds_stuck, lambda: watch.is_within)
            services.append(group.create_task(self._leases.carry(feeding)))
            self._workforce.start(lambda name, run: group.create_task(run_part(name, run)))
            intake = (
                group.create_task(run_part("intake", self._intake.run())) if self._intake else None
            )
            await self._stopping.wait()
            await self._stop(intake)
            for task in (*services, *self._workforce.tasks):
                task.cancel()

    async def _stop(self, intake: asyncio.Task[None] | None) -> None:
        """Take nothing more in, claim nothing more, let handlers end, hand back the rest."""
        self._supervisor.stopping()
        self._reloader.retell()
        drain = self._settings.workers.drain
        log.info("daemon.stopping", daemon=self.name, drain=drain)
        await asyncio.gather(self._end_intake(intake), self._workforce.end(drain))

    async def _end_intake(self, intake: asyncio.Task[None] | None) -> None:
        if self._intake is None or intake is None:
            return
        self._intake.stop()
        await wait_for([intake], INTAKE_END)
        intake.cancel()

    def _seconds_stuck(self) -> float:
        # While the loop stands, no exchange can take its answer.
        return max(0.0, self._workforce.seconds_in_exchange() - self._lag.worst)

    def _endless(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The parts that run until the daemon stops, by name."""
        parts: dict[str, Coroutine[Any, Any, None]] = {}
        for each, duties in zip(self._partitions, self._duties, strict=True):
            number = f" {each.number}" if len(self._partitions) > 1 else ""
            parts[f"renew{number}"] = self._leases.carry(each.lease.renewer.run())
            parts |= {f"{name}{number}": duty.run() for name, duty in duties.items()}
            parts[f"wake{number}"] = listen(each.wakes, partial(_woken, each, duties))
            for pool, exchanger in each.exchangers.items():
                parts[f"exchange {pool}{number}"] = exchanger.run()
        if self._shards is not None:
            parts["scans"] = Duty("scans", self._shards.keep, AGAIN_SOON).run()
        parts |= {"push metrics": self._push.run()} if self._push else {}
        return {**parts, "loop lag": self._lag.run(), "reload": self._reloader.run()}

    def _stood(self) -> None:
        """Intake pauses or goes on: tell others, and archive, as memory may be missing."""
        self._reloader.retell()
        for duties in self._duties:
            duties["archive"].wake()

    def _limits(self) -> bytes:
        return pack(self._settings.limits(), len(self._partitions))

    def _types(self) -> list[str]:
        """The types that it has handlers of, where it has workers; scans are known to all."""
        if not any(self._workforce.sizes.values()):
            return []
        return sorted({*self._app.types, *self._settings.handlers})

    # What it tells of itself:

    def _info(self) -> dict[str, Any]:
        """What `status` tells of it."""
        reloaded, sizes = self._reloader.last, self._workforce.sizes
        return {
            **self._process,
            **({"draining": True} if self.is_stopping else {}),
            "pools": sizes,
            "workers": sum(sizes.values()),
            "lease": self._settings.workers.lease,
            **(self._intake.told() if self._intake else {}),
            **({"reload": reloaded.as_json()} if reloaded else {}),
        }

    def _checks(self) -> list[Check]:
        """What `/readyz` tells of its own parts."""
        if self.is_stopping:
            return [Check("daemon", "fail", "stopping: it finishes what runs and takes no more")]
        leases = self._leases.checks(has_started=self._started.is_set())
        return [*leases, *([self._intake.check()] if self._intake else [])]

    def _vitals(self) -> Vitals:
        """How it is now, for metrics."""
        intake = self._intake
        return Vitals(
            workers=self._workforce.sizes,
            busy=self._workforce.busy,
            lease_left=min(renewer.left for renewer in self._leases.renewers),
            consumes=None if intake is None else intake.consumes,
            bytes_in_flight=0 if intake is None else intake.bytes_in_flight,
            active_queues=0 if intake is None else intake.active_queues,
        )

    def _facts(self) -> Facts:
        """What its page shows of it."""
        return Facts(self.name, self._settings, self._app.names)

    # What a reload does (flow.reload.Reloading):

    def prepare(self, settings: Settings) -> Swap:
        """Build all that a configuration changes."""
        rules, admission = self._handlers.rules(settings), Admission.of(settings)
        schedules = definitions_of(settings)

        def swap() -> None:
            self._settings = settings
            configure_logging(settings.log.level, settings.log.format)
            if self._intake is not None:
                self._intake.adopt(admission)
            self._workforce.adopt(rules, sizes_of(settings))
            self._tickers.adopt(schedules)
            for duties in self._duties:
                duties["tick"].wake()
            self._page.tell()

        return swap

    async def tell(self) -> None:
        """Tell `status`, `reload` and `check-config --diff`."""
        info, settings = self._info(), report(self._settings)
        telling = (
            each.sessions.tell(info, settings)
            for each in self._partitions
            if each.lease.renewer.holds_lease
        )
        for told in await asyncio.gather(*telling, return_exceptions=True):
            if isinstance(told, BaseException):
                raise told

    def reload_began(self) -> None:
        self._supervisor.reloading()

    def reload_ended(self) -> None:
        self._supervisor.ready()


def _woken(partition: Partition, duties: Mapping[str, Duty], heard: Heard) -> None:
    if heard.is_due:
        duties["promote"].wake()
    if heard.has_outbox and "relay" in duties:
        duties["relay"].wake()
    partition.holding.hold_back(heard.holds)
    partition.holding.cancel(heard.cancels)
    partition.holding.wake(heard.pools)
