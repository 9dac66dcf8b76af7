"""The promise as a small Python model: what a store may do next, and nothing of how it does it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Literal

CONCURRENCY = {"two": 2, "paced": 2}  # of groups that may run more than one task at once
PACED = {"paced"}  # groups that have a rate
TOLD = {"a": "", "two": "couriers", "paced": ""}  # whose drains are told of, in which pool
FEW, SLOW = "1b1b1b1b", "2c2c2c2c"  # scopes of a tenant at most so many tasks of which run, ...
MOST_OF_FEW = 3  # and of one that has a rate
MOST_OF_TYPE = 2  # tasks at once of type "v"; "w1" has a rate
CARRIED, CARRIED_BY_ONE = 20, 12  # bytes from stage to stage, of all and of one tenant
BURST = 3  # starts of one of those before time has to pass

State = Literal[
    "waiting", "aside", "running", "dead", "done", "dropped", "superseded", "cancelled", "expired"
]


@dataclass
class ModelTask:
    """One task as the promise sees it.

    Attributes:
        id: the task.
        message: the id of its message, which another scope may have as well.
        scope: whose that is.
        group: its group, empty for a plain one.
        place: its place in its group; a higher one comes later.
        priority: seconds by which it counts as older.
        pool: whose workers claim it; empty where daemons do.
        state: where it is; `aside` waits without holding its group.
        is_due: whether its time has come.
        attempt: the attempt that runs or is next.
        crashes: claims that ended without a settle.
        lost_leases: how many of those may not have been deaths.
        stage: the stage that it has reached.
        context: bytes that the last stage handed on.
        errors: bytes that are kept of its failed attempts.
        fences: of all its claims.
        died_long_ago: whether it is dead for longer than the dedup window.
        type: its type.
        debounces: whether its rule does.
        is_newest: whether what comes next of its group and type replaces it while it waits.
        is_asked: whether it runs and is to be cancelled.
        is_update: whether newer ones of its kind replace it while it runs, too.
        makes_way: whether its claim is one that they may replace.
        replaced_by: the first of those that came while it ran.
        is_unknown: whether it waits since no daemon knows its type.
        is_hurried: whether an operator wanted it, and so what replaces it, at once.
        expires: whether it had to start in time, as it came.
        tells: whether it tells that its group is drained: its own end doesn't count.
        known: the state in which the ends of its group have counted it.
    """

    id: str
    message: str
    scope: str
    group: str
    place: int
    priority: float = 0.0
    pool: str = ""
    state: State = "waiting"
    is_due: bool = True
    attempt: int = 1
    crashes: int = 0
    lost_leases: int = 0
    stage: str | None = None
    context: int = 0
    errors: int = 0
    fences: list[int] = field(default_factory=list)
    died_long_ago: bool = False
    type: str = "t"
    debounces: bool = False
    is_newest: bool = False
    is_hurried: bool = False
    is_asked: bool = False
    tells: bool = False
    known: State = "waiting"
    expires: bool = False
    is_update: bool = False
    makes_way: bool = False
    replaced_by: str = ""
    is_unknown: bool = False

    @property
    def is_to_end(self) -> bool:
        """Whether it runs, and doesn't wait again after that."""
        return self.is_asked or bool(self.replaced_by)

    def wait(self, state: State = "waiting") -> None:
        """It waits again, or has ended since it was to."""
        replaced: State = "superseded" if self.replaced_by else state
        self.state = "cancelled" if self.is_asked else replaced
        self.is_asked, self.replaced_by = False, ""

    @property
    def carried(self) -> int:
        """Bytes that count among what tasks carry."""
        if self.state not in ("waiting", "aside", "running"):
            return 0
        return len(self.stage or "") + self.context + self.errors

    @property
    def kind(self) -> tuple[str, str, str]:
        """What is of the same kind may be replaced by it."""
        return self.group, self.scope, self.type


