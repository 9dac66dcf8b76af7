"""`python -m tests.verification.soak.figures`: how long recovery takes, over many trials each.

What needs a cluster is measured where `--only` names it. At the end of each round the history is
checked as in the end-to-end tests, unless the round leaves something behind on purpose.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from groupflow import Publisher
from groupflow.core.errors import GroupflowError
from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.settings.model import Settings
from tests.endtoend.conftest import rigs
from tests.endtoend.rig import Job, Rig
from tests.endtoend.streams import beside, streaming
from tests.history.events import published
from tests.running import run, running
from tests.servers.proxy import Proxy
from tests.servers.rabbitmq_cluster import RabbitmqCluster
from tests.servers.replicated import RedisCluster, until
from tests.verification.pacing import pause
from tests.verification.soak.world import amqp

LEASE = 8.0  # the default
BACKLOG = 2000  # tasks that wait while daemons are restarted
BUCKET = 0.5  # seconds, in which throughput may not be zero
PARTITIONS = 6

Round = Callable[[Rig, Random], list[float]]


def _settings(grouped: int = 16, plain: int = 0, **sections: dict[str, Any]) -> dict[str, Any]:
    workers = {"lease": LEASE, "grouped": grouped, "plain": plain}
    return {"workers": workers, "redis": {"timeout": Settings().redis.timeout}, **sections}


def _held(rig: Rig, id_: str) -> Job:
    """A task that runs until its daemon dies, and ends at once when another one has it."""
    return Job(id_, id_, facts={"gate": str(rig.gate("never")), "gate_once": True})


def taken_over(rig: Rig, chance: Random) -> list[float]:
    """Ten daemons with a task each are killed; another one takes them over."""
    rig.configure(**_settings(grouped=1))
    victims = rig.start_all(*(f"d{n}" for n in range(10)), arguments=("--only", "workers"))
    rig.start("intake", "--only", "intake")
    jobs = [_held(rig, f"held-{n}") for n in range(10)]
    rig.publish(jobs)
    held_by = {job.id: rig.wait_for_start(job.id).pid for job in jobs}
    rig.configure(**_settings(grouped=32))
    rig.start("heir", "--only", "workers")
    killed: dict[int, float] = {}
    for victim in victims:
        run(pause(chance.uniform(0.0, 0.5)))
        rig.kill(victim)
        killed[victim.pid] = time.monotonic()
    return [rig.wait_for_start(id_, 2).at - killed[pid] for id_, pid in held_by.items()]


def taken_up(rig: Rig, chance: Random) -> list[float]:
    """A daemon is killed, and started again under its name; counted from its start."""
    daemon, found = rig.start("d0"), []
    for n in range(10):
        rig.publish([_held(rig, f"held-{n}")])
        rig.wait_for_start(f"held-{n}")
        run(pause(chance.uniform(0.0, 0.3)))
        rig.kill(daemon)
        began = time.monotonic()
        daemon = rig.spawn("d0")
        found.append(rig.wait_for_start(f"held-{n}", 2).at - began)
    return found


def after_a_restart(server: str, times: int, rig: Rig, chance: Random) -> list[float]:
    """A server restarts; a message that is published on its return runs."""
    rig.start_all("d0", "d1", "d2")
    found = []
    for n in range(times):
        rig.publish([Job(f"before-{n}", f"g{n}")])
        rig.wait_for_start(f"before-{n}")
        run(pause(chance.uniform(0.5, 1.5)))
        run((rig.store if server == "redis" else rig.rabbitmq).restart())
        returned = time.monotonic()
        rig.publish([Job(f"after-{n}", f"g{n}")])
        found.append(rig.wait_for_start(f"after-{n}").at - returned)
    return found


def dead_peer(rig: Rig, chance: Random) -> list[float]:
    """The network swallows everything between ten daemons and RabbitMQ, and says nothing."""

    async def measure() -> list[float]:
        wires = [Proxy(rig.rabbitmq.port) for _ in range(10)]

        async def noticed(number: int) -> float:
            await pause(chance.uniform(0.0, 10.0))
            wires[number].hold("up", "down")
            began = time.monotonic()
            await asyncio.to_thread(daemons[number].wait_for, "intake.interrupted")
            return time.monotonic() - began

        try:
            daemons = []
            for number, wire in enumerate(wires):
                await wire.start()
                rig.configure(**_settings(rabbitmq={"url": amqp([wire])}))
                start = partial(rig.start, f"d{number}", "--only", "intake")
                daemons.append(await asyncio.to_thread(start))
            return list(await asyncio.gather(*map(noticed, range(10))))
        finally:
            for wire in wires:
                await wire.stop()

    return asyncio.run(measure())


def rolling_restart(rig: Rig, chance: Random) -> list[float]:
    """Three daemons are stopped and started one after another, under load; it may not hurt."""
    rig.configure(**_settings(plain=4))
    names = ("d0", "d1", "d2")
    daemons = dict(zip(names, rig.start_all(*names), strict=True))
    # Tasks of a third of a second, in forty groups.
    job = lambda n: Job(f"load-{n}", f"e{chance.randrange(40)}", n=n, facts={"ms": 333})  # noqa: E731
    with streaming(rig, job, (100,), most=BACKLOG):
        rig.until(lambda: len(rig.jobs) >= BACKLOG, "a backlog")
        began = time.monotonic()
        for name in names:
            assert daemons[name].stop() == 0, daemons[name].tail()
            daemons[name] = rig.start(name)
        ended = time.monotonic()
    rig.end(with_faults=False)
    starts = Counter(event.id for event in rig.events("start"))
    ends = Counter(int((event.at - began) / BUCKET) for event in rig.events("end"))
    least = min(ends[bucket] for bucket in range(int((ended - began) / BUCKET)))
    twice = sum(count > 1 for count in starts.values())
    print(f"{len(starts):,} tasks, {twice} twice, at least {least} in each {BUCKET} s", flush=True)
    return [ended - began]


GROUPS = 24
CALM = 3.0  # seconds of work before and behind a kill that belong to it


@contextmanager
def publishing(rig: Rig) -> Iterator[None]:
    """Three daemons, and groups that publish in a thread of their own while the block runs.

    Each group publishes its next message as soon as the one before it is confirmed.
    """

    async def publish(publisher: Publisher, group: str, is_over: threading.Event) -> None:
        n = 0
        while not is_over.is_set():
            job = Job(f"{group}-{n}", group, n=n)
            try:
                await publisher.publish(job.body, type=job.type, id=job.id)
            except GroupflowError:
                continue  # again, under the same id
            rig.jobs[job.id] = job
            rig.journal.write(published(job.id, job.group, str(job.tenant), n))
            n += 1
            await pause(0.02)

    async def publish_all(is_over: threading.Event) -> None:
        async with Publisher.from_config(rig.config) as publisher:
            await asyncio.gather(*(publish(publisher, f"g{n}", is_over) for n in range(GROUPS)))

    rig.start_all("d0", "d1", "d2")
    with beside(lambda is_over: asyncio.run(publish_all(is_over))):
        yield


def _works_on(rig: Rig, since: float, number: int | None = None) -> Callable[[], bool]:
    """Whether tasks, or those of a partition, have ended since then, and for long enough."""

    def is_so() -> bool:
        at = [each for each in _ends_of(rig, number) if each > since]
        return bool(at) and at[-1] - at[0] >= CALM

    return is_so


def _ends_of(rig: Rig, number: int | None) -> list[float]:
    ended = (event for event in rig.events("end") if event.how == "done")
    return sorted(e.at for e in ended if number is None or rig.partition_of(e) == number)


def killed_primary(rig: Rig, chance: Random) -> list[float]:
    """From the kill of a partition's primary until a task ended behind the longest pause."""
    cluster: RedisCluster = rig.store
    number = chance.randrange(len(rig.partitions))
    rig.until(_works_on(rig, time.monotonic(), number), "work before the kill")
    run(pause(chance.random()))
    leader = run(cluster.leader_of(rig.partitions[number]("count")))
    killed = time.monotonic()
    run(leader.kill())
    rig.until(lambda: len(run(cluster.leaders())) == 3, "another primary")
    rig.until(_works_on(rig, killed + 0.5, number), "work behind the fail-over")
    at = [each for each in _ends_of(rig, number) if each > killed - CALM]
    near = [(later - before, later) for before, later in pairwise(at) if later > killed]
    found = max(each for each in near if each[1] - each[0] < killed + CALM)[1] - killed
    run(leader.start())
    run(until(cluster.is_whole, "the cluster did not heal"))
    return [found]


