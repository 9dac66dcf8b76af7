"""`python -m tests.verification.bench.measures`: what counting costs a task.

It is that of a task which is enqueued, claimed, handled and settled in exchanges of 16, in CPU time
of this process, so that a busy machine tells much the same. `make bench ROWS=cost BASE=…` has what
a change of it costs a daemon.
"""

from __future__ import annotations

from time import perf_counter, process_time

from groupflow import Task
from groupflow.core.measures import IntakeMeasures, PoolMeasures, ScriptMeasures, Types
from groupflow.flow.counting import count_batch, count_exchange
from groupflow.store.enqueue import Arrival, Enqueued
from groupflow.store.envelope import Envelope
from groupflow.store.given import Claim
from groupflow.store.settlements import Complete, Settlement

TYPE = "import.contacts"
WORKERS = 16


def cost(repeats: int = 20_000) -> float:
    """Microseconds a task for all that is counted on its way."""
    types = Types([TYPE, *(f"other.{n}" for n in range(20))])
    pool, intake, scripts = PoolMeasures(types), IntakeMeasures(), ScriptMeasures()
    task = Task(id="t", type=TYPE)
    claims = [Claim(f"w-{n}", n, b"", task, None, waited=0.012 * n) for n in range(WORKERS)]
    settled: list[Settlement] = [Complete(claim) for claim in claims]
    envelope = Envelope(TYPE, "g", "1", "r", {}, b"{}")
    arrivals = [Arrival(str(n), envelope) for n in range(WORKERS)]
    enqueued = Enqueued(0, [True] * WORKERS)
    began = process_time()
    for _ in range(repeats):
        count_batch(intake, arrivals, enqueued)
        scripts.observe("enqueue", 0.001)
        count_exchange(pool, settled, [], claims)
        scripts.observe("exchange", 0.001)
        for _ in claims:
            then = perf_counter()
            pool.types.of(TYPE).handling.observe(perf_counter() - then)
    return (process_time() - began) / repeats / WORKERS * 1e6


if __name__ == "__main__":
    print(f"{min(cost() for _ in range(5)):.2f} µs a task")
