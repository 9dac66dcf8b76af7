"""Processor time of ours and of Redis, noted by the daemon that is measured while it drains.

Between two of its own tasks, so that no start, no end and no waiting is in it. The kernel's clock
of a process has nanoseconds, where /proc has hundredths of a second.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import clock_gettime, process_time

WARM = 0.1
"""The share of a load after which the clocks are looked at first; the last look is as much before
the end."""


def clock_of(pid: int) -> int:
    """The clock of a process's processor time (clock_getcpuclockid(3)), for `clock_gettime`."""
    return (~pid << 3) | 2


def marks(tasks: int) -> tuple[int, int]:
    """After how many tasks the clocks are looked at."""
    warm = int(tasks * WARM)
    return max(1, warm), tasks - warm


def looks(tasks: int, redis: Sequence[int], path: Path) -> Mapping[int, Callable[[], None]]:
    """What to call after so many tasks: notes both clocks, and writes them at the last."""
    noted = array("d")
    clocks = [clock_of(pid) for pid in redis]
    first, last = marks(tasks)

    def begin() -> None:
        noted.extend((process_time(), sum(map(clock_gettime, clocks))))

    def end() -> None:
        noted.extend((process_time(), sum(map(clock_gettime, clocks))))
        path.write_bytes(noted.tobytes())

    return {first: begin, last: end}


def read(path: Path, tasks: int) -> tuple[float, float]:
    """Microseconds a task, of the daemon and of its Redis."""
    noted = array("d")
    noted.frombytes(path.read_bytes())
    own, redis, own_then, redis_then = noted
    first, last = marks(tasks)
    each = 1e6 / (last - first)
    return (own_then - own) * each, (redis_then - redis) * each
