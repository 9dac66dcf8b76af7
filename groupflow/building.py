"""Makes the parts of a daemon of settings and of each other; `daemon.py` lists them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from groupflow import __version__
from groupflow.broker.events import EventPublisher
from groupflow.core.app import App
from groupflow.core.errors import ConfigError, Problem
from groupflow.core.measures import Measures, ScriptMeasures
from groupflow.core.tracing import Tracing
from groupflow.flow.admission import Admission
from groupflow.flow.backpressure import Backpressure
from groupflow.flow.byte_semaphore import ByteSemaphore
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.entrance import Entrance, PartitionEntrance
from groupflow.flow.exchange import Exchanger
from groupflow.flow.handling import Runner
from groupflow.flow.intakes import Intakes
from groupflow.flow.runners import AllRunners
from groupflow.flow.worker import LocalWorker, Rules
from groupflow.flow.workforce import Holding, WorkerPool
from groupflow.operate.redrive import archive_of
from groupflow.operate.statistics import Busyness, Latencies, sample
from groupflow.operate.totals import count_consumers
from groupflow.scans.scan import Scan
from groupflow.scans.shards import Shards, Stores
from groupflow.schedule.definitions import definitions_of
from groupflow.schedule.table import ScheduleTable
from groupflow.schedule.ticker import Ticker, Tickers
from groupflow.settings.model import Settings
from groupflow.store.carrying import Carrying
from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Enqueuer
from groupflow.store.envelope import Pool
from groupflow.store.hearing import StoreHearing
from groupflow.store.keys import Keys
from groupflow.store.partitions import agree, open_client
from groupflow.store.scans import type_of
from groupflow.store.sessions import Session, Sessions
from groupflow.store.wire import ReplicaWait
from groupflow.upkeep.archive import Archiver
from groupflow.upkeep.block import BlockWatch
from groupflow.upkeep.cancel import CancelledTasks
from groupflow.upkeep.duty import Duty
from groupflow.upkeep.elder import this_process
from groupflow.upkeep.expire import Expirer
from groupflow.upkeep.lease import LoopListener, PartitionLease
from groupflow.upkeep.progress import ProgressWriter
from groupflow.upkeep.promote import promote
from groupflow.upkeep.reap import Reaper
from groupflow.upkeep.relay import Relay
from groupflow.upkeep.renew import RENEWALS_PER_LEASE, Renewer
from groupflow.upkeep.sweep import rotate, sweep

COPIED_WITHIN = 1.0  # seconds for replicas to have a batch, before intake says that it waits
MAX_THREADS = 20_000  # made when they are needed; a reload may ask for more workers


class RedisConnections:
    """A daemon's connections to Redis; `close` closes all that `open` made."""

    def __init__(self, settings: Settings, measures: ScriptMeasures) -> None:
        self._make = partial(open_client, settings, measures=measures, hearing=StoreHearing())
        self._opened: list[StoreClient] = []

    def make(self, keys: Keys, timeout: float) -> StoreClient:
        """A connection that the caller closes; `timeout` in seconds."""
        return self._make(keys, timeout=timeout)

    def open(self, keys: Keys) -> StoreClient:
        """A connection for some keys; it connects on first use."""
        client = self._make(keys)
        self._opened.append(client)
        return client

    async def close(self) -> None:
        """Close all opened connections, the newest first."""
        for client in reversed(self._opened):
            await client.close()


class Handlers:
    """Runners and rules of each configuration in turn; attempts may still run by an old one."""

    def __init__(self, app: App, daemon: str) -> None:
        """Binds the application; `daemon` is the name under which its attempts run."""
        self._app = app
        self._daemon = daemon
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="groupflow-handler")
        self._runners: AllRunners | None = None  # the newest
        self.shards: Shards | None = None  # runs scans, where the daemon has workers

    def rules(self, settings: Settings) -> Rules:
        """The rules of a configuration.

        Raises:
            ConfigError: it asks for what isn't there.
        """
        runners = self._runners = AllRunners(
            self._app, settings.handlers, self._threads, self._find_scan, self._runners
        )
        return Rules(
            runners,
            settings.policies(),
            settings.workers.max_crashes,
            daemon=self._daemon,
            max_lost_leases=settings.workers.max_lost_leases,
            unknown_for=settings.workers.unknown_for,
            tells="done" in settings.events.told,
        )

    def _find_scan(self, type_: str) -> Runner | None:
        return None if self.shards is None else self.shards.runner(type_)

    async def close(self) -> None:
        """Close the runners' connections, and wait for no thread."""
        if self._runners is not None:
            await self._runners.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


def sizes_of(settings: Settings) -> dict[Pool, int]:
    """How many workers each pool has."""
    return {"plain": settings.workers.plain, "grouped": settings.workers.grouped}


def events_of(settings: Settings, name: str) -> EventPublisher:
    """What publishes events, under a name for RabbitMQ's page; it connects when there are some."""
    return EventPublisher(settings.rabbitmq_url(), settings.events.exchange, name)


