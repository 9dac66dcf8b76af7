"""One trial: publish, let daemons die where the plan says, let one end it, and judge the whole."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Container
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
from redis import Redis

from groupflow.broker import topology
from groupflow.broker.connection import connect, open_channel
from groupflow.broker.dead_stream import name_of
from groupflow.broker.publisher import Outgoing, publishing
from groupflow.core.task import Place
from groupflow.crashpoints import VARIABLE
from groupflow.operate.redrive import archive_of
from groupflow.settings.load import load_settings
from groupflow.store.keys import Keys
from tests.endtoend.configuration import lines_of
from tests.endtoend.process import REPOSITORY, environment, groupflow
from tests.history.events import Event, History, Journal, published
from tests.history.invariants import Violation, check
from tests.history.snapshot import read
from tests.history.stored import Stored
from tests.verification.crash.plans import CLOCKED, JOURNAL, MANY, ONE, STOP_AT, Life, Message, Plan
from tests.verification.pacing import pause

APP = "tests.verification.crash.handlers:app"
LEASE = 1.0
LIFE_WITHIN = 60.0  # seconds; a healthy life takes about two, but a machine may be busy
_LOOK = 0.02
BALLAST = "x" * 1000  # a body that is worth archiving


def write_config(plan: Plan, redis: str, rabbitmq: str, file: Path) -> Path:
    """A trial's settings; its folder's name is its namespace and its queue."""
    name = file.parent.name
    options = ("run", "debounce", "batch", "batch_wait", "concurrency", "rate")
    workers = {"plain": 2, "grouped": 3, "lease": LEASE, "drain": 0.05, "max_crashes": 99}
    rule = {"app": "grouped", "key": "{group}", "name": "grouped"}
    sections: dict[str, dict[str, Any]] = {
        "[rabbitmq]": {"url": rabbitmq, "queue": name, "prefetch": plan.prefetch},
        "[redis]": {"url": redis, "namespace": name},
        "[workers]": {**workers, "order": plan.order},
        "[fields]": {"delay": "delay"},
        "[retry]": {"interval": -0.05},
        "[history]": {"dead_memory": 0} if plan.archives else {},
        # A page a life would still be starting, at its low priority, when a hundred have died.
        "[http]": {"listen": ""},
        "[log]": {"format": "json"},
        "[[groups]]": {**rule, **{option: getattr(plan, option) for option in options}},
    }
    lines = [line for head, values in sections.items() for line in (head, *lines_of(values))]
    file.write_text("\n".join(lines))
    return file


def start(life: Life, config: Path) -> subprocess.Popen[bytes]:
    """Start a daemon, which ends with this process."""
    journal = str(config.with_name("journal.jsonl"))
    told = {VARIABLE: str(life.crash or ""), JOURNAL: journal, STOP_AT: str(life.stop_at)}
    command = groupflow("run", "--config", config, "--app", APP, "--name", life.name)
    with config.with_name("daemons.log").open("ab") as log:
        return subprocess.Popen(
            command, cwd=REPOSITORY, env=environment(**told), stdout=log, stderr=log
        )


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

    def __init__(self, plan: Plan, redis: str, rabbitmq: str, folder: Path) -> None:
        """Binds the servers; `folder` is where its history lies, if it fails."""
        folder.mkdir(parents=True)
        self._plan, self._folder, self._keys = plan, folder, Keys(folder.name)
        self._raw = Redis.from_url(redis)
        self._rabbitmq = rabbitmq
        self._config = write_config(plan, redis, rabbitmq, folder / "groupflow.toml")
        self._journal = Journal(folder / "journal.jsonl")
        self._result = Result(plan.label)

    async def run(self) -> Result:
        """Run it."""
        result, queue = self._result, self._folder.name
        connection = await connect(self._rabbitmq, heartbeat=60, timeout=30.0, name="crash trial")
        async with connection:
            await topology.declare(connection, queue)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._publish(queue))
                await self._live()
            channel = await open_channel(connection, confirms=True)
            left = (await channel.queue_declare(queue, passive=True)).message_count or 0
            result.violations += self._judge(left)
            if self._plan.archives:
                result.violations += await self._archived()
            await topology.delete(connection, queue)
            await topology.delete(connection, name_of(queue))
            await channel.exchange_delete(name_of(queue))
        if result.violations:
            self._keep()
        else:
            shutil.rmtree(self._folder)
        if names := list(self._raw.scan_iter(f"{{{queue}}}:*", count=1000)):
            self._raw.unlink(*names)
        self._raw.close()
        return result

    async def _publish(self, queue: str) -> None:
        """Publish all; each confirm is journalled as it comes."""
        unconfirmed = iter(self._plan.messages)

        def on_confirm() -> None:
            message = next(unconfirmed)
            self._journal.write(published(message.id, message.group, n=message.n))

        type_ = MANY if self._plan.batch > 1 else ONE
        async with publishing(self._rabbitmq, queue, timeout=30.0) as publisher:
            outgoing = [_outgoing(each, type_) for each in self._plan.messages]
            await publisher.publish_all(outgoing, on_confirm)

    async def _live(self) -> None:
        """All lives, until one has come to its end with everything done."""
        result = self._result
        for life in self._plan.lives:
            process = start(life, self._config)
            wrong = await self._watch(process, life)
            if wrong:
                result.violations.append(Violation("L2", f"{life} {wrong}"))
                return
            was_killed = process.returncode == -signal.SIGKILL
            if life.crash is not None:
                (result.delivered if was_killed else result.missed).append(life.crash.point)
                if was_killed:
                    continue
            if process.returncode:
                text = f"{life} ended with status {process.returncode}"
                result.violations.append(Violation("exit", text))
                return

    async def _watch(self, process: subprocess.Popen[bytes], life: Life) -> str:
        """Wait for a daemon's end; tell it to stop once there is nothing more for it to do.

        Returns:
            What was wrong where it had to be killed.
        """
        # Passes that come with time are given the time for two of them.
        serves_for = 2.5 * LEASE if life.crash and life.crash.point in CLOCKED else 0.0
        serving_since, was_told = 0.0, False
        try:
            async with asyncio.timeout(LIFE_WITHIN):
                while process.poll() is None:
                    # A signal could find a daemon that hasn't registered without a handler.
                    if not serving_since and self._serves(life, process.pid):
                        serving_since = time.monotonic()
                    is_due = serving_since and time.monotonic() >= serving_since + serves_for
                    if is_due and not was_told and self._is_over(life):
                        was_told = True
                        process.terminate()
                    await pause(_LOOK)
        except TimeoutError:
            process.send_signal(signal.SIGUSR1)  # it logs where it stands
            await pause(0.5)
            return "did not stop" if was_told else "did not get done"
        finally:
            process.kill()
            process.wait()
        return ""

    def _serves(self, life: Life, pid: int) -> bool:
        info: Any = self._raw.hget(self._keys("daemon", life.name), "info")
        return bool(orjson.loads(info or b"{}").get("pid") == pid)

    def _is_over(self, life: Life) -> bool:
        """Whether all tasks are over, and no dead daemon is left unreaped."""
        keys, pipeline = self._keys, self._raw.pipeline(transaction=False)
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

    def _judge(self, left: int) -> list[Violation]:
        plan, stored = self._plan, Stored(self._raw, [self._keys])
        events = self._journal.read()
        groups = {each.group for each in plan.messages if each.group}
        history = History(
            # The checker knows no stages: an attempt that hands on to the next may be followed by
            # another for the same reason as one that hands back. `_repeats` counts them.
            events=[replace(e, how="cut") if e.how == "advanced" else e for e in events],
            states=stored.states,
            taken=stored.count("taken"),
            superseded=stored.superseded,
            left_in_queue=left,
            # A daemon hands back what it claimed before it heard wakes: it may have missed a hold.
            hands_back=True,
            runs=dict.fromkeys(groups, plan.together),
            concurrency=dict.fromkeys(groups, plan.concurrency) if plan.concurrency > 1 else {},
        )
        violations = [*check(history), *stored.contradictions(), *stored.leftovers()]
        for message in {each.id: each for each in plan.messages}.values():
            expected = "dead" if message.what == "poison" else "done"
            state = history.states.get(message.id)
            may_give_way = plan.debounce and message.group
            if state != expected and not (state == "superseded" and may_give_way):
                violations.append(Violation("S1", f"{message.id} is {state}, not {expected}"))
        # On a busy machine a daemon may lose its lease of a second and live on.
        log = (self._folder / "daemons.log").read_bytes()
        losses = sum(log.count(name) for name in (b'"session.lost"', b'"task.taken_over"'))
        faults = len(self._result.delivered) + losses
        return [*violations, *_repeats(plan, events, faults, history.superseded)]

    async def _archived(self) -> list[Violation]:
        """Every dead letter's body lies in the stream, and is readable there."""
        found: list[Violation] = []
        archive = archive_of(load_settings(self._config))
        ids: Any = self._raw.zrange(self._keys("dead"), 0, -1)
        for id_ in [each.decode() for each in ids]:
            place: Any = self._raw.hmget(self._keys("task_state", id_), "offset", "archived_as")
            offset, message_id = place
            if offset is None or message_id is None:
                found.append(Violation("L7", f"the body of {id_} never left Redis"))
            elif BALLAST.encode() not in await archive.read(
                Place(int(offset), message_id.decode())
            ):
                found.append(Violation("S1", f"the body of {id_} is not where it says"))
        return found

    def _keep(self) -> None:
        """Leave all that there is to know of a trial that failed."""
        keys = repr(read(self._raw, self._keys))
        about = {"plan": self._plan, "result": self._result, "keys": keys}
        (self._folder / "about.json").write_bytes(
            orjson.dumps(about, option=orjson.OPT_INDENT_2, default=repr)
        )


def _outgoing(message: Message, type_: str) -> Outgoing:
    body: dict[str, Any] = {"n": message.n, "what": message.what, "seconds": message.seconds}
    if message.group is not None:
        body |= {"app_name": "grouped", "group": message.group}
    if message.what == "poison":
        body |= {"ballast": BALLAST}
    if message.what == "delayed":
        body |= {"delay": message.seconds, "seconds": 0.0}
    return Outgoing(orjson.dumps(body), type=type_, message_id=message.id)


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
        allowed = 1 + crashes + ends["cut"] + (message.what in ("fail", "stage"))
        if plan.together > 1 and message.group:
            allowed += faults  # each repeats what a run had done, and counts for its first task
        is_replaced = message.id in superseded
        if not (0 if is_replaced else 1) <= len(starts) <= allowed:
            found.append(
                Violation("S5", f"{message.id} ({message.what}) ran {len(starts)} times: {ends}")
            )
        if crashes > faults:
            found.append(
                Violation("S5", f"{message.id}: {crashes} crashes, {faults} kills and lost leases")
            )
    return found
