"""A fleet: real daemons as simulated processes, their servers, and what publishes to them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from random import Random
from typing import Any

import structlog

from groupflow import Scan, Task
from groupflow.core.errors import OtherLayout, SessionReplaced
from groupflow.core.routing import CANCEL
from groupflow.daemon import Daemon
from groupflow.settings.model import Settings
from groupflow.store.partitions import keys_of
from tests.history.configuration import run_of
from tests.history.events import Event
from tests.history.stored import Stored
from tests.simulation import clock
from tests.simulation import jobs as jobs_
from tests.simulation.brought import died_unknown
from tests.simulation.clock import pass_virtual
from tests.simulation.configured import NAMESPACE, QUEUE, app_of, settings_of
from tests.simulation.jobs import Job
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.plan import Plan
from tests.simulation.processes import Process, context_of, own_process
from tests.simulation.rabbitmq_side import Published, SimulatedRabbitmq
from tests.simulation.redis_side import RealRedis, SimulatedRedis
from tests.simulation.watch import Watch

STOPS_WITHIN = 30.0  # seconds
RECOVERY = 4.0  # seconds behind a fault in which a fleet may still see to what it has left


@dataclass(slots=True)
class Member:
    """A place in the fleet, and the process that has it now."""

    name: str
    process: Process | None = None
    daemon: Daemon | None = None
    serving: asyncio.Task[None] | None = None
    is_due: bool = False
    """Whether it starts once the namespace has been moved."""
    leaves: bool = False
    """Whether it is about to go for good."""
    known: set[Any] = field(default_factory=set)
    """As which processes partitions knew it, when another one came in its place."""

    @property
    def is_up(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and not self.process.is_dead


class Fleet:
    """All of one run."""

    def __init__(self, plan: Plan, real: RealRedis) -> None:
        """Servers without data, and no daemon yet."""
        self.plan = plan
        self._digest = blake2b()
        self.loop = SimulatedLoop()
        self.loop.on_death = self._died
        self.loop.set_exception_handler(self._unhandled)
        self.network = Network(self.loop, Random(f"network {plan.seed}"))
        self.redis = SimulatedRedis(real, self.network, self._digest.update)
        self.redis.replicas = plan.replicas
        self.layout = plan.partitions
        self.layouts = [(0.0, plan.partitions)]
        """Since when (monotonic seconds) the namespace has had how many partitions."""
        self.tells = "events" in plan.features
        self.redis.known = real.know_all(plan.order, plan.partitions, tells=self.tells)
        self.rabbitmq = SimulatedRabbitmq(self.loop, Random(f"rabbitmq {plan.seed}"), QUEUE)
        self.rabbitmq.on_ack = self._acked
        self.drained: dict[str, dict[str, Any]] = {}
        """By id, what tasks have said that tell of drained groups."""
        self.cancelled: dict[int, tuple[float, int]] = {}
        """By number, tasks that a message has cancelled: when it was acked, and `calls_lost`."""
        self.raw = real.raw
        self.partitions = keys_of(NAMESPACE, plan.partitions)
        self.members = [Member(f"d{n}") for n in range(plan.daemons)]
        self.processes: list[Process] = []
        self.events: list[Event] = []
        self.watch = Watch(plan)
        self.resumed: set[tuple[str, int]] = set()
        self.moves = 0
        """How often the namespace was given other partitions."""
        self.former: list[Member] = []
        """Processes that others have replaced, and that may not have ended yet."""
        self.forgotten: set[tuple[str, int]] = set()
        self._forgot_below = 0
        self.troubles: list[str] = []
        self.story: list[str] = []
        self.unpublished = len(plan.jobs)
        self._handlers = Random(f"handlers {plan.seed}")
        self.grouped = plan.grouped
        self.troubled: list[tuple[float, float]] = []
        """When faults began, and when a fleet is itself again behind them."""
        self.scans: tuple[Scan, ...] = ()
        """What daemons that start from now on have."""
        self.is_lossy = False
        """Whether the server is about to lose what it is told."""
        self.is_moving = False
        """Whether the namespace is between two numbers of partitions."""
        self.calls_lost = 0
        """Times that a server lost what it was last told."""
        self.lost_ends: set[str] = set()
        """Tasks that had ended there, and are not over for the server that leads since."""

    @property
    def settings(self) -> Settings:
        """What daemons begin with."""
        return settings_of(self.plan, self.plan.grouped, self.layout)

    # What is written down:

    @property
    def digest(self) -> str:
        """Of all that was said to Redis, in order, and of all events."""
        whole = self._digest.copy()
        whole.update("\n".join(map(repr, self.events)).encode())
        return whole.hexdigest()

    def _hear(self, task: Task) -> None:
        self.drained[task.id] = task.json()

    def write(self, event: Event) -> None:
        """Note an event."""
        self.events.append(event)
        if event.kind == "start" and event.fence < self._forgot_below:  # it had lain ready
            self.forgotten.add(event.claim)
        if event.how == "cut" and (event.group or "").startswith("batches-"):
            # A batch that is cut off is given back whole, with its tasks that had ended.
            self.resumed |= self._with_its_run(event.task, event.group, event.fence)
        self.watch.saw(event, own_process())

    def tell(self, text: str) -> None:
        """Note what the run did, for the reader of its story."""
        self.story.append(f"{clock.now() - clock.BEGIN:9.4f}  {text}")

    def logged(self, _logger: Any, level: str, event: MutableMapping[str, Any]) -> Any:
        """Take what a daemon logs."""
        self.watch.heard(event)
        process, name = own_process(), event.get("event")
        if name == "relay.odd_entry" or (name == "relay.failed" and "script" in event["error"]):
            self.troubles.append(f"a relay failed: {event!r}")
        if name == "task.resumed":
            self.resumed.add((event["task"], event["fence"]))
        elif name == "claim.lost" and process is not None and not process.is_sound:
            # One that is told to stop and has lost its session ends before it hears what it gave
            # back.
            self.resumed |= self._with_its_run(event["task"], event["group"], event["fence"])
        elif name == "task.buried":
            self.troubles += died_unknown(self, event)
        if event.get("exc_info") or level in ("exception", "critical"):
            self.troubles.append(f"a daemon logged an error that it did not expect: {event!r}")
        raise structlog.DropEvent

    def _with_its_run(self, id_: str, group: str | None, fence: int) -> set[tuple[str, int]]:
        """An attempt, and those before it under the same claim: task and fence of each."""
        since = fence - (run_of(group) if group else 1)
        starts = (e for e in self.events if e.kind == "start" and e.group == group)
        return {(id_, fence)} | {e.claim for e in starts if since < e.fence <= fence}

    def _unhandled(self, _loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.troubles.append(f"no code handled {context.get('message')}: {error!r}")

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """The store loses its last writes: what it doesn't know to be over may be begun again."""
        before = self._over()
        yield
        over = self._over()
        self.lost_ends |= before - over
        self.watch.fates.is_lossy = True
        self.calls_lost += 1
        self._forgot_below = clock.micros()  # fences go on above that
        starts = (event for event in self.events if event.kind == "start")
        self.forgotten |= {event.claim for event in starts if event.task not in over}

    def _over(self) -> set[str]:
        states = Stored(self.raw, self.partitions).states
        return {id_ for id_, state in states.items() if state not in ("waiting", "running")}

    def make_process(self, name: str) -> Process:
        """One more process."""
        process = Process(name, len(self.processes) + 1)
        self.processes.append(process)
        return process

    # Daemons:

    def start(self, member: Member, name: str | None = None) -> None:
        """Start a process for a member."""
        member.name = name or member.name
        member.is_due = self.is_moving
        if self.is_moving:
            return
        process = member.process = self.make_process(member.name)
        self.tell(f"{process} starts")
        context = context_of(process.main)
        member.serving = self.loop.create_task(self._serve(member, process), context=context)

    async def _serve(self, member: Member, process: Process) -> None:
        brings = clock.now() - clock.BEGIN >= self.plan.deploy
        daemon = Daemon(
            self.settings,
            app_of(self.write, self._handlers, self.scans, self._hear, brings=brings),
            process.name,
            load=lambda: settings_of(self.plan, self.grouped, self.layout),
        )
        member.daemon = daemon
        try:
            await daemon.run()
        except Exception as error:
            self.tell(f"{process} ends: {error}")
            is_replaced = member.process is not process
            if not (is_replaced and isinstance(error, SessionReplaced | OtherLayout)):
                self.troubles.append(f"{process} ended with {error!r}")

    def _died(self, process: Process) -> None:
        self.tell(f"{process} dies in {process.died_at}")
        if any(member.process is process for member in self.members):
            is_led_anew = clock.now() < self.redis.began + self.plan.lease
            self.watch.died(process, is_led_anew=is_led_anew)
        if not process.pulls:  # else its attempts are its machine's, and it comes back to them
            self._end_attempts(process)
        self.rabbitmq.cut(process)
        for transport in self.network.connections_of(process):
            transport.cut_behind() if process.pid % 2 else transport.cut()

    def _end_attempts(self, process: Process) -> None:
        self.write(Event("killed", "", clock.now(), pid=process.pid, wall=clock.wall()))

    def _known_as(self, name: str) -> set[Any]:
        """As which processes partitions know a name."""
        return {self.raw.hget(keys("daemon", name), "process") for keys in self.partitions}

    @property
    def running(self) -> list[Process]:
        """The process of each member that has one which lives."""
        found = (member.process for member in self.members)
        return [process for process in found if process is not None and not process.is_dead]

    def replace(self, member: Member) -> Member:
        """Start another process of a member's name while its own one lives, which is returned."""
        former = replace(member)
        self.former.append(former)
        former.known = self._known_as(former.name)
        if former.process is not None:  # what it runs is taken over from here on
            self._end_attempts(former.process)
        self.start(member)
        return former

    def has_replaced(self, former: Member) -> bool:
        """Whether another process has the name everywhere, or none is to have it any more."""
        name = former.name
        if not any(each.name == name and each is not former.process for each in self.running):
            return True
        known = self._known_as(name)
        return None not in known and not known & former.known

    def has_back(self, member: Member) -> bool:
        """Whether a process that was replaced turns again, and may have a member's name back."""
        former = (each.process for each in self.former if each.name == member.name)
        return any(each and not each.is_dead and not each.main.stands for each in former)

    async def end_former(self, former: Member, within: float) -> None:
        """Who was replaced ends by itself; in order, where no other has its name any more."""
        process, until = former.process, clock.now() + within
        assert process is not None
        assert former.serving is not None
        while not former.serving.done() and not process.is_dead and clock.now() < until:
            await asyncio.wait([former.serving], timeout=0.25)
            until += 0.25 * self.network.is_down  # no server can tell it
        if not former.serving.done() and not process.is_dead:
            # One that stands may have lost its lease, and its name with that: no server tells then;
            # and one that has stopped in order has given the name back.
            serving = (each for each in self.members if each.serving and not each.serving.done())
            others = (each.process for each in serving if each.process in self.running)
            if any(each and each.name == process.name and not each.main.stands for each in others):
                self.troubles.append(f"{process} has lost its name, and goes on")
                self.loop.kill(process)
            await self.stop(former)
        self.former.remove(former)

    async def stop(self, member: Member) -> None:
        """Stop a member in order."""
        process, serving = member.process, member.serving
        if process is None or serving is None or process.is_dead or member.daemon is None:
            return
        self.tell(f"{process} is told to stop")
        process.is_sound = False
        self.loop.call_soon(member.daemon.stop, context=context_of(process.main))
        until = clock.now() + STOPS_WITHIN
        while not serving.done() and not process.is_dead and clock.now() < until:
            await asyncio.wait([serving], timeout=0.25)
        if not process.is_dead and not serving.done():
            self.troubles.append(f"{process} did not stop within {STOPS_WITHIN:g} s")

    def settle(self, partitions: int) -> None:
        """The namespace has so many partitions from here on: all that left start again."""
        self.layout, self.is_moving = partitions, False
        self.partitions = keys_of(NAMESPACE, partitions)
        self.layouts.append((clock.now(), partitions))
        for member in self.members:
            if member.is_due or (member.process and not member.process.is_dead):
                self.start(member)

    def begin_trouble(self) -> float:
        """Something goes wrong from here on, until `end_trouble` of what this answers."""
        self.troubled.append((clock.now(), float("inf")))
        return clock.now()

    def end_trouble(self, began: float) -> None:
        """It is over; what it has left may last."""
        self.troubled.remove((began, float("inf")))
        self.troubled.append((began, clock.now() + RECOVERY))

    # What is published:

    async def publish(self) -> None:
        """Publish everything, each lane in its order."""
        lanes: dict[int, list[Job]] = {}
        for job in self.plan.jobs:
            lanes.setdefault(job.lane, []).append(job)
        async with asyncio.TaskGroup() as group:
            for jobs in lanes.values():
                group.create_task(self._publish_lane(jobs))

    async def _publish_lane(self, jobs: list[Job]) -> None:
        for number, job in enumerate(jobs):
            await pass_virtual(job.wait)
            type_ = None if job.shape == "no type" else job.type
            for _ in range(2 if job.twice else 1):
                await self._send(
                    Published(
                        *(job.id, type_, job.body, job.headers, None),
                        *((jobs_.ANSWERS, f"c{job.n}") if job.asks else ()),
                    )
                )
            await pass_virtual(self.rabbitmq.delay())
            event = Event("published", job.id, clock.now(), job.group, job.tenant_name, job.n)
            self.write(replace(event, wall=clock.wall()))
            if job.cancels is not None and job.cancels <= number:
                await self._publish_cancel(jobs[number - job.cancels])
            self.unpublished -= 1

    async def _publish_cancel(self, job: Job) -> None:
        """Publish a message that cancels a task, behind its own; of none whose owner is unknown."""
        if not job.shape:
            await self._send(Published(f"cancels {job.n}", None, job.body, {CANCEL: job.id}))

    async def _send(self, message: Published) -> None:
        while self.rabbitmq.is_down:
            await pass_virtual(0.1)
        await pass_virtual(self.rabbitmq.delay())
        self.rabbitmq.publish(message)

    def _acked(self, message: Published) -> None:
        if CANCEL in message.headers:
            number = int(message.id.removeprefix("cancels "))
            self.cancelled.setdefault(number, (clock.now(), self.calls_lost))

    def counts(self) -> dict[str, int]:
        """The store's own totals, of all partitions."""
        totals: dict[str, int] = {}
        for keys in self.partitions:
            found: Any = self.raw.hgetall(keys("count"))
            for name, total in found.items():
                totals[name.decode()] = totals.get(name.decode(), 0) + int(total)
        return totals

    @property
    def is_drained(self) -> bool:
        """Whether nothing is left to do."""
        if self.unpublished or self.rabbitmq.left:
            return False
        if clock.now() < self.redis.began + self.plan.lease:
            return False  # not every daemon has come to the server as it is now
        led = {None, self.redis.id.encode()}
        for keys in self.partitions:
            untold = keys("recovering"), keys("by_hand_news"), keys("outbox")
            if self.raw.hget(keys("epoch"), "id") not in led or self.raw.exists(*untold):
                return False  # a server's return, or the news of a limit's end, is not over
        counts = self.counts()
        kinds = ("queued_plain", "queued_grouped", "running_plain", "running_grouped")
        return not any(counts.get(kind, 0) for kind in kinds)
