"""One trial: publish, let daemons die where the plan says, let one end it, and judge the whole."""

from __future__ import annotations

import shutil
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Container
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from groupflow.broker import topology
from groupflow.core.task import Place
from groupflow.crashpoints import VARIABLE
from groupflow.operate.redrive import archive_of
from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.settings.load import load_settings
from groupflow.settings.model import RetryDefaults
from tests.broker.wires import connected, forget
from tests.endtoend.process import Process, until
from tests.endtoend.rig import Job, Rig
from tests.history.events import Event
from tests.history.invariants import Violation
from tests.history.snapshot import read
from tests.history.stored import Stored
from tests.running import run
from tests.verification.crash.plans import CLOCKED, MANY, ONE, STOP_AT, Life, Message, Plan
from tests.verification.pacing import pause

APP = "tests.verification.crash.handlers:app"
LEASE = 1.0
LIFE_WITHIN = 60.0  # seconds; a healthy life takes about two, but a machine may be busy
BALLAST = "x" * 1000  # a body that is worth archiving


def sections_of(plan: Plan) -> dict[str, dict[str, Any]]:
    """A trial's settings, where they are others than those of all rigs."""
    options = ("run", "debounce", "batch", "batch_wait", "concurrency", "rate")
    workers = {"plain": 2, "grouped": 3, "lease": LEASE, "drain": 0.05, "max_crashes": 99}
    return {
        "rabbitmq": {"prefetch": plan.prefetch},
        "workers": {**workers, "order": plan.order},
        "fields": {"delay": "delay"},
        "retry": {"interval": -0.05, "max_attempts": RetryDefaults().max_attempts},
        "history": {"dead_memory": 0} if plan.archives else {},
        "rule": {option: getattr(plan, option) for option in options},
    }


@dataclass(slots=True)
class Result:
    """What came of a trial.

    Attributes:
        delivered: the points at which a daemon was really killed.
        missed: those that were armed and never reached.
    """

    label: str
    delivered: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)


