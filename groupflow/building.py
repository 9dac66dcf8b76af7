"""How the parts of a daemon are made of settings and of each other; `daemon.py` lists them."""

from __future__ import annotations

from collections.abc import Callable, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from groupflow.core.app import App
from groupflow.core.measures import Measures, ScriptMeasures
from groupflow.core.tracing import Tracing
from groupflow.flow.admission import Admission
from groupflow.flow.exchange import Exchanger
from groupflow.flow.hall import Hall
from groupflow.flow.intake import Intake
from groupflow.flow.pressure import Pressure
from groupflow.flow.runners import AllRunners
from groupflow.flow.worker import Rules
from groupflow.flow.workforce import WorkerPool, Workforce
from groupflow.operate.bodies import archive_of
from groupflow.operate.dead import DeadLetters
from groupflow.operate.sampling import Latencies
from groupflow.ops.loop_lag import LoopLag
from groupflow.settings.model import Settings
from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Enqueuer
from groupflow.store.envelope import Pool
from groupflow.store.keys import Keys
from groupflow.store.scripts import Verb
from groupflow.store.sessions import Session, Sessions
from groupflow.upkeep.archive import Archiver
from groupflow.upkeep.block import BlockWatch
from groupflow.upkeep.duty import Duty
from groupflow.upkeep.lease import LeaseThread, Told
from groupflow.upkeep.promote import promote
from groupflow.upkeep.reap import Reaper
from groupflow.upkeep.renew import RENEWALS_PER_LEASE, Renewer
from groupflow.upkeep.roll import roll
from groupflow.upkeep.sample import sample
from groupflow.upkeep.sweep import sweep

MAX_THREADS = 20_000  # they are made when they are needed; a reload may ask for more workers


class Connections:
    """A daemon's connections to Redis; all that it opens are closed at its end."""

    def __init__(self, settings: Settings, measures: ScriptMeasures) -> None:
        self._settings = settings
        self._measures = measures
        self._opened: list[StoreClient] = []

    def make(self, timeout: float) -> StoreClient:
        """A connection that somebody else closes; `timeout` in seconds."""
        return StoreClient(
            self._settings.redis_url(),
            Keys(self._settings.redis.namespace),
            self._settings.workers.order,
            timeout=timeout,
            measures=self._measures,
        )

    def open(self) -> StoreClient:
        """A connection; it connects on first use."""
        client = self.make(self._settings.redis.timeout)
        self._opened.append(client)
        return client

    async def close(self) -> None:
        """Close them all, the newest first."""
        for client in reversed(self._opened):
            await client.close()


