"""One trial: publish, let daemons die where the plan says, let one end it, and judge the whole."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
from redis import Redis

from groupflow.core.places import Place
from groupflow.operate.redrive import archive_of
from groupflow.settings.model import Settings
from groupflow.store.keys import Keys
from tests.history.auditor import audit, leftovers, states_of, superseded_in, totals_of
from tests.history.events import Event, History, Journal
from tests.history.invariants import Violation, check
from tests.verification.crash.daemons import LEASE, fork_daemon, settings_of
from tests.verification.crash.plans import CLOCKED, Life, Plan
from tests.verification.crash.publishing import BALLAST, Broker

LIFE_WITHIN = 60.0  # seconds; a healthy life takes about one, but a machine may be busy
_LOOK = 0.01


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


class Trials:
    """Runs trials, one after another, in a process without threads."""

    def __init__(self, redis: str, rabbitmq: str, folder: Path) -> None:
        """Binds the servers.

        Args:
            redis: its URL.
            rabbitmq: its URL.
            folder: where a trial that failed leaves its history.
        """
        self._redis, self._rabbitmq, self._folder = redis, rabbitmq, folder
        self._raw = Redis.from_url(redis)
        self._raw.ping()
        self._broker = Broker(rabbitmq)

    def close(self) -> None:
        """Let go of the servers."""
        self._broker.close()
        self._raw.close()

    def run(self, plan: Plan, name: str) -> Result:
        """Run one trial; `name` is its own."""
        folder = self._folder / name
        folder.mkdir(parents=True)
        keys = Keys(name)
        settings = settings_of(plan, self._redis, self._rabbitmq, name)
        result = Result(plan.label)
        self._broker.ask("declare", name)
        self._broker.publish(name, plan.messages, folder / "journal.jsonl")
        self._live(plan, settings, folder, result)
        self._broker.answer()
        left = int(self._broker.ask("count", name))
        result.violations += self._judge(plan, keys, folder, result, left)
        self._broker.ask("delete", name)
        if result.violations:
            self._keep(plan, keys, folder, result)
        else:
            shutil.rmtree(folder)
        if names := list(self._raw.scan_iter(f"{{{name}}}:*", count=1000)):
            self._raw.unlink(*names)
        return result

    def _live(self, plan: Plan, settings: Settings, folder: Path, result: Result) -> None:
        """All lives, until one has come to its end with everything done."""
        for life in plan.lives:
            pid = fork_daemon(settings, life, folder)
            status, ended = self._watch(pid, plan, life, settings)
            if ended:
                result.violations.append(Violation("L2", f"{life} {ended}"))
                return
            if life.crash is not None:
                was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
                (result.delivered if was_killed else result.missed).append(life.crash.point)
                if was_killed:
                    continue
            if status != 0:
                result.violations.append(Violation("exit", f"{life} ended with status {status}"))
                return

    def _watch(self, pid: int, plan: Plan, life: Life, settings: Settings) -> tuple[int, str]:
        """Wait for a daemon's end; tell it to stop once there is nothing more for it to do.

        Returns:
            Its status, and what was wrong where it had to be killed.
        """
        began = time.monotonic()
        # Passes that come with time are given the time for two of them.
        is_clocked = life.crash is not None and life.crash.point in CLOCKED
        earliest = began + (2.5 * LEASE if is_clocked else 0.0)
        was_told = False
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return status, ""
            if time.monotonic() > began + LIFE_WITHIN:
                os.kill(pid, signal.SIGUSR1)  # it logs where it stands
                time.sleep(0.5)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return 0, "did not stop" if was_told else "did not get done"
            is_due = not was_told and time.monotonic() >= earliest
            if is_due and self._is_over(plan, pid, life, settings):
                was_told = True
                os.kill(pid, signal.SIGTERM)
            time.sleep(_LOOK)

    def _is_over(self, plan: Plan, pid: int, life: Life, settings: Settings) -> bool:
        """Whether this process serves, all tasks are over, and no dead daemon is left unreaped."""
        keys = Keys(settings.redis.namespace)
        pipeline = self._raw.pipeline(transaction=False)
        pipeline.hmget(keys("count"), "done", "superseded")
        pipeline.zcard(keys("dead"))
        pipeline.zrange(keys("daemons"), 0, -1)
        pipeline.hget(keys("daemon", life.name), "info")
        pipeline.zcard(keys("bodies"))
        ended, dead, daemons, info, bodies = pipeline.execute()
        if orjson.loads(info or b"{}").get("pid") != pid:
            return False  # it is another's entry; a signal could find this one without a handler
        if plan.archives and bodies:
            return False
        wanted = len({message.id for message in plan.messages})
        over = sum(int(each or 0) for each in ended) + dead
        return bool(over >= wanted and daemons == [life.name.encode()])

    def _judge(
        self, plan: Plan, keys: Keys, folder: Path, result: Result, left: int
    ) -> list[Violation]:
        events = Journal(folder / "journal.jsonl").read()
        history = History(
            # The checker knows no stages: an attempt that hands on to the next may be followed by
            # another for the same reason as one that hands back. `_repeats` counts them.
            events=[replace(e, how="cut") if e.how == "advanced" else e for e in events],
            states=states_of(self._raw, keys),
            totals=totals_of(self._raw, keys),
            superseded=superseded_in(self._raw, keys),
            left_in_queue=left,
            # A daemon hands back what it claimed before it heard wakes: it may have missed a hold.
            hands_back=True,
            runs={each.group: plan.together for each in plan.messages if each.group},
            concurrency={
                each.group: plan.concurrency
                for each in plan.messages
                if each.group and plan.concurrency > 1
            },
        )
        violations = [*check(history), *audit(self._raw, keys)]
        violations += [Violation("L7", f"{key} is left") for key in leftovers(self._raw, keys)]
        for message in {each.id: each for each in plan.messages}.values():
            expected = "dead" if message.what == "poison" else "done"
            state = history.states.get(message.id)
            may_give_way = plan.debounce and message.group
            if state != expected and not (state == "superseded" and may_give_way):
                violations.append(Violation("S1", f"{message.id} is {state}, not {expected}"))
        if plan.archives:
            violations += self._archived(
                settings_of(plan, self._redis, self._rabbitmq, keys.namespace)
            )
        # On a busy machine a daemon may lose its lease of a second and live on.
        log = (folder / "daemons.log").read_bytes()
        losses = sum(log.count(name) for name in (b'"session.lost"', b'"task.taken_over"'))
        faults = len(result.delivered) + losses
        return [*violations, *_repeats(plan, events, faults, history.superseded)]

    def _archived(self, settings: Settings) -> list[Violation]:
        """Every dead letter's body lies in the stream, and is readable there."""
        found: list[Violation] = []
        keys, archive = Keys(settings.redis.namespace), archive_of(settings)
        ids: Any = self._raw.zrange(keys("dead"), 0, -1)
        for id_ in [each.decode() for each in ids]:
            place: Any = self._raw.hmget(keys("task_state", id_), "offset", "archived_as")
            offset, message_id = place
            if offset is None or message_id is None:
                found.append(Violation("L7", f"the body of {id_} never left Redis"))
                continue
            packed = asyncio.run(archive.read(Place(int(offset), message_id.decode())))
            if BALLAST.encode() not in packed:
                found.append(Violation("S1", f"the body of {id_} is not where it says"))
        return found

    def _keep(self, plan: Plan, keys: Keys, folder: Path, result: Result) -> None:
        """Leave all that there is to know of a trial that failed."""
        about = {"plan": plan, "result": result, "keys": self._dump(keys)}
        (folder / "about.json").write_bytes(
            orjson.dumps(about, option=orjson.OPT_INDENT_2, default=repr)
        )

    def _dump(self, keys: Keys) -> dict[str, str]:
        names: list[Any] = sorted(self._raw.scan_iter(f"{{{keys.namespace}}}:*", count=1000))
        read: dict[Any, Callable[[Any], Any]] = {
            b"list": lambda name: self._raw.lrange(name, 0, -1),
            b"zset": lambda name: self._raw.zrange(name, 0, -1, withscores=True),
            b"hash": self._raw.hgetall,
            b"string": self._raw.get,
        }
        return {name.decode(): repr(read[self._raw.type(name)](name)) for name in names}


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
        if message.what != "poison" and not (ends["done"] or is_replaced):
            found.append(Violation("S1", f"{message.id} is over, and never came to its end"))
    return found
