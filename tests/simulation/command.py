"""What `make sim` does: runs seeds, and shows what a failing one did."""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.simulation import clock
from tests.simulation.plan import plan
from tests.simulation.redis_side import RealRedis
from tests.simulation.run import run


@contextmanager
def real_redis() -> Iterator[RealRedis]:
    """A private Redis on a Unix socket, which keeps nothing."""
    with tempfile.TemporaryDirectory(prefix="sim") as folder:
        path = Path(folder, "redis.sock")
        command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", ""]
        with subprocess.Popen(
            [*command, "--appendonly", "no"], stdout=subprocess.DEVNULL
        ) as server:
            try:
                while server.poll() is None:
                    with suppress(OSError):
                        real = RealRedis(str(path))
                        break
                    time.sleep(0.01)
                else:
                    raise SystemExit("redis-server did not start")
                yield real
            finally:
                server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(prog="make sim")
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--story", action="store_true")
    parser.add_argument("--events", default="")
    options = parser.parse_args()
    began, failed, busy = clock.real(), 0, time.process_time()
    died: Counter[str] = Counter()
    gc.freeze()
    with real_redis() as real:
        for seed in range(options.first, options.first + options.seeds):
            outcome = run(plan(seed), real)
            died.update(outcome.died_at)
            if options.events:
                for event in outcome.events:
                    if options.events in (event.group or event.id, event.id):
                        print(event)
            if options.story:
                print("\n".join(outcome.story))
                print(outcome.figures, outcome.digest[:12], f"{outcome.seconds:.1f} s")
            if outcome.violations:
                failed += 1
                print(f"seed {seed}:")
                for violation in outcome.violations[:10]:
                    print(f"  {violation}")
    took = clock.real() - began
    busy = (time.process_time() - busy) / options.seeds
    print(f"{options.seeds} seeds, {failed} failed, {options.seeds / took:.1f} a second")
    print(f"{busy:.3f} s of processor for each")
    sys.exit(bool(failed))
