"""Everything that an end-to-end test needs: daemons as real processes, a queue, a history.

All of it is synchronous: a test waits for conditions, never for a time to pass.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from redis import Redis
from redis.backoff import ConstantBackoff
from redis.cluster import ClusterNode
from redis.cluster import RedisCluster as ClusterClient
from redis.exceptions import RedisError
from redis.retry import Retry

from groupflow.broker.partitions import names_of
from groupflow.broker.publisher import Outgoing, TermPublisher, publishing
from groupflow.core.errors import GroupflowError
from groupflow.core.routing import CANCEL
from groupflow.operate.totals import ENDS
from groupflow.servers import RedisServer
from groupflow.settings.load import load_settings
from groupflow.store.keys import Keys
from groupflow.store.partitions import keys_of, partition_of
from tests.broker.wires import waiting_in
from tests.deadlines import deadline
from tests.endtoend.configuration import toml_of
from tests.endtoend.process import LOOK, REPOSITORY, Process, environment, groupflow, until
from tests.endtoend.verbs import said
from tests.history.events import Event, History, Journal, killed, published
from tests.history.invariants import Violation, check
from tests.history.judge import undone_starts
from tests.history.stored import Stored, with_unique_fence
from tests.running import run
from tests.servers.replicated import RedisCluster

APP = "tests.endtoend.handlers:app"


@dataclass(frozen=True, slots=True)
class Job:
    """A task to publish.

    Attributes:
        id: its message id.
        entity: groups it, together with its tenant; ``None`` for a plain task.
        tenant: its tenant.
        n: its number, which its handler writes to the history.
        type: names its handler.
        facts: what else its body says.
        headers: of its message.
    """

    id: str
    entity: str | None = None
    tenant: int = 42
    n: int = 0
    type: str = "work"
    facts: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def group(self) -> str | None:
        """The group that it must come to."""
        if self.entity is None:
            return None
        # A field's own colons are escaped, so that no two messages' fields can make one key.
        return f"{self.entity.replace(':', '%3A')}:{self.tenant}"

    @property
    def body(self) -> bytes:
        """What is published."""
        facts = {"app_name": "crm" if self.entity is not None else "plain", **self.facts}
        if self.entity is not None:
            facts["entity"] = self.entity
        return orjson.dumps({"tenant_id": self.tenant, "n": self.n, **facts})


class Rig:
    """A queue and a namespace of its own on two servers, and the daemons on them.

    Attributes:
        folder: for logs, gates and the configuration.
        queue: the queue's name.
        keys: the namespace's keys.
        raw: a plain client of the store.
        journal: where handlers and this rig write the history.
        jobs: what was published and confirmed, by id.
        store_timeout: seconds that daemons wait for the store, unless a test says otherwise.
    """

    def __init__(self, folder: Path, rabbitmq: Any, store: Any, /, **sections: Any) -> None:
        """Write the configuration; nothing is started.

        Args:
            folder: of the test's own.
            rabbitmq: a `RabbitmqServer` or a `RabbitmqCluster`.
            store: a `RedisServer` or a `RedisCluster`.
            **sections: settings that differ from `_settings`, by section.
        """
        self.folder, self.rabbitmq, self.store = folder, rabbitmq, store
        self.queue = f"jobs.{folder.name}"
        self.keys = Keys(f"e2e-{folder.name[:40]}")
        partitions = sections.get("redis", {}).get("partitions", 1)
        self.partitions = keys_of(self.keys.namespace, partitions)
        self.raw: Any = client_of(store)
        self.journal = Journal(folder / "history.jsonl")
        self.jobs: dict[str, Job] = {}
        self.store_timeout = round(deadline(5.0), 1)
        self.config = folder / "groupflow.toml"
        self.concurrency = 1
        self._processes: list[Process] = []
        self.configure(**sections)

    # Configuration and processes

    def configure(self, **sections: Any) -> None:
        """Write the configuration, with these settings by section; `rule` is the groups'."""
        settings = self._settings(sections)
        # Of those that there were, the most: a reload ends nothing that runs.
        wanted = settings.get("rule", {}).get("concurrency", 1)
        self.concurrency = max(self.concurrency, wanted)
        self.queues: list[str] = names_of(self.queue, settings["rabbitmq"].get("partitions", 1))
        self.config.write_text(toml_of(settings))

    def _settings(self, sections: Mapping[str, Any]) -> dict[str, Any]:
        redis = {"url": self.store.url, "namespace": self.keys.namespace}
        settings: dict[str, Any] = {
            "rabbitmq": {"url": self.rabbitmq.url, "queue": self.queue, "prefetch": 100},
            "redis": redis | {"timeout": self.store_timeout},
            "workers": {"plain": 4, "grouped": 8, "lease": 60.0},
            "retry": {"max_attempts": 1},
            "http": {"listen": ""},
            "log": {"format": "json"},
        }
        for section, values in sections.items():
            settings[section] = {**settings.get(section, {}), **values}
        return settings

    def environment(self) -> dict[str, str]:
        """The environment of every process: nothing of the user's may set anything."""
        return environment(
            HISTORY_FILE=str(self.journal.path), PYTHONPATH=str(REPOSITORY), PYTHONUNBUFFERED="1"
        )

    def spawn(
        self,
        name: str,
        *arguments: str,
        app: str | None = APP,
        tree: Path | None = None,
        build: Path = REPOSITORY,
        variables: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a daemon of some build, in a folder with its handlers, and wait for nothing.

        Its environment has some variables more.
        """
        words = ("--config", self.config, "--name", name, *(("--app", app) if app else ()))
        command = groupflow("run", *words, *arguments, build=build)
        log = self.folder / f"{name}-{len(self._processes)}.log"
        # An environment with a build has the tests' handlers too.
        env = {**self.environment(), "PYTHONPATH": str(build), **(variables or {})}
        process = Process(name, command, env, log, tree or build)
        self._processes.append(process)
        return process

    def start(self, name: str = "d1", *arguments: str, app: str = APP) -> Process:
        """Start a daemon and wait until it works."""
        return self.start_all(name, arguments=arguments, app=app)[0]

    def start_all(self, *names: str, arguments: Any = (), app: str = APP) -> list[Process]:
        """Start several daemons at once and wait until all of them work."""
        processes = [self.spawn(name, *arguments, app=app) for name in names]
        for process in processes:
            process.wait_for("daemon.started")
            process.wait_for("lease.begun", len(self.partitions))
            if "workers" not in arguments:
                process.wait_for("intake.started", len(self.queues))
        return processes

    def stop_all(self) -> None:
        """SIGTERM to all daemons, which must end well."""
        running = [process for process in self._processes if process.is_running]
        for process in running:
            process.send(signal.SIGTERM)
        for process in running:
            assert process.wait() == 0, process.tail()

    def end(self, tasks: int | None = None, *, with_faults: bool) -> None:
        """Wait until all is over, stop all daemons, which must end well, and judge."""
        self.wait_for_all(tasks)
        self.stop_all()
        found = self.judge(with_faults=with_faults)
        assert found == [], found

    def call(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a one-shot verb to its end."""
        where: Any = {"cwd": REPOSITORY, "env": self.environment(), "input": stdin}
        command = groupflow(*arguments)
        return subprocess.run(
            command, **where, capture_output=True, timeout=deadline(), check=False
        )

    def say(self, *words: str, code: int | None = 0) -> str:
        """What a verb says on stdout; it must end with that exit code, or with any for `None`."""
        ended, out, error = said([*words, "--config", str(self.config)], self.environment())
        assert code in (ended, None), error
        return out

    def ask(self, *words: str, **how: Any) -> Any:
        """The same with `--json`, read."""
        return orjson.loads(self.say(*words, "--json", **how))

    def close(self) -> None:
        """End all daemons."""
        for process in self._processes:
            process.close()
        self.raw.close()

    def kill(self, process: Process) -> None:
        """kill -9 a daemon, and note its end."""
        process.kill()
        self.journal.write(killed(process.pid))

    # Publishing

    def publish(self, jobs: Iterable[Job]) -> None:
        """Publish in order, with confirms; what is confirmed goes to the history."""
        run(self._publish(list(jobs)))

    async def _publish(self, jobs: list[Job]) -> None:
        """Publish, and after a broken connection go on with the first that has no confirm."""
        confirmed = 0

        def on_confirm() -> None:
            nonlocal confirmed
            job = jobs[confirmed]
            self.jobs[job.id] = job
            self.journal.write(published(job.id, job.group, str(job.tenant), job.n))
            confirmed += 1

        end = time.monotonic() + deadline()
        while confirmed < len(jobs):
            try:
                left = [Outgoing(j.body, j.type, j.id, j.headers) for j in jobs[confirmed:]]
                async with self._publishing() as publisher:
                    await publisher.publish_all(left, on_confirm)
            except GroupflowError as error:
                complaint = f"RabbitMQ takes nothing more, after {confirmed} messages: {error}"
                assert time.monotonic() < end, complaint
                await asyncio.sleep(LOOK)  # the server is away

    def _publishing(self) -> AbstractAsyncContextManager[TermPublisher]:
        count = len(self.queues)
        router = None if count == 1 else load_settings(self.config).router()
        return publishing(self.rabbitmq.url, self.queue, partitions=count, router=router)

    def cancel(self, *ids: str) -> None:
        """Publish messages that cancel jobs, behind these in their queues."""
        asked = [(self.jobs[id_], {CANCEL: id_}) for id_ in ids]
        self.send(*(Outgoing(job.body, job.type, headers=headers) for job, headers in asked))

    def send(self, *messages: Outgoing) -> None:
        """Publish messages of which the history knows nothing, in order, with confirms."""

        async def publish() -> None:
            async with self._publishing() as publisher:
                await publisher.publish_all(messages)

        run(publish())

    def left_in_queue(self) -> int:
        """Messages that RabbitMQ would hand out."""
        return sum(run(waiting_in(self.rabbitmq.url, queue)) for queue in self.queues)

    # Looking

    def gate(self, name: str = "gate") -> Path:
        """A gate for handlers to wait at; it opens when touched."""
        return self.folder / name

    def events(self, kind: str | None = None, id_: str | None = None) -> list[Event]:
        """The history so far."""
        found = [each for each in self.journal.read() if kind in (None, each.kind)]
        return [each for each in found if id_ in (None, each.id)]

    def wait_for_start(self, id_: str, times: int = 1) -> Event:
        """Wait until a task's handler has started so many times."""
        return self._wait_for("start", id_, times)

    def wait_for_end(self, id_: str, times: int = 1) -> Event:
        """Wait until a task's handler has ended so many times."""
        return self._wait_for("end", id_, times)

    def wait_for_starts(self, *ids: str) -> None:
        """Wait until each of these has started."""
        for id_ in ids:
            self.wait_for_start(id_)

    def _wait_for(self, kind: str, id_: str, times: int) -> Event:
        self.until(lambda: len(self.events(kind, id_)) >= times, f"the {kind} of {id_}")
        return self.events(kind, id_)[times - 1]

    def count(self, name: str) -> int:
        """One of the store's totals."""
        found: list[Any] = [self.raw.hget(keys("count"), name) for keys in self.partitions]
        return sum(int(each or 0) for each in found)

    def dead(self) -> list[str]:
        """The ids of the dead letters, oldest death first in each partition."""
        found: list[Any] = [self.raw.zrange(keys("dead"), 0, -1) for keys in self.partitions]
        return [id_.decode() for each in found for id_ in each]

    def is_over(self, tasks: int) -> bool:
        """Whether so many tasks are done, cancelled, expired, superseded or dead."""
        ended = sum(self.count(name) for name in ENDS)
        return ended + len(self.dead()) >= tasks

    def wait_for_all(self, tasks: int | None = None) -> None:
        """Wait until so many tasks (those published) are over, and nothing runs."""
        wanted = len(self.jobs) if tasks is None else tasks
        self.until(lambda: self.is_over(wanted), f"the end of {wanted} tasks")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something, and say what is the case where it doesn't come."""
        until(lambda: _holds(condition), lambda: f"waited in vain for {what}\n{self._story()}")

    def _story(self) -> str:
        counts: list[Any] = [self.raw.hgetall(keys("count")) for keys in self.partitions]
        logs = [f"--- {process.name}\n{process.tail()}" for process in self._processes]
        return "\n".join([f"count: {counts}", f"dead: {self.dead()[-5:]}", *logs])

    def partition_of(self, job: Job | Event) -> int:
        """Where a task lies."""
        return partition_of(job.group, job.id, len(self.partitions))

    def judge(self, *, with_faults: bool, **facts: Any) -> list[Violation]:
        """Everything that is wrong with the structure and the history, after the end of all.

        Args:
            with_faults: as in `History`.
            facts: of the history, beside what is known here.
        """
        stored, groups = Stored(self.raw, self.partitions), {j.group for j in self.jobs.values()}
        facts |= {"states": stored.states, "superseded": stored.superseded}
        facts |= {"concurrency": dict.fromkeys(groups - {None}, self.concurrency)}
        count = len(self.partitions)
        events = [with_unique_fence(each, count) for each in self.journal.read()]
        history = History(
            events,
            undone=undone_starts(events, count),
            taken=stored.count("taken") - stored.count("drained"),
            left_in_queue=self.left_in_queue(),
            with_faults=with_faults,
            **facts,
        )
        return [*stored.contradictions(), *stored.leftovers(), *check(history)]


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except RedisError:
        return False  # a node is down


def client_of(store: RedisServer | RedisCluster) -> Any:
    """A client that waits for nodes of a cluster that are just replaced."""
    if isinstance(store, RedisCluster):
        nodes: list[Any] = [ClusterNode("127.0.0.1", n.port) for n in store.nodes]  # type: ignore[no-untyped-call]
        # A node may die meanwhile, and its replica takes a moment to follow it.
        return ClusterClient(startup_nodes=nodes, retry=Retry(ConstantBackoff(0.5), 40))
    return Redis.from_url(store.url)
