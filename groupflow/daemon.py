"""The composition root: which parts a daemon has, and in which order they live and end.

Everything runs in one task group. A part that should run for ever and ends by itself ends the
daemon with its error, so that a supervisor can restart it; trouble with a server never does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal, TypeAlias

import structlog

from groupflow.account import Account
from groupflow.building import (
    Connections,
    Ground,
    Handlers,
    Partition,
    admission_of,
    measures_of,
    sizes_of,
)
from groupflow.core.app import App
from groupflow.core.backoff import Backoff
from groupflow.core.errors import ConfigError, GroupflowError, StoreUnavailable
from groupflow.doctor.examination import check_at_start
from groupflow.flow.intakes import Intakes
from groupflow.flow.parts import last_word, part_name, run_for_ever, run_part, wait_for
from groupflow.flow.reload import Reloader, Swap
from groupflow.flow.wake import Heard, Woken, listen
from groupflow.flow.workforce import Workforce
from groupflow.operate.whole.namespace import Namespace
from groupflow.ops.health.answers import Answers
from groupflow.ops.health.responder import Responder
from groupflow.ops.logs import configure_logging
from groupflow.ops.loop_lag import LoopLag
from groupflow.ops.metrics import Metrics
from groupflow.ops.page.facts import Facts
from groupflow.ops.page.process import PageProcess
from groupflow.ops.supervisor import Supervisor
from groupflow.ops.tracing import open_tracing
from groupflow.schedule.definitions import definitions_of
from groupflow.settings.changes import report
from groupflow.settings.model import Settings
from groupflow.store.limits import pack
from groupflow.store.partitions import keys_of

log = structlog.get_logger("groupflow.daemon")

INTAKE_END = 5.0  # seconds for the batch in hand

Endless: TypeAlias = Coroutine[Any, Any, None]


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
        self._process = ""  # this process's name in sessions
        self._supervisor = Supervisor.from_environment()
        self._reloader = Reloader(settings, load, self)
        self._handlers = Handlers(app, name)
        rules = self._handlers.rules(settings)
        sizes = {} if only == "intake" else sizes_of(settings)
        measures = measures_of(app, settings, sizes)
        self._redis = redis = Connections(settings, measures.scripts)
        namespace, lease, lag = settings.redis.namespace, settings.workers.lease, LoopLag()
        self._partitions = partitions = [
            Partition.of(number, keys, name, redis, lease=lease, limits=self._limits)
            for number, keys in enumerate(keys_of(namespace, settings.redis.partitions))
        ]
        tracing = open_tracing(settings)
        ground = Ground(settings, name, redis, partitions, measures, tracing)
        self._shards = self._handlers.shards = ground.shards(app) if sizes else None
        pools = {
            pool: ground.pool(pool, size, rules, self._holds_lease) for pool, size in sizes.items()
        }
        self._workforce = Workforce(pools)
        self._holdings = holdings = [
            self._workforce.holding(each.number, self._reloader.retell) for each in partitions
        ]
        self._leases = ground.leases(self._workforce, holdings, self._info, lag)
        tickers = self._tickers = ground.tickers()
        self._duties = [
            {duty.name: duty for duty in ground.duties(each, renewer, ticker)}
            for each, renewer, ticker in zip(
                partitions, self._leases.renewers, tickers, strict=True
            )
        ]
        self._intake: Intakes | None = None
        if only != "workers":
            intake = self._intake = ground.intake(holdings, self._stood, self._reloader.retell)
            for each, duties in zip(partitions, self._duties, strict=True):
                duties["archive"] = ground.archiver(each, lambda: intake.state.lacks_memory)
        self._lag = lag
        self.account = Account(
            settings,
            self._workforce,
            self._leases,
            self._reloader,
            self._intake,
            self._started,
            self._stopping,
        )
        read = Namespace([redis.open(each.keys) for each in partitions])
        self.metrics = Metrics(measures, self.account.vitals, read, lease=lease, lag=lag)
        health = Answers(self._started.is_set, self.account.checks, read, self.metrics.render)
        self._responder = Responder(settings.http.health, health)
        self._page = PageProcess(settings.http, health, self._facts, self._started)

    def _holds_lease(self, partition: int) -> bool:
        return self._leases.renewers[partition].holds_lease

    def _facts(self) -> Facts:
        """What the daemon's page shows of it."""
        return Facts(self.name, self._settings, self._app.names)

    def _info(self) -> dict[str, Any]:
        return self.account.info()

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
        """Serve until `stop`.

        Raises:
            ServerUnreachable: a server refused the credentials.
            SessionReplaced: another process took over this daemon's name.
        """
        async with AsyncExitStack() as last, AsyncExitStack() as stack:
            last.push_async_callback(self._redis.close)
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
            log.info("daemon.started", daemon=self.name, **self.account.info())
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
        await asyncio.gather(*(self._leases.carry(r.opened()) for r in self._leases.renewers))
        leaving = (each.sessions.leave() for each in self._partitions)
        for left in await asyncio.gather(*leaving, return_exceptions=True):
            if isinstance(left, BaseException) and not isinstance(left, GroupflowError):
                raise left

    @asynccontextmanager
    async def _renewing(self) -> AsyncIterator[None]:
        """Keep the lease beyond the end of all parts, for as long as the loop turns."""
        keeping = asyncio.gather(
            *self._renewing_each().values(), self._lag.run(), return_exceptions=True
        )
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])

    def _renewing_each(self) -> dict[str, Coroutine[Any, Any, None]]:
        return self._named("renew", [self._leases.carry(r.run()) for r in self._leases.renewers])

    def _named(self, name: str, runs: Sequence[Endless]) -> dict[str, Endless]:
        """Parts that exist once a partition, by name."""
        return {part_name(name, n, len(runs)): run for n, run in enumerate(runs)}

    async def _open_sessions(self) -> bool:
        """Open a session a partition, as soon as Redis answers. False where a stop comes first.

        Raises:
            ConfigError: the namespace has another number of partitions.
        """
        backoff = Backoff()
        while not self._stopping.is_set():
            try:
                await self._name_process()
                await self._leases.open()
            except StoreUnavailable as error:
                log.debug("session.not_opened", error=str(error))
                await asyncio.sleep(backoff.next())
            else:
                for n, renewer in enumerate(self._leases.renewers):
                    if not renewer.is_begun:
                        self._holdings[n].session_lost()  # no claims until it has begun
                return True
        return False

    async def _name_process(self) -> None:
        """Name this process once, alike in all partitions."""
        if not self._process:
            self._process = await self._leases.name_process()
            for each in self._partitions:
                each.session.process = self._process

    async def _check_store(self) -> None:
        """Refuse to work on a Redis that would lose tasks; log what else operators should know.

        Raises:
            ConfigError: Redis evicts keys.
        """
        try:
            for each in self._partitions:
                if self._leases.renewers[each.number].is_open:
                    await check_at_start(each.upkeep, self._settings)
        except ConfigError:
            await self._leave()
            raise

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            endless = {
                **self._renewing_each(),
                **self._keeping(),
                **self._named("wake", self._listening()),
                "loop lag": self._lag.run(),
                "reload": self._reloader.run(),
                **self._workforce.exchanging(),
            }
            services = [group.create_task(run_for_ever(n, run)) for n, run in endless.items()]
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

    def _keeping(self) -> dict[str, Coroutine[Any, Any, None]]:
        """All duties, by name."""
        names = dict.fromkeys(name for duties in self._duties for name in duties)
        keeping = {
            part: run
            for name in names
            for part, run in self._named(
                name, [duties[name].run() for duties in self._duties if name in duties]
            ).items()
        }
        return keeping if self._shards is None else {**keeping, "scans": self._shards.run()}

    def _listening(self) -> list[Endless]:
        """Listen for wakes; a daemon with intake only has no workers to wake."""
        if not self._workforce.sizes:
            return []
        return [listen(each.wakes, self._woken(each)) for each in self._partitions]

    def _woken(self, partition: Partition) -> Woken:
        holding, promote = (
            self._holdings[partition.number],
            self._duties[partition.number]["promote"],
        )

        def woken(heard: Heard) -> None:
            if heard.is_due:
                promote.wake()
            holding.hold_back(heard.holds)
            holding.wake(heard.pools)

        return woken

    def _stood(self) -> None:
        """Intake pauses or goes on: tell others, and archive, as memory may be missing."""
        self._reloader.retell()
        for duties in self._duties:
            duties["archive"].wake()

    def _limits(self) -> bytes:
        return pack(self._settings.limits(), len(self._partitions))

    # What a reload does (flow.reload.Reloading):

    def prepare(self, settings: Settings) -> Swap:
        """Build all that a configuration changes."""
        rules, admission = self._handlers.rules(settings), admission_of(settings)
        schedules = definitions_of(settings)

        def swap() -> None:
            self._settings = self.account.settings = settings
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
        info, settings = self.account.info(), report(self._settings)
        telling = (
            each.sessions.tell(info, settings)
            for each in self._partitions
            if self._holds_lease(each.number)
        )
        for told in await asyncio.gather(*telling, return_exceptions=True):
            if isinstance(told, BaseException):
                raise told

    def reload_began(self) -> None:
        """Tell the service manager."""
        self._supervisor.reloading()

    def reload_ended(self) -> None:
        """Tell the service manager that the daemon is ready again."""
        self._supervisor.ready()
