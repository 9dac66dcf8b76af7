"""What is published in a run: messages as an application sends them, and as strangers do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal, TypeAlias, get_args

import orjson

from groupflow.store.partitions import partition_of

MAX_BODY, MAX_HEADERS = 9_000, 2_000  # bytes, of the simulated daemons
READ_APART = 6_000  # bytes of a body that is large, and a task's
LANES = 5
BURST = 0.7  # of the messages follow right behind another one
POOL, POOLED = "couriers", ("deliver", "carry")  # a pool, and the types of its tasks
BROUGHT = "brought"  # a type that daemons know once a deploy has brought it
NOT_KNOWN = (BROUGHT, "unknown")
FOLLOWED = "followed"  # a type whose tasks want one or two follow-up tasks
ANSWERS = "answers"  # the queue that publishers want to be answered at
TENANTS = (7, 7, 8, 9)
NEWEST_MAX = 2.0  # seconds for which updates cut off what runs, of the rule "newest"
MOST_QUEUED = 2  # tasks that may wait in a group of the rule "full"
MOST_OF_TENANT = 2  # tasks at once of tenant 8, as configured; of others any number
TYPES_BY_HAND = ("slow", "s*", "work", "deliver", "*")  # patterns that operators limit
DELAYS = (0.1, 0.4, 1.5)  # seconds
EXPIRIES = (0.02, 0.2, 0.6, 2.0)  # seconds

Shape: TypeAlias = Literal[
    "", "no json", "no object", "no key", "no type", "too large", "fat headers", "bad delay",
    "bad priority",
]  # fmt: skip
_SHAPES: tuple[Shape, ...] = get_args(Shape)[1:]
_NEVER = ("no json", "no object", "no key", "too large")  # whose group can't be read
_RULES = ("", "", "", "runs", "several", "batches", "bursts", "aside", "parks", "paced")
_UNLIMITED = ("", "", "", "runs", "runs", "aside", "parks")
_TYPES = (
    "work", "slow", "flaky", "bad", "stages", "unknown", "group-later", "tenant-later",
)  # fmt: skip
_WEIGHTS = (60, 15, 8, 3, 8, 1, 2, 1)
_ODD = ("m{n} with spaces", "m{n}\"'\\", "m{n}:{{x}}|||*?[a]", "m{n}-é-漢-💥", "m{n}%s%d\u2028")


@dataclass(frozen=True, slots=True)
class Job:
    """A message that is published.

    Attributes:
        n: its number.
        lane: the publisher that sends it, behind what that has sent before.
        wait: seconds that the publisher waits before.
        type: of its handler.
        entity: its group's entity; empty for a plain task.
        rule: what the group's rule is called; empty for the plain rule.
        twice: whether the confirm is lost, so that it is published again.
        tenant: whose it is.
        priority: in seconds.
        delay: in seconds.
        expires: seconds within which it has to start; 0 for any time.
        fill: bytes that its body has beside what it says.
        fat: bytes of a header that means nothing.
        shape: what is wrong with it, so that it can't become a task.
        name: its message id, where that is not the usual one.
        cancels: so many messages before it came the one whose task its publisher cancels right
            behind it; ``None``: it cancels none.
    """

    n: int
    lane: int
    wait: float
    type: str
    entity: str
    rule: str
    twice: bool
    tenant: int = 7
    priority: int = 0
    delay: float = 0.0
    expires: float = 0.0
    fill: int = 0
    fat: int = 0
    shape: Shape = ""
    name: str = ""
    cancels: int | None = None
    asks: bool = False  # whether its publisher wants to know how it ends

    @property
    def id(self) -> str:
        """Its message id."""
        return self.name or f"m{self.n}"

    @property
    def group(self) -> str | None:
        """Its group key, where it has one, or gets one once an operator redrives it."""
        is_named = self.entity and self.shape not in _NEVER
        return f"{self.entity}:{self.tenant}" if is_named else None

    def place(self, partitions: int) -> int:
        """The partition that it lies in."""
        return partition_of(None if self.shape else self.group, self.id, partitions)

    @property
    def tenant_name(self) -> str | None:
        """Its tenant, where it has one."""
        return None if self.shape in _NEVER else str(self.tenant)

    @property
    def app(self) -> str:
        """The application that its body names."""
        named = f"sim-{self.rule}" if self.rule else "sim"
        return named if self.entity or self.shape == "no key" else "plain"

    @property
    def body(self) -> bytes:
        """What is published."""
        if self.shape == "no json":
            return b'{"app_name": "sim", '
        if self.shape == "no object":
            return b"[1, 2]"
        said: dict[str, Any] = {"app_name": self.app, "n": self.n, "tenant_id": self.tenant}
        if self.entity and self.shape != "no key":
            said["entity"] = self.entity
        fill = MAX_BODY if self.shape == "too large" else self.fill
        return orjson.dumps(said | {"fill": "x" * fill} if fill else said)

    @property
    def headers(self) -> dict[str, Any]:
        """Its AMQP headers."""
        found: dict[str, Any] = {}
        if self.delay:
            found["x-delay"] = round(self.delay * 1000)
        if self.expires:
            found["x-expires"] = str(self.expires)
        if self.priority:
            found["x-priority"] = self.priority
        if self.fat:
            found["x-fat"] = bytearray(b"\xff\xc3" * (self.fat // 2))
        if self.shape == "fat headers":
            found["x-fat"] = "f" * (MAX_HEADERS + 1)
        if self.shape == "bad delay":
            found["x-delay"] = "soon"
        if self.shape == "bad priority":
            found["x-priority"] = [1]
        return found


def draw_jobs(
    seed: int,
    tasks: int,
    seconds: float,
    layouts: Sequence[int],
    features: Set[str],
    *,
    is_mixed: bool,
) -> list[Job]:
    """The messages of a seed, for a namespace of so many partitions, one number behind another.

    Where it `is_mixed`, groups may have tasks both of a pool and of daemons.
    """
    rules = _UNLIMITED if "unlimited" in features else _RULES
    jobs = [*_drawn(Random(f"jobs {seed}"), tasks, seconds, rules)]
    if "full" in features:
        bounded = Random(f"bounded {seed}")
        lanes = {lane for lane in range(LANES) if bounded.random() < 0.6}
        jobs = [_maybe_bounded(job, lanes) for job in jobs]
    if "newest" in features:
        updated = Random(f"newest {seed}")
        lanes = {lane for lane in range(LANES) if updated.random() < 0.8}
        jobs = [_maybe_updating(job, lanes, updated) for job in jobs]
    if "deploys" in features:
        early = Random(f"brought {seed}")
        jobs = [_maybe_brought(job, early) for job in jobs]
    if "pullers" in features:
        pooled = Random(f"pooled {seed}")
        entities = {name for name in sorted({job.entity for job in jobs}) if pooled.random() < 0.3}
        jobs = [_maybe_pooled(job, pooled, entities, is_mixed) for job in jobs]
    if "strangers" in features:
        jobs = _strange(jobs, Random(f"strangers {seed}"), layouts)
    if "cancels" in features:
        regretted = Random(f"cancels {seed}")
        jobs = [_maybe_cancelling(job, regretted) for job in jobs]
    if "events" in features:
        told = Random(f"told {seed}")
        jobs = [_maybe_followed(job, told) for job in jobs]
    if "expires" in features:
        late = Random(f"expires {seed}")
        jobs = [_maybe_expiring(job, late) for job in jobs]
    return jobs


def _drawn(chance: Random, tasks: int, seconds: float, among: Sequence[str]) -> Iterator[Job]:
    rules = [chance.choice(among) for _ in range(LANES)]
    share = chance.choice((0.3, 0.6, 1.2))  # of the time: then all is published, about
    longest = share * seconds * LANES / tasks / (1 - BURST)
    for n in range(tasks):
        lane = chance.randrange(LANES)
        rule = rules[lane]
        is_plain = lane == 0 and chance.random() < 0.8
        prefix = f"{rule}-" if rule else "g"
        entity = "" if is_plain else f"{prefix}{lane}-{chance.randrange(2)}"
        type_ = chance.choices(_TYPES, _WEIGHTS)[0]
        if rule == "batches" and entity:
            type_ = "batch"
        yield Job(
            n=n,
            lane=lane,
            # In bursts: what comes one by one is done before the next one comes.
            wait=0.0 if chance.random() < BURST else chance.uniform(0.0, longest),
            type=type_,
            entity=entity,
            rule=rule if entity else "",
            twice=chance.random() < 0.08,
        )


def _maybe_cancelling(job: Job, chance: Random) -> Job:
    draw, cancels = chance.random(), chance.choice((0, 0, 1, 3))
    return replace(job, cancels=cancels) if draw < 0.2 else job


def _maybe_followed(job: Job, chance: Random) -> Job:
    asks, is_followed = chance.random() < 0.3, chance.random() < 0.3
    type_ = FOLLOWED if is_followed and job.type == "work" else job.type
    return replace(job, asks=asks, type=type_)


def _maybe_expiring(job: Job, chance: Random) -> Job:
    draw, expires = chance.random(), chance.choice(EXPIRIES)
    return replace(job, expires=expires) if draw < 0.4 else job


def _maybe_bounded(job: Job, lanes: set[int]) -> Job:
    """The same in its lane's one group, which lets few wait; where that has no other rule."""
    if job.rule or not job.entity or job.lane not in lanes:
        return job
    return replace(job, rule="full", entity=f"full-{job.lane}")