class Trial:
    """One trial, in a namespace and a queue of its own, both named as its folder."""

    def __init__(
        self, plan: Plan, redis: RedisServer, rabbitmq: RabbitmqServer, folder: Path
    ) -> None:
        """Binds the servers; `folder` is where its history lies, if it fails."""
        folder.mkdir(parents=True)
        self._plan, self._folder = plan, folder
        self._rig = Rig(folder, rabbitmq, redis, **sections_of(plan))
        [self._keys] = self._rig.partitions
        type_ = MANY if plan.batch > 1 else ONE
        self._jobs = [job_of(each, type_) for each in plan.messages]
        self._groups = {job.group for job in self._jobs if job.group}
        self._processes: list[Process] = []
        self._result = Result(plan.label)

    def run(self) -> Result:
        """Run it."""
        result, rig = self._result, self._rig
        run(self._declare())
        with ThreadPoolExecutor(1) as thread:
            publishing = thread.submit(rig.publish, self._jobs)
            self._live()
            publishing.result()
        result.violations += self._judge()
        if self._plan.archives:
            result.violations += run(self._archived())
        run(forget(rig.rabbitmq.url, rig.queue))
        if result.violations:
            self._keep()
        else:
            shutil.rmtree(self._folder)
        if names := list(rig.raw.scan_iter(f"{self._keys.tag}:*", count=1000)):
            rig.raw.unlink(*names)
        rig.close()
        return result

    async def _declare(self) -> None:
        async with connected(self._rig.rabbitmq.url) as connection:
            await topology.declare(connection, self._rig.queue)

    def _live(self) -> None:
        """All lives, until one has come to its end with everything done."""
        result = self._result
        for life in self._plan.lives:
            variables = {VARIABLE: str(life.crash or ""), STOP_AT: str(life.stop_at)}
            process = self._rig.spawn(life.name, app=APP, variables=variables)
            self._processes.append(process)
            if wrong := self._watch(process, life):
                result.violations.append(Violation("L2", f"{life} {wrong}"))
                return
            was_killed = process.wait() == -signal.SIGKILL
            if life.crash is not None:
                (result.delivered if was_killed else result.missed).append(life.crash.point)
                if was_killed:
                    continue
            if code := process.wait():
                result.violations.append(Violation("exit", f"{life} ended with status {code}"))
                return

    def _watch(self, process: Process, life: Life) -> str:
        """Wait for a daemon's end; tell it to stop once there is nothing more for it to do.

        Returns:
            What was wrong where it had to be killed.
        """
        # Passes that come with time are given the time for two of them.
        serves_for = 2.5 * LEASE if life.crash and life.crash.point in CLOCKED else 0.0
        serving_since, was_told = 0.0, False

        def has_ended() -> bool:
            nonlocal serving_since, was_told
            # A signal could find a daemon that hasn't registered without a handler.
            if not serving_since and self._serves(life, process.pid):
                serving_since = time.monotonic()
            is_due = serving_since and time.monotonic() >= serving_since + serves_for
            if is_due and not was_told and self._is_over(life):
                was_told = True
                process.send(signal.SIGTERM)
            return not process.is_running

        try:
            until(has_ended, seconds=LIFE_WITHIN)
        except AssertionError:
            process.send(signal.SIGUSR1)  # it logs where it stands
            run(pause(0.5))
            process.kill()
            return "did not stop" if was_told else "did not get done"
        return ""

    def _serves(self, life: Life, pid: int) -> bool:
        info: Any = self._rig.raw.hget(self._keys("daemon", life.name), "info")
        return bool(orjson.loads(info or b"{}").get("pid") == pid)

    def _is_over(self, life: Life) -> bool:
        """Whether all tasks are over, and no dead daemon is left unreaped."""
        keys, pipeline = self._keys, self._rig.raw.pipeline(transaction=False)
        pipeline.hmget(keys("count"), "done", "superseded")
        pipeline.zcard(keys("dead"))
        pipeline.zrange(keys("daemons"), 0, -1)
        pipeline.zcard(keys("bodies"))
        ended, dead, daemons, bodies = pipeline.execute()
        if self._plan.archives and bodies:
            return False
        wanted = len({message.id for message in self._plan.messages})
        over = sum(int(each or 0) for each in ended) + dead
        return bool(over >= wanted and daemons == [life.name.encode()])

    def _judge(self) -> list[Violation]:
        plan, stored = self._plan, Stored(self._rig.raw, [self._keys])
        # A daemon hands back what it claimed before it heard wakes: it may have missed a hold.
        runs = dict.fromkeys(self._groups, plan.together)
        violations = self._rig.judge(with_faults=True, hands_back=True, runs=runs)
        for message in {each.id: each for each in plan.messages}.values():
            expected = "dead" if message.what == "poison" else "done"
            state = stored.states.get(message.id)
            may_give_way = plan.debounce and message.group
            if state != expected and not (state == "superseded" and may_give_way):
                violations.append(Violation("S1", f"{message.id} is {state}, not {expected}"))
        # On a busy machine a daemon may lose its lease of a second and live on.
        losses = sum(
            len(process.events(name))
            for process in self._processes
            for name in ("session.lost", "task.taken_over")
        )
        faults = len(self._result.delivered) + losses
        return [*violations, *_repeats(plan, self._rig.events(), faults, stored.superseded)]

    async def _archived(self) -> list[Violation]:
        """Every dead letter's body lies in the stream, and is readable there."""
        found: list[Violation] = []
        archive = archive_of(load_settings(self._rig.config))
        ids: Any = self._rig.raw.zrange(self._keys("dead"), 0, -1)
        for id_ in [each.decode() for each in ids]:
            place: Any = self._rig.raw.hmget(self._keys("task_state", id_), "offset", "archived_as")
            offset, message_id = place
            if offset is None or message_id is None:
                found.append(Violation("L7", f"the body of {id_} never left Redis"))
                continue
            body = await archive.read(Place(int(offset), message_id.decode()))
            if BALLAST.encode() not in body:
                found.append(Violation("S1", f"the body of {id_} is not where it says"))
        return found

    def _keep(self) -> None:
        """Leave all that there is to know of a trial that failed."""
        keys = repr(read(self._rig.raw, self._keys))
        about = {"plan": self._plan, "result": self._result, "keys": keys}
        packed = orjson.dumps(about, option=orjson.OPT_INDENT_2, default=repr)
        (self._folder / "about.json").write_bytes(packed)


def job_of(message: Message, type_: str) -> Job:
    """A message, as it is published."""
    facts: dict[str, Any] = {"what": message.what, "seconds": message.seconds}
    if message.what == "poison":
        facts |= {"ballast": BALLAST}
    if message.what == "delayed":
        facts |= {"delay": message.seconds, "seconds": 0.0}
    return Job(message.id, message.group, n=message.n, type=type_, facts=facts)


def _repeats(
    plan: Plan, events: list[Event], faults: int, superseded: Container[str]
) -> list[Violation]:
    """S5, counted: a task runs once, and once more for each crash, retry, stage and hand-back.

    One that a newer one replaced may not have run at all.
    """
    found: list[Violation] = []
    by_task: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_task[event.id].append(event)
    for message in {each.id: each for each in plan.messages}.values():
        own = by_task[message.id]
        starts = [event for event in own if event.kind == "start"]
        ends = Counter(event.how for event in own if event.kind == "end")
        crashes = max((event.crashes for event in starts), default=0)
        allowed = 1 + crashes + ends["cut"] + (message.what == "fail")
        if plan.together > 1 and message.group:
            allowed += faults  # each repeats what a run had done, and counts for its first task
        is_replaced = message.id in superseded
        wrong = list[str]()
        if not (0 if is_replaced else 1) <= len(starts) <= allowed:
            wrong.append(f"({message.what}) ran {len(starts)} times: {ends}")
        if crashes > faults:
            wrong.append(f"{crashes} crashes, {faults} kills and lost leases")
        found += [Violation("S5", f"{message.id}: {each}") for each in wrong]
    return found