def measures_of(app: App, settings: Settings, pools: Iterable[str]) -> Measures:
    """The measures of a daemon with these handlers, scans and pools."""
    scans = [scan.name for scan in app.scans]
    return Measures([*app.types, *settings.handlers, *map(type_of, scans)], pools, scans)


class Partition:
    """A daemon's parts of one partition."""

    def __init__(self, build: Builder, number: int, keys: Keys) -> None:
        workers, redis = build.settings.workers, build.settings.redis
        session = Session(build.daemon)
        self.number = number
        self.latencies = Latencies()
        # Exchangers share the path with intake (without `redis.replicas`): a claim behind an
        # enqueue finds its tasks.
        self.path, self.upkeep, self.wakes = (build.redis.open(keys) for _ in range(3))
        self.exchangers = {
            pool: Exchanger(
                dispatcher,
                Claims(
                    *(self.path, session, pool, self.latencies.observe),
                    Carrying(self.path, redis),
                    types=build.measures.types.named.keys(),
                ),
                lambda: self.lease.renewer.holds_lease,
                workers.order,
                run_for=workers.lease / 2,
            )
            for pool, dispatcher in build.dispatchers.items()
        }
        self.holding = Holding(self.exchangers, build.workers, build.retell)
        self.lease = build.lease(number, keys, session, self.holding)
        self.sessions = Sessions(
            self.upkeep, session, workers.lease, limits=build.limits, types=build.types
        )
        self.cancelled = CancelledTasks(self.upkeep)


def process_facts(
    settings: Settings, app: App, intake: Intakes | None, workers: Mapping[Pool, int]
) -> dict[str, Any]:
    """What a process tells of itself, and which of these parts it has; it starts now."""
    page = settings.http.listen
    has = {"intake": bool(intake), "workers": any(workers.values()), "page": bool(page)}
    scans = [f"scan {scan.name}" for scan in app.scans] if workers else []
    return {
        "pid": os.getpid(),
        "process": this_process(),
        "host": socket.gethostname(),
        "version": __version__,
        "started_at": time.time(),  # Unix seconds by its own clock
        "parts": [*(name for name, part in has.items() if part), *scans],
    }