@dataclass
class Promise:
    """All tasks, and what holds groups."""

    is_limited: bool = True  # else each group is serial, and tenants have what they want
    tasks: dict[str, ModelTask] = field(default_factory=dict)
    parked: dict[str, str] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    hands: dict[str, int] = field(default_factory=dict)  # tasks at once, of groups, by hand
    few_by_hand: int | None = None  # the same of the tenant that is FEW; 0: any
    type_by_hand: int | None = None  # the same of type "v"
    closed: set[str] = field(default_factory=set)  # until time passes
    closed_tenants: set[str] = field(default_factory=set)  # until time passes
    starts: Counter[str] = field(default_factory=Counter)  # of each group, since time passed
    starts_of: Counter[str] = field(default_factory=Counter)  # of each tenant, likewise
    starts_of_type: Counter[str] = field(default_factory=Counter)  # of each type, likewise
    all_paused: bool = False
    next_place: int = 0
    last_fence: int = 0
    # by group, the tasks of its run that have not begun: they wait, and are its own
    runs_of: dict[str, list[str]] = field(default_factory=dict)
    # of each group that is told of, how its tasks ended since it was drained
    ends_of: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    # by daemon, the process that lost its lease, and what it held then
    losses: dict[str, tuple[str, list[str]]] = field(default_factory=dict)

    def drains(self) -> dict[str, Counter[str]]:
        """The groups that are drained and were not told of, each with how its tasks ended."""
        if not self.is_limited:
            return {}
        busy = set(self.parked)
        for task in self.tasks.values():
            is_over = task.state not in ("waiting", "aside", "running")
            if not is_over:
                busy.add(task.group)
            elif task.known not in ("dead", task.state) and task.group in TOLD and not task.tells:
                self.ends_of[task.group][task.state] += 1
            task.known = task.state
        over = [group for group in self.ends_of if group not in busy]
        return {group: self.ends_of.pop(group) for group in over}

    def knows(self, message: str, scope: str) -> bool:
        """Whether a message would be a duplicate."""
        return any(
            (task.message, task.scope) == (message, scope) and not task.died_long_ago
            for task in self.tasks.values()
        )

    def enqueue(
        self, task_id: str, message: str, scope: str, group: str, *, due: bool, aside: bool
    ) -> ModelTask:
        """Take a task in, under the id that its message got."""
        assert task_id not in self.tasks, f"{task_id} was given twice"
        if message in self.tasks:
            assert task_id.startswith(f"{message}~")
        else:
            assert task_id == message, "no task has that id"
        self.next_place += 1
        task = ModelTask(task_id, message, scope, group, self.next_place, is_due=due)
        if not due and (aside or not group):
            task.state = "aside"
        self.tasks[task_id] = task
        return task

    def newest(self, task: ModelTask) -> ModelTask | None:
        """Which waiting task of its kind is replaced by what is newer."""
        alike = (each for each in self.tasks.values() if each.kind == task.kind)
        waiting = (each for each in alike if each.state in ("waiting", "aside"))
        return next((each for each in waiting if each.is_newest), None)

    def debounce(self, task: ModelTask, *, delayed: bool, quiet: bool = True) -> ModelTask | None:
        """It has just come, and may wait for quiet; what it replaces."""
        replaced = self.newest(task)
        if replaced:
            replaced.state, task.is_hurried = "superseded", replaced.is_hurried
        task.debounces = task.is_newest = True
        task.is_due = (task.is_hurried or not quiet) and not delayed
        return replaced

    def update(self, task: ModelTask) -> None:
        """One has just come that what runs makes way for, where it runs under its group's lock."""
        alike = (each for each in self.tasks.values() if each.kind == task.kind)
        for each in alike:
            if each.state == "running" and each.makes_way and not each.is_to_end:
                each.replaced_by = task.id

    def debounce_retry(self, task: ModelTask) -> None:
        """It asks for a retry, of its first stage: it gives way to a newer one, or waits again."""
        other = self.newest(task)
        if other and other.place > task.place:
            task.state = "superseded"
            return
        if other:
            other.state = "superseded"
        task.is_newest = True

    def carried(self, *scopes: str) -> int:
        """Bytes that tasks carry; those of some scopes, or all."""
        every = self.tasks.values()
        return sum(each.carried for each in every if not scopes or each.scope in scopes)

    def has_room(self, task: ModelTask, stage: str, context: int) -> bool:
        """Whether a task may carry that to its next stage."""
        more = len(stage) + context + task.errors - task.carried
        room = CARRIED - self.carried(), CARRIED_BY_ONE - self.carried(task.scope)
        return more <= max(0, min(room))

    def lane(self, group: str) -> list[ModelTask]:
        """The waiting tasks of a group, in order."""
        lane = [t for t in self.tasks.values() if t.group == group and t.state == "waiting"]
        return sorted(lane, key=lambda task: task.place)

    def running(self, group: str) -> int:
        """How many tasks of the group run."""
        return sum(t.group == group and t.state == "running" for t in self.tasks.values())

    def room_in(self, group: str) -> int:
        """How many of the group may start now, by its limits."""
        if group in self.closed:
            return 0
        most = self.hands.get(group, CONCURRENCY.get(group, 1) if self.is_limited else 1)
        if most > 1 and group in self.runs_of:
            return 0  # a run's own tasks stand at the head
        room = most - self.running(group)
        is_paced = self.is_limited and group in PACED
        return min(room, BURST - self.starts[group]) if is_paced else room

    def may_start(self, task: ModelTask, *, of_all_types: bool = False) -> bool:
        """Whether a task may start, by its type, and by its tenant if it is no pool's."""
        tenant = task.scope
        if not (of_all_types or self.has_room_for(task.type)):
            return False
        if task.pool:
            return True
        if tenant in self.closed_tenants:
            return False
        if not self.is_limited:
            return True
        if tenant == SLOW:
            return self.starts_of[tenant] < BURST
        running = [t for t in self.tasks.values() if t.state == "running" and not t.pool]
        most = MOST_OF_FEW if self.few_by_hand is None else self.few_by_hand
        return tenant != FEW or most == 0 or sum(t.scope == tenant for t in running) < most

    def has_room_for(self, type_: str) -> bool:
        """Whether a task of a type may start, for all that its type has."""
        if not self.is_limited or type_ not in ("v", "w1"):
            return True
        if type_ == "w1":
            return self.starts_of_type[type_] < BURST
        running = sum((t.type, t.state) == ("v", "running") for t in self.tasks.values())
        most = MOST_OF_TYPE if self.type_by_hand is None else self.type_by_hand
        return most == 0 or running < most

    def is_held(self, group: str) -> bool:
        """Whether an operator or a dead letter holds the group."""
        return group in self.paused or group in self.parked

    def claimable_groups(self, *, of_all_types: bool = False) -> set[str]:
        """The groups whose head may be claimed now; or might, but for its type."""
        if self.all_paused:
            return set()
        return {head.group for head in self.claimable_heads(of_all_types=of_all_types)}

    def claimable_heads(self, *, of_all_types: bool = False) -> list[ModelTask]:
        """The heads of the groups that are not held and have room, where they are due."""
        groups = {t.group for t in self.tasks.values() if t.group}
        return [
            lane[0]
            for group in groups
            if self.room_in(group) > 0
            and not self.is_held(group)
            and (lane := self.lane(group))
            and lane[0].is_due
            and self.may_start(lane[0], of_all_types=of_all_types)
        ]

    def claim(self, task_id: str, fence: int) -> None:
        """A task was claimed: check that it might be, and note it."""
        task = self.tasks[task_id]
        assert fence > self.last_fence, f"fence {fence} does not rise over {self.last_fence}"
        self.last_fence = fence
        most = self.hands.get(task.group, CONCURRENCY.get(task.group, 1) if self.is_limited else 1)
        task.makes_way = task.is_newest and task.is_update and most == 1
        task.is_newest = task.is_hurried = task.is_unknown = False
        assert not self.all_paused, f"{task_id} was claimed while everything is paused"
        assert task.state == "waiting", f"{task_id} was claimed while {task.state}"
        if task.group:
            assert self.room_in(task.group) > 0, f"{task_id} is one too many of {task.group}"
            assert not self.is_held(task.group), f"{task.group} is held, yet {task_id} was claimed"
            head = self.lane(task.group)[0]
            assert head is task, f"{task_id} was claimed before {head.id} of {task.group}"
        assert task.is_due, f"{task_id} was claimed before its time"
        assert self.has_room_for(task.type), f"{task_id} is one too many of its type"
        assert self.may_start(task), f"{task_id} is one too many of its tenant"
        self.starts[task.group] += 1
        self.starts_of[task.scope] += not task.pool
        self.starts_of_type[task.type] += 1
        task.state = "running"
        task.fences.append(fence)

    def begin_run(self, group: str, rest: list[tuple[str, int]]) -> None:
        """A claim came with a run: the next ones of its group, none of them held up by anything."""
        lane = self.lane(group)
        [first] = [t for t in self.tasks.values() if (t.group, t.state) == (group, "running")]
        assert [id_ for id_, _ in rest] == [task.id for task in lane[: len(rest)]]
        for id_, fence in rest:
            task = self.tasks[id_]
            assert task.is_due, f"{id_} is in a run before its time"
            assert not task.crashes, f"{id_} is in quarantine, and in a run"
            assert not (self.is_limited and task.scope == SLOW), f"{id_} would pass its rate"
            assert task.scope not in self.closed_tenants, f"the tenant of {id_} is closed"
            is_capped = self.is_limited and task.type in ("v", "w1")
            assert not is_capped, f"{id_} has a limit of its type, and is in a run"
            is_few = self.is_limited and task.scope == FEW
            assert not is_few or first.scope == FEW, f"{id_} is another tenant's than its run"
            assert self.hands.get(group, 1) == 1, f"{id_} is in a run of a group with room for more"
            assert fence > self.last_fence
            self.last_fence = fence
        self.runs_of[group] = [id_ for id_, _ in rest]

    def go_on(self, group: str, fence: int) -> None:
        """A group's run goes on with its next task."""
        task = self.tasks[self.runs_of[group].pop(0)]
        assert task.state == "waiting"
        assert not self.running(group), f"two tasks of {group} run at once"
        task.state = "running"
        task.fences.append(fence)

    def is_of_run(self, task: ModelTask) -> bool:
        """Whether a task that waits is a run's own."""
        return task.id in self.runs_of.get(task.group, ())

    def lose(self, daemon: str, process: str, ids: list[str]) -> None:
        """A lease runs out: what it covered waits again, and longer each time after the first."""
        self.count_deaths(daemon)
        for id_ in ids:
            task = self.tasks[id_]
            task.crashes, task.lost_leases = task.crashes + 1, task.lost_leases + 1
            task.is_due = task.crashes < 2
            task.wait("waiting" if task.is_due or task.group else "aside")
            self.runs_of.pop(task.group, None)
        if ids:
            self.losses[daemon] = process, ids

    def show(self, daemon: str, process: str) -> None:
        """A process opens a session: it is the one that lost its lease, or has replaced that."""
        if self.losses.get(daemon, ("",))[0] == process:
            del self.losses[daemon]
        self.count_deaths(daemon)

    def count_deaths(self, daemon: str) -> None:
        """What was lost under a name was lost by a death."""
        for id_ in self.losses.pop(daemon, ("", []))[1]:
            task = self.tasks[id_]
            task.lost_leases = max(0, task.lost_leases - 1)

    def line_up_again(self, task: ModelTask) -> None:
        """Put a task at the back of its group."""
        self.next_place += 1
        task.place = self.next_place

    def redrive(self, task: ModelTask) -> None:
        """A dead letter is a task again, at its place."""
        self.unpark(task)
        task.state, task.attempt, task.is_due = "waiting", 1, True
        task.crashes, task.lost_leases, task.died_long_ago = 0, 0, False

    def unpark(self, task: ModelTask) -> None:
        """Lift the park that this death laid on its group."""
        if self.parked.get(task.group) == task.id:
            del self.parked[task.group]

    def count(self, *states: State, grouped: bool) -> int:
        """How many tasks, with or without a group, are in some states."""
        return sum(t.state in states and bool(t.group) == grouped for t in self.tasks.values())
