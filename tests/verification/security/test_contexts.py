"""A puller's token that fills Redis with contexts: 400 tasks advanced with 1 MiB each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from groupflow.flow.backpressure import Backpressure
from groupflow.servers import RedisServer
from groupflow.store.enqueue import Arrival
from tests.operate.spread import Spread
from tests.pools.shop import Worker, api_of, said
from tests.security.conftest import running
from tests.store.bench import arrival
from tests.store.test_pools import pooled

MEBIBYTE = 1024 * 1024
MAX_MEMORY = 192 * MEBIBYTE
TASKS = 400
AT_ONCE = 12  # settlements a call: a call's bytes are bounded
CONTEXT = "x" * (MEBIBYTE - 2)


def whose(made: Arrival, tenant: str) -> Arrival:
    return replace(made, envelope=replace(made.envelope, tenant=tenant))


async def test_contexts_of_one_tenant_stop_nobody_s_intake(tmp_path: Path) -> None:
    """Redis stays below its bound, intake goes on, and so do other tenants' stages."""
    with running(RedisServer(tmp_path / "redis")) as server:
        spread = Spread(server.url, 1)
        bench = spread.benches[0]
        redis = {"redis": {"max_memory": MAX_MEMORY}}
        try:
            await bench.enqueue(*(whose(pooled(f"a{n}"), "666") for n in range(TASKS)))
            await bench.enqueue(whose(pooled("b0"), "1"))
            async with api_of(spread.namespace, **redis) as api:
                thief = Worker(api, "thief")
                held = await thief.claim(TASKS + 1)
                assert len(held) == TASKS + 1
                theirs = [task for task in held if task["tenant"] == "666"]
                for at in range(0, TASKS, AT_ONCE):
                    told = [
                        said(task, "advance", stage="two", context=CONTEXT)
                        for task in theirs[at : at + AT_ONCE]
                    ]
                    assert set(await thief.settle(*told)) == {"accepted"}
                [innocent] = [task for task in held if task["tenant"] == "1"]
                told = [said(innocent, "advance", stage="two", context=CONTEXT)]
                assert await thief.settle(*told) == ["accepted"]
                status = await bench.status()
            memory: Any = bench.raw.info("memory")
            most = int(memory["used_memory_peak"])  # with what was on its way
            print(f"\nRedis: {most / MEBIBYTE:.1f} MiB at most, of {MAX_MEMORY / MEBIBYTE:.0f}")
            print(f"carried: {status.carried_bytes / MEBIBYTE:.1f} MiB")
            assert most < MAX_MEMORY / 2
            assert status.carried_bytes <= MAX_MEMORY / 4
            assert 1 < bench.count("advanced") < TASKS / 10
            assert bench.count("advanced") + bench.count("retried") == TASKS + 1
            assert bench.raw.hget(bench.keys("task_state", "b0"), "stage") == b"two"
            backpressure = Backpressure(bench.client, max_waiting=10**6, max_memory=MAX_MEMORY)
            assert await backpressure.reason((await bench.take_in(arrival("c0"))).queued) == ""
            assert bench.audit() == []
        finally:
            await spread.close()