def _maybe_updating(job: Job, lanes: set[int], chance: Random) -> Job:
    """The same as an update of its lane's one entity, whose handler is mostly slower than these."""
    is_slow = chance.random() < 0.6
    if job.rule or not job.entity or job.lane not in lanes:
        return job
    type_ = "slow" if is_slow and job.type == "work" else job.type
    return replace(job, rule="newest", entity=f"newest-{job.lane}", type=type_)


def _maybe_brought(job: Job, chance: Random) -> Job:
    """Some are of the type that a deploy brings."""
    is_brought = chance.random() < 0.2
    return replace(job, type=BROUGHT) if is_brought and job.type == "work" else job


def _maybe_pooled(job: Job, chance: Random, entities: set[str], is_mixed: bool) -> Job:
    """Some are a pool's, except batches, which are handed to daemons alone."""
    draw, type_ = chance.random(), chance.choice(POOLED)
    is_pooled = draw < 0.3 if is_mixed or not job.entity else job.entity in entities
    return replace(job, type=type_) if is_pooled and job.rule != "batches" else job


def _strange(jobs: list[Job], chance: Random, layouts: Sequence[int]) -> list[Job]:
    """The same as many applications and tenants send them, with what is wrong in some."""
    tenants = [chance.choice(TENANTS) for _ in range(LANES)]
    strange: list[Job] = []
    for job in jobs:
        changes: dict[str, Any] = {"tenant": tenants[job.lane]}
        if chance.random() < 0.12:
            changes["priority"] = chance.choice((-20, 5, 30))
        if chance.random() < 0.1:
            changes["delay"] = chance.choice(DELAYS)
        if chance.random() < 0.06:
            changes["fill"] = chance.choice((300, READ_APART))
        if chance.random() < 0.06:
            changes["fat"] = chance.choice((60, MAX_HEADERS // 2))
        if chance.random() < 0.06:
            changes["shape"] = chance.choice(_SHAPES)
        if chance.random() < 0.1:
            changes["name"] = chance.choice(_ODD).format(n=job.n)
        own = {each.id for each in strange if each.tenant == tenants[job.lane]}
        others = [each for each in strange if each.id not in own and not each.shape]
        if others and chance.random() < 0.06 and not changes.get("shape"):
            other = chance.choice(others)
            named = replace(job, **changes | {"name": other.id})
            # In two partitions both would have that id, and nothing would tell them apart.
            if all(named.place(number) == other.place(number) for number in layouts):
                changes["name"] = other.id
        if changes.get("shape") == "no key" and not job.entity:
            changes["shape"] = "no object"
        strange.append(replace(job, **changes))
    return strange