def killed_leader(rig: Rig, _: Random) -> list[float]:
    """The longest that a group has no start when the node is killed that leads the most queues."""
    rig.until(_works_on(rig, time.monotonic()), "work before it")
    leaders = run(rig.rabbitmq.leaders())
    node = Counter(leaders[queue] for queue in rig.queues).most_common(1)[0][0]
    began = time.monotonic()
    run(node.kill())
    run(node.start())  # takes longer than the others need
    over = len(rig.jobs)
    rig.until(lambda: rig.is_over(over + 200), "200 tasks more")
    ended = time.monotonic()
    starts: dict[str, list[float]] = defaultdict(list)
    for event in rig.events("start"):
        if began - CALM <= event.at <= ended:
            starts[event.group or ""].append(event.at)
    return [max(b - a for at in starts.values() for a, b in pairwise(sorted(at)))]


@dataclass(frozen=True, slots=True)
class Figure:
    """What is measured, the goal in seconds, one round of trials, and the servers it needs."""

    name: str
    goal: str
    round: Round
    cluster: str = ""


FIGURES = (
    Figure("taken over by another daemon after kill -9, lease 8 s", "10", taken_over),
    Figure("taken up by the restarted daemon, from its start", "1", taken_up),
    Figure("back at work after Redis has returned", "3", partial(after_a_restart, "redis", 10)),
    Figure(
        "back at work after RabbitMQ has returned", "3", partial(after_a_restart, "rabbitmq", 5)
    ),
    Figure("a dead RabbitMQ connection is noticed", "35", dead_peer),
    Figure("rolling restart of three daemons", "", rolling_restart),
    Figure("a partition without work when its primary is killed", "3", killed_primary, "redis"),
    Figure("a group without a start when the leader is killed", "", killed_leader, "rabbitmq"),
)