class Handlers:
    """What runs tasks, by one configuration after another; attempts may still run by an old one."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="groupflow-handler")
        self._runners: list[AllRunners] = []

    def rules(self, settings: Settings) -> Rules:
        """The rules of a configuration.

        Raises:
            ConfigError: it asks for what isn't there.
        """
        connections = max(1, sum(sizes_of(settings).values()))
        runners = AllRunners(self._app, settings.handlers, self._threads, connections=connections)
        self._runners.append(runners)
        return Rules(runners, settings.policies(), settings.workers.max_crashes)

    async def close(self) -> None:
        """Close their connections, and wait for no thread."""
        for runners in self._runners:
            await runners.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


def sizes_of(settings: Settings) -> dict[Pool, int]:
    """How many workers a pool has."""
    return {"plain": settings.workers.plain, "grouped": settings.workers.grouped}


def admission_of(settings: Settings) -> Admission:
    """What turns messages into tasks."""
    return Admission(
        settings.router(),
        max_body=settings.rabbitmq.max_body,
        max_headers=settings.rabbitmq.max_headers,
        step_aside=frozenset(r.name for r in settings.groups if r.on_delay == "step-aside"),
    )


@dataclass(frozen=True, slots=True)
class Ground:
    """What the parts of a daemon stand on, and how each is made of it, in any order."""

    settings: Settings  # those of the start
    session: Session  # the daemon's
    redis: Connections  # its connections
    measures: Measures  # where all parts count
    tracing: Tracing | None  # where spans go

    def pool(
        self, name: Pool, size: int, rules: Rules, claims: Claims, holds_lease: Callable[[], bool]
    ) -> WorkerPool:
        """A pool of workers, and the exchanges that serve it."""
        hall = Hall(self.measures.pools[name])
        exchanger = Exchanger(hall, claims, holds_lease)
        return WorkerPool(name, hall, [exchanger], rules=rules, size=size, tracing=self.tracing)

    def lease(
        self, workforce: Workforce, info: Callable[[], dict[str, Any]], lag: LoopLag
    ) -> LeaseThread:
        """What keeps the lease, apart from the loop that handles tasks; `info` is for `status`."""
        workers, upkeep = self.settings.workers, self.measures.upkeep
        self.measures.scripts.expect(Verb.REGISTER, Verb.RENEW)
        # It must know of a dead server well before a third of the lease has gone.
        timeout = min(self.settings.redis.timeout, workers.lease / RENEWALS_PER_LEASE)
        client = self.redis.make(timeout)
        sessions = Sessions(client, self.session, workers.lease)
        watch = BlockWatch(
            lambda: lag.turned,
            workforce.names_of,
            lease=workers.lease,
            max_block=workers.longest_block,
            measures=upkeep,
        )

        def renewer(told: Told) -> Renewer:
            may_renew = watch.look
            lease = workers.lease
            return Renewer(sessions, told, lease, info, measures=upkeep, may_renew=may_renew)

        return LeaseThread(client, watch, workforce, renewer)

    def duties(self, sessions: Sessions, renewer: Renewer, latencies: Latencies) -> dict[str, Duty]:
        """What keeps the store true, by name."""
        client, upkeep, history = self.redis.open(), self.measures.upkeep, self.settings.history
        keep = max(self.settings.redis.dedup_window, history.retention)
        lease = self.settings.workers.lease
        reaper = Reaper(sessions, client, lease, lambda: renewer.steady_since, upkeep)
        sweeping = partial(sweep, DeadLetters(client), history.dead_retention, upkeep)
        rolling = partial(roll, client, keep=keep, size=history.segment)
        duties = (
            Duty("reap", reaper.run_once, again=lease / 4),
            Duty("promote", partial(promote, client, upkeep), again=0.5),
            Duty("roll", rolling, again=15.0),
            Duty("sweep", sweeping, again=60.0),
            # What is wrong is said aloud by the others.
            Duty("sample", partial(sample, client, latencies), again=10.0, level="debug"),
        )
        return {duty.name: duty for duty in duties}

    def archiver(self, is_pressed: Callable[[], bool]) -> Archiver:
        """What keeps dead letters from blocking intake; `is_pressed` says whether memory does."""
        return Archiver(
            self.redis.open(),
            self.session,
            archive_of(self.settings, f"groupflow {self.session.daemon} archive"),
            self.settings.history.dead_memory,
            is_pressed,
            self.measures.upkeep,
        )

    def intake(
        self,
        client: StoreClient,
        wake: Callable[[Set[Pool]], None],
        on_standstill: Callable[[], None],
    ) -> Intake:
        """The way in, over a client that workers claim through as well.

        `on_standstill` is called when intake begins or ends to stand.
        """
        redis, daemon = self.settings.redis, self.session.daemon
        return Intake(
            self.settings,
            f"groupflow {daemon}",
            admission_of(self.settings),
            Enqueuer(client, daemon, dedup_window=redis.dedup_window),
            Pressure(
                client,
                max_waiting=redis.max_waiting,
                max_memory=redis.max_memory,
                delayed_memory=redis.delayed_memory,
            ),
            wake=wake,
            measures=self.measures.intake,
            tracing=self.tracing,
            on_standstill=on_standstill,
        )
