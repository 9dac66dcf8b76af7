"""Publishing beside what a test does, until it has seen enough."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, cycle

from tests.endtoend.rig import Job, Rig

PAUSE = 0.1  # seconds between two batches: what is tested is not how many there are


def mixed(tasks: int, seed: int) -> list[Job]:
    """Tasks of a hot group, of many others, of several tenants, and plain ones, well mixed."""
    dice = random.Random(seed)
    jobs = []
    for n in range(tasks):
        entity = dice.choice([None, "hot", "contact", "invoice", "line:item", "租户"])
        tenant = dice.choice([1, 42, 43]) if entity != "hot" else 7
        facts = {"ms": dice.choice([0, 0, 1, 5])}
        type_ = dice.choice(["work", "work", "thread"])
        jobs.append(Job(f"t{n}", entity, tenant, n, type_, facts))
    return jobs


@contextmanager
def streaming(
    rig: Rig, job_of: Callable[[int], Job], sizes: Sequence[int] = (40,), *, most: int | None = None
) -> Iterator[None]:
    """Publish batches of these sizes for as long as the block takes.

    With `most` the next one comes when no more tasks than that are left; without, soon.
    """

    def left() -> int:
        return len(rig.jobs) - rig.count("done") - len(rig.dead())

    def publish(is_over: threading.Event) -> None:
        numbers = count()
        for size in cycle(sizes):
            rig.publish([job_of(next(numbers)) for _ in range(size)])
            if most is None:
                is_over.wait(PAUSE)
            else:
                rig.until(lambda: is_over.is_set() or left() < most, "room")
            if is_over.is_set():
                return

    with beside(publish):
        yield


@contextmanager
def beside(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Work in a thread for as long as the block takes; it is told when that is over."""
    is_over = threading.Event()
    with ThreadPoolExecutor(max_workers=1) as thread:
        running = thread.submit(work, is_over)
        try:
            yield
        finally:
            is_over.set()
        running.result()