@contextmanager
def _servers(cluster: str, folder: Path) -> Iterator[tuple[Any, Any]]:
    store: Any = (RedisCluster if cluster == "redis" else RedisServer)(folder / "redis")
    several = cluster == "rabbitmq"
    broker: Any = (RabbitmqCluster if several else RabbitmqServer)(folder / "rabbitmq")
    with running(broker), running(store):
        yield broker, store


def _measure(figure: Figure, trials: int, chance: Random) -> list[float]:
    found: list[float] = []
    settings = _settings()
    if figure.cluster == "redis":
        # No copies are waited for: with one replica a primary, there is none behind a fail-over.
        settings["redis"] |= {"partitions": PARTITIONS}
    folder = Path(tempfile.mkdtemp(prefix="groupflow-figures-"))
    with _servers(figure.cluster, folder) as (broker, store):
        if figure.cluster == "rabbitmq":
            settings["rabbitmq"] = {"url": broker.urls, "partitions": PARTITIONS}
        while len(found) < trials:
            place = Path(tempfile.mkdtemp(dir=folder))
            with rigs(place, broker, store, **settings) as make_rig:
                rig = make_rig()
                if not figure.cluster:
                    found += figure.round(rig, chance)
                    continue
                with publishing(rig):
                    while len(found) < trials:
                        found += figure.round(rig, chance)
                rig.end(with_faults=True)
    return found


def _row(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"{len(ordered)} | {statistics.median(ordered):.2f} | {p99:.2f} | {ordered[-1]:.2f}"


def main() -> None:
    """Measure the figures that are named, and print them as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=30, help="at least so many of each")
    parser.add_argument("--only", default="", help="a part of a figure's name")
    options = parser.parse_args()
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # broken connections are the point
    print("| figure | goal | trials | median s | p99 s | worst s |\n|---|---|---|---|---|---|")
    for figure in FIGURES:
        named = options.only.casefold() in figure.name.casefold()
        if named and (options.only or not figure.cluster):
            found = _measure(figure, options.trials, Random(1))
            print(f"| {figure.name} | {figure.goal} | {_row(found)} |", flush=True)


if __name__ == "__main__":
    main()
