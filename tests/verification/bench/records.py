"""What a run did: number, start and end of each task; and whether it kept its promises.

A record is three 64-bit integers: the task's number, and CLOCK_MONOTONIC in nanoseconds when its
handler began and ended. They are kept in memory and written when the run is over, by each process
in the same format, so that one reader and one checker serve all.

Processor time of ours and of Redis is noted by the daemon that is measured while it drains, between
two of its own tasks, so that no start, no end and no waiting is in it. The kernel's clock of a
process has nanoseconds, where /proc has hundredths of a second.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import clock_gettime, monotonic_ns, perf_counter, process_time

from tests.verification.bench.load import Load

WARM = 0.1
"""The share of a load after which the clocks are looked at first; the last look is as much before
the end."""


class Recorder:
    """Keeps records in memory."""

    def __init__(self) -> None:
        self._flat = array("q")

    def add(self, number: int, start: int, end: int) -> None:
        """Keep one record; times in nanoseconds."""
        self._flat.extend((number, start, end))

    def __len__(self) -> int:
        return len(self._flat) // 3

    def write(self, path: Path) -> None:
        """Write all records; the file appears whole or not at all."""
        part = path.with_suffix(".part")
        part.write_bytes(self._flat.tobytes())
        part.rename(path)


def cost_of_a_record() -> float:
    """Microseconds that one record costs, with both looks at the clock."""
    recorder, times = Recorder(), 50_000
    began = perf_counter()
    for number in range(times):
        start = monotonic_ns()
        recorder.add(number, start, monotonic_ns())
    return (perf_counter() - began) / times * 1e6


@dataclass(frozen=True, slots=True)
class Records:
    """All records of a run: number, start and end of each task, in the order of their starts."""

    rows: list[tuple[int, int, int]]

    @classmethod
    def read(cls, path: Path) -> Records:
        """The records that a process wrote."""
        flat = array("q")
        flat.frombytes(path.read_bytes())
        rows = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        return cls(sorted(rows, key=lambda row: row[1]))

    @property
    def rate(self) -> float:
        """Tasks a second between the first start and the last end: starting up doesn't count."""
        last = max(end for _, _, end in self.rows)
        return len(self.rows) * 1e9 / max(1, last - self.rows[0][1])

    @property
    def handler_seconds(self) -> float:
        """How long a handler ran on average, as measured: a timer is coarse."""
        return fmean(end - start for _, start, end in self.rows) / 1e9

    def starts(self) -> dict[int, int]:
        """When each task first started, in nanoseconds."""
        return {number: start for number, start, _ in reversed(self.rows)}

    def check(self, load: Load) -> str:
        """How often a group ran out of order or beside itself, or a task not once; "" for never."""
        found = dict.fromkeys(("out of order", "overlapping", "missing", "run twice"), 0)
        last: dict[int, tuple[int, int]] = {}  # group → highest number started, latest end
        seen: set[int] = set()
        for number, start, end in self.rows:
            group = load.group_of(number)
            highest, latest = last.get(group, (-1, 0))
            found["run twice"] += number in seen
            found["out of order"] += number < highest
            found["overlapping"] += start < latest
            seen.add(number)
            last[group] = (max(highest, number), max(latest, end))
        found["missing"] = load.tasks - len(seen)
        return ", ".join(f"{n:,} {what}" for what, n in found.items() if n)


def cpu_of(pid: int) -> float:
    """Seconds of processor time that a process has used so far, all threads; 0 where it is gone."""
    try:
        return clock_gettime((~pid << 3) | 2)  # its clock, as clock_getcpuclockid(3) has it
    except OSError:
        return 0.0


def marks(tasks: int) -> tuple[int, int]:
    """After how many tasks the clocks are looked at."""
    warm = max(1, int(tasks * WARM))
    return warm, tasks - warm


def looks(tasks: int, redis: int, path: Path) -> Mapping[int, Callable[[], None]]:
    """What to call after so many tasks: notes both clocks, and writes them at the last."""
    noted = array("d")

    def begin() -> None:
        noted.extend((process_time(), cpu_of(redis)))

    def end() -> None:
        begin()
        path.write_bytes(noted.tobytes())

    return dict(zip(marks(tasks), (begin, end), strict=True))


def read_clocks(path: Path, tasks: int) -> tuple[float, float]:
    """Microseconds a task, of the daemon and of its Redis."""
    noted = array("d")
    noted.frombytes(path.read_bytes())
    own, redis, own_then, redis_then = noted
    first, last = marks(tasks)
    each = 1e6 / (last - first)
    return (own_then - own) * each, (redis_then - redis) * each
