"""What a daemon is built of, as far as the settings decide it: the composition root's workbench.

`daemon.py` says which parts there are and in which order they live and end; here each of them gets
its settings and its connections.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from groupflow.core.app import App
from groupflow.core.measures import Measures
from groupflow.core.tracing import Tracing
from groupflow.flow.admission import Admission
from groupflow.flow.bodies import archive_of
from groupflow.flow.exchange import Exchanger
from groupflow.flow.hall import Hall
from groupflow.flow.intake import Intake, IntakeSettings
from groupflow.flow.pressure import Pressure
from groupflow.flow.runners import AllRunners
from groupflow.flow.worker import Rules
from groupflow.flow.workforce import WorkerPool
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
from groupflow.upkeep.block import BlockWatch, Naming
from groupflow.upkeep.lease import Holder, LeaseThread
from groupflow.upkeep.renew import RENEWALS_PER_LEASE, Renewer

MAX_THREADS = 20_000  # they are made when they are needed; a reload may ask for more workers

POOLS: tuple[Pool, ...] = ("plain", "grouped")


class Workbench:
    """Builds parts, and keeps what must be closed at the end.

    Attributes:
        clients: every connection to Redis that was made.
        threads: where handlers that aren't coroutines run.
        latencies: of what was settled, for the page.
        archiver: what archives dead letters' bodies, where there is an intake.
    """

    def __init__(
        self,
        settings: Settings,
        app: App,
        session: Session,
        tracing: Tracing | None,
        *,
        works: bool,
    ) -> None:
        """Binds what all parts share.

        Args:
            settings: those of the start; what a reload may change is given to each method.
            app: the Python handlers.
            session: of the daemon.
            tracing: where spans go.
            works: whether there are workers.
        """
        self.clients: list[StoreClient] = []
        self.threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="groupflow-handler")
        self.latencies = Latencies()
        self.archiver: Archiver | None = None
        self._settings = settings
        self._app = app
        self._session = session
        self._tracing = tracing
        self._keys = Keys(settings.redis.namespace)
        self._all_runners: list[AllRunners] = []
        self.first_runners = self.runners(settings)
        self.measures = Measures(self.first_runners.types, POOLS if works else ())
        # Intake and exchangers share a connection: a claim that is written behind an enqueue finds
        # what it brought.
        self._work_client = self.client()

    def client(self) -> StoreClient:
        """A connection to Redis."""
        client = self._new_client(self._settings.redis.timeout)
        self.clients.append(client)
        return client

    def _new_client(self, timeout: float) -> StoreClient:
        return StoreClient(
            self._settings.redis_url(),
            self._keys,
            self._settings.workers.order,
            timeout=timeout,
            measures=self.measures.scripts,
        )

    def lease(
        self,
        holder: Holder,
        info: Callable[[], dict[str, Any]],
        lag: LoopLag,
        naming: Naming,
    ) -> LeaseThread:
        """What keeps the lease, apart from the loop that handles tasks.

        Args:
            holder: told what becomes of the lease.
            info: what `status` tells of the daemon.
            lag: of that loop.
            naming: names the attempt that blocks it.
        """
        workers, upkeep = self._settings.workers, self.measures.upkeep
        self.measures.scripts.expect(Verb.REGISTER, Verb.RENEW)
        # It must know of a dead server well before a third of the lease has gone.
        client = self._new_client(
            min(self._settings.redis.timeout, workers.lease / RENEWALS_PER_LEASE)
        )
        sessions = Sessions(client, self._session, workers.lease)
        watch = BlockWatch(
            lambda: lag.turned,
            naming,
            lease=workers.lease,
            max_block=workers.longest_block,
            measures=upkeep,
        )
        return LeaseThread(
            client,
            watch,
            holder,
            lambda told: Renewer(
                sessions, told, workers.lease, info, measures=upkeep, may_renew=watch.look
            ),
        )

    def pool(self, name: Pool, size: int, holds_lease: Callable[[], bool]) -> WorkerPool:
        """A pool of workers, and what serves it."""
        hall = Hall(self.measures.pools[name])
        claims = Claims(self._work_client, self._session, name, self.latencies.observe)
        Exchanger(hall, claims, holds_lease)
        rules = self.rules(self._settings, self.first_runners)
        return WorkerPool(name, hall, rules, size, self._tracing)

    def rules(self, settings: Settings, runners: AllRunners) -> Rules:
        """What decides how tasks are run and settled."""
        return Rules(runners, settings.policies(), settings.workers.max_crashes)

    def runners(self, settings: Settings) -> AllRunners:
        """What runs handlers; attempts may still run by those of before."""
        connections = max(1, settings.workers.plain + settings.workers.grouped)
        runners = AllRunners(self._app, settings.handlers, self.threads, connections=connections)
        self._all_runners.append(runners)
        return runners

    async def close_runners(self) -> None:
        """Close all that were ever built."""
        for runners in self._all_runners:
            await runners.close()

    def admission(self, settings: Settings) -> Admission:
        """What turns messages into tasks."""
        return Admission(
            settings.router(),
            max_body=settings.rabbitmq.max_body,
            max_headers=settings.rabbitmq.max_headers,
            step_aside=frozenset(r.name for r in settings.groups if r.on_delay == "step-aside"),
        )

    def intake(
        self, wake: Callable[[Set[Pool]], None], on_standstill: Callable[[], None]
    ) -> Intake:
        """The way in, and beside it what keeps dead letters from blocking it.

        Args:
            wake: told which pools' workers may find something.
            on_standstill: called when intake begins or ends to stand.
        """
        settings, rabbitmq, redis = self._settings, self._settings.rabbitmq, self._settings.redis
        client = self._work_client

        def stands() -> None:
            on_standstill()
            archiver.wake()

        intake = Intake(
            IntakeSettings(
                url=settings.rabbitmq_url(),
                queue=rabbitmq.queue,
                prefetch=rabbitmq.prefetch,
                heartbeat=rabbitmq.heartbeat,
                max_in_flight=rabbitmq.max_in_flight,
                name=f"groupflow {self._session.daemon}",
            ),
            self.admission(settings),
            Enqueuer(client, self._session.daemon, dedup_window=redis.dedup_window),
            Pressure(
                client,
                max_waiting=redis.max_waiting,
                max_memory=redis.max_memory,
                delayed_memory=redis.delayed_memory,
            ),
            wake=wake,
            measures=self.measures.intake,
            tracing=self._tracing,
            on_standstill=stands,
        )
        archiver = self.archiver = Archiver(
            self.client(),
            self._session,
            archive_of(settings, f"groupflow {self._session.daemon} archive"),
            settings.history.dead_memory,
            lambda: intake.standstill.is_for_memory,
            self.measures.upkeep,
        )
        return intake
