"""What a run did: number, start and end of each task; and whether it kept its promises.

A record is three 64-bit integers: the task's number, and CLOCK_MONOTONIC in nanoseconds when its
handler began and ended. They are kept in memory and written when the run is over, by every process
in the same format, so that one reader and one checker serve all.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from time import monotonic_ns, perf_counter

from tests.verification.bench.load import Load


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
class Verdict:
    """How a run kept what is promised of groups.

    Attributes:
        disorder: tasks that started after one behind them in their group had.
        overlaps: tasks that started while another of their group ran.
        missing: tasks that never ran.
        doubles: runs of a task beyond its first.
    """

    disorder: int = 0
    overlaps: int = 0
    missing: int = 0
    doubles: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether it kept all of it."""
        return not (self.disorder or self.overlaps or self.missing or self.doubles)

    def __str__(self) -> str:
        counts = {
            "out of order": self.disorder,
            "overlapping": self.overlaps,
            "missing": self.missing,
            "run twice": self.doubles,
        }
        return ", ".join(f"{n:,} {what}" for what, n in counts.items() if n) or "kept"


@dataclass(frozen=True, slots=True)
class Records:
    """All records of a run.

    Attributes:
        rows: number, start and end of each task, in the order of their starts.
        cpu: microseconds of processor time that its process took a task; 0 where nobody looked.
        redis_cpu: the same of its Redis.
        redis_calls: round trips to Redis a task.
        intake_cpu: microseconds of processor time a message, before: from RabbitMQ into Redis.
        enqueue_cpu: the same of its Redis.
    """

    rows: list[tuple[int, int, int]] = field(default_factory=list)
    cpu: float = 0.0
    redis_cpu: float = 0.0
    redis_calls: float = 0.0
    intake_cpu: float = 0.0
    enqueue_cpu: float = 0.0

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Records:
        """The records that one or more processes wrote."""
        rows: list[tuple[int, int, int]] = []
        for path in paths:
            flat = array("q")
            flat.frombytes(path.read_bytes())
            rows += zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        return cls(sorted(rows, key=lambda row: row[1]))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return iter(self.rows)

    @property
    def rate(self) -> float:
        """Tasks a second between the first start and the last end: starting up doesn't count."""
        if not self.rows:
            return 0.0
        last = max(end for _, _, end in self.rows)
        return len(self.rows) * 1e9 / max(1, last - self.rows[0][1])

    @property
    def handler_seconds(self) -> float:
        """How long a handler ran on average, as measured: a timer is coarse."""
        return fmean(end - start for _, start, end in self.rows) / 1e9 if self.rows else 0.0

    def between(self, first: int, end: int) -> Records:
        """The records of the tasks numbered from `first` to before `end`, numbered from 0."""
        return Records([(n - first, at, to) for n, at, to in self.rows if first <= n < end])

    def starts(self) -> dict[int, int]:
        """When each task first started, in nanoseconds."""
        found: dict[int, int] = {}
        for number, start, _ in self.rows:
            found.setdefault(number, start)
        return found

    def check(self, load: Load, *, is_whole: bool = True) -> Verdict:
        """Whether each group ran in order, one at a time, and each task once.

        Args:
            load: what the run had to do.
            is_whole: whether it had the time to do all of it.
        """
        disorder = overlaps = doubles = 0
        last: dict[int, tuple[int, int]] = {}  # group → highest number started, latest end
        seen: set[int] = set()
        for number, start, end in self.rows:
            group = load.group_of(number)
            highest, latest = last.get(group, (-1, 0))
            doubles += number in seen
            disorder += number < highest
            overlaps += start < latest
            seen.add(number)
            last[group] = (max(highest, number), max(latest, end))
        missing = load.tasks - len(seen) if is_whole else 0
        return Verdict(disorder, overlaps, missing, doubles)