@dataclass(frozen=True, slots=True)
class Builder:
    """What the parts of a daemon share, and how each is made of it."""

    settings: Settings  # those of the start
    daemon: str  # its name
    redis: RedisConnections
    measures: Measures  # where all parts count
    dispatchers: Mapping[Pool, Dispatcher]
    watch: BlockWatch  # of the daemon's loop
    workers: Callable[[], Sequence[LocalWorker]]
    info: Callable[[], dict[str, Any]]  # for `status`
    limits: Callable[[], bytes]  # those of its configuration, packed
    types: Callable[[], Sequence[str]]  # that it has handlers of
    shortest_lease: Callable[[], float]  # by its configuration, as are those two
    retell: Callable[[], None]  # tells other daemons what has changed here
    tracing: Tracing | None  # where spans go
    events: EventPublisher  # where relays tell of ended tasks, for all partitions
    # for large bodies, shared by all workers
    room: ByteSemaphore = field(default_factory=ByteSemaphore)

    def lease(self, number: int, keys: Keys, session: Session, holding: Holding) -> PartitionLease:
        """What the lease's thread keeps of a partition."""
        lease, watch = self.settings.workers.lease, self.watch
        # A renewer must notice a dead server well before a third of the lease has gone.
        timeout = min(self.settings.redis.timeout, lease / RENEWALS_PER_LEASE)

        async def ask_number() -> None:
            common = self.redis.make(Keys(self.settings.redis.namespace), timeout)
            try:
                await agree(common, self.settings.redis.partitions)
            finally:
                await common.close()

        client, listener = self.redis.make(keys, timeout), LoopListener(holding)
        renewer = Renewer(
            Sessions(client, session, lease, ask_number, limits=self.limits, types=self.types),
            listener,
            lease,
            self.info,
            measures=self.measures.upkeep,
            # One renewer looks whether the loop is blocked, and logs it; the others only ask.
            may_renew=watch.look if number == 0 else lambda: watch.is_within,
            blamed=lambda: (watch.has_given_up, watch.culprit),
        )
        return PartitionLease(client, session, listener, renewer)

    def pool(
        self, name: Pool, size: int, rules: Rules, partitions: Iterable[Partition]
    ) -> WorkerPool:
        """A pool of workers."""
        return WorkerPool(
            name,
            self.dispatchers[name],
            [each.exchangers[name] for each in partitions],
            rules=rules,
            size=size,
            tracing=self.tracing,
            room=self.room,
        )

    def tickers(self, partitions: Iterable[Partition]) -> Tickers:
        """The tickers, which make the ticks of schedules."""
        redis = self.settings.redis
        tables = [
            ScheduleTable(
                each.upkeep,
                self.daemon,
                dedup_window=redis.dedup_window,
                delayed_memory=redis.delayed_memory // redis.partitions,
                seen=each.lease.session.seen,
            )
            for each in partitions
        ]
        tickers = Tickers(tables, self.measures.schedules)
        tickers.adopt(definitions_of(self.settings))
        return tickers

    def duties(self, partition: Partition, ticker: Ticker, intake: Intakes | None) -> list[Duty]:
        """The duties of a partition. Only a daemon with intake archives."""
        client, upkeep, history = partition.upkeep, self.measures.upkeep, self.settings.history
        keep = max(self.settings.redis.dedup_window, history.retention)
        renewer, lease = partition.lease.renewer, self.settings.workers.lease
        since, shortest = (lambda: renewer.steady_since), self.shortest_lease
        reaper = Reaper(partition.sessions, lease, since, upkeep, shortest)
        sweeping = partial(sweep, client, history.dead_retention, upkeep)
        rotating = partial(rotate, client, keep=keep, size=history.segment)
        # How busy workers are is of the whole daemon: one partition keeps it for all.
        busyness = None
        if not partition.number:
            busyness = Busyness(self.measures.types, lambda: len(self.workers()))
        sampling = partial(sample, client, partition.latencies, busyness)
        duties = [
            Duty("reap", reaper.run_once, again=lease / 4),
            Duty("promote", partial(promote, client, upkeep, Expirer(client, upkeep)), again=0.5),
            Duty("tick", ticker.run_once, again=0.5),
            Duty("rotate", rotating, again=15.0),
            Duty("sweep", sweeping, again=60.0),
            # The other duties log errors loudly.
            Duty("sample", sampling, again=10.0, level="debug"),
        ]
        if partition.exchangers:
            asks = [exchanger.said for exchanger in partition.exchangers.values()]
            duties.append(ProgressWriter(client, partition.lease.session, asks))
        if intake is not None:
            # Where memory is missing, dead letters mustn't block intake.
            stream = archive_of(self.settings, f"groupflow {self.daemon} archive")
            bound = history.dead_memory // self.settings.redis.partitions
            session, state = partition.lease.session, intake.state
            archiver = Archiver(client, session, stream, bound, lambda: state.lacks_memory, upkeep)
            relay = Relay(
                self._client_to_wait(client),
                session,
                self.events,
                self.settings.events.told,
                intake.follow,
                upkeep,
                self._replica_wait(),
            )
            duties += [archiver, partition.cancelled, relay]
        return duties

    def shards(self, app: App, partitions: Sequence[Partition]) -> Shards:
        """The shards, which run the application's scans.

        Raises:
            ConfigError: a scan lacks something.
        """
        scans = [scan for scan in app.scans if isinstance(scan, Scan)]
        common, replica_wait = partitions[0].upkeep, self._replica_wait()
        if replica_wait is not None or len(partitions) > 1:
            common = self.redis.open(Keys(self.settings.redis.namespace))
        stores = Stores(common, [each.upkeep for each in partitions], replica_wait)
        try:
            return Shards(scans, stores, self.measures.scans)
        except ValueError as error:
            raise ConfigError([Problem("--app", "", f"{error}.")]) from None

    def intake(self, partitions: Sequence[Partition], on_pause: Callable[[], None]) -> Intakes:
        """The intakes; `on_pause` is called when intake pauses or goes on."""
        return Intakes(
            self.settings,
            f"groupflow {self.daemon}",
            Admission.of(self.settings),
            Entrance([self._entrance(each) for each in partitions]),
            measures=self.measures.intake,
            tracing=self.tracing,
            on_pause=on_pause,
            count_daemons=partial(count_consumers, partitions[0].upkeep),
            retell=self.retell,
        )

    def _replica_wait(self) -> ReplicaWait | None:
        """How many replicas must have each batch; the wait needs a connection of its own."""
        redis = self.settings.redis
        if not redis.replicas:
            return None
        return ReplicaWait(redis.replicas, min(COPIED_WITHIN, redis.timeout / 2))

    def _client_to_wait(self, client: StoreClient) -> StoreClient:
        """One of its own where it waits for replicas: that must not hold up claims, or duties."""
        return self.redis.open(client.keys) if self._replica_wait() else client

    def _entrance(self, partition: Partition) -> PartitionEntrance:
        redis, client = self.settings.redis, self._client_to_wait(partition.path)
        return PartitionEntrance(
            Enqueuer(
                client,
                self.daemon,
                dedup_window=redis.dedup_window,
                replica_wait=self._replica_wait(),
                seen=partition.lease.session.seen,
            ),
            Backpressure(
                client,
                max_waiting=redis.max_waiting,
                max_memory=redis.max_memory,
                delayed_memory=redis.delayed_memory // redis.partitions,
            ),
            partition.holding.wake,
            partition.cancelled.add,
        )
