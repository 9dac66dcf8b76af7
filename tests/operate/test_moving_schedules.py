"""repartition takes schedules along: each lies where its ticks will lie, and goes on as it was."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

import pytest

from groupflow.operate.repartition import Repartition
from groupflow.operate.schedules import read_schedules
from groupflow.servers import RedisServer
from groupflow.store.keys import Keys
from groupflow.store.partitions import agree, keys_of
from tests.schedule.clockwork import Clockwork, defined, let_pass, rule
from tests.store.bench import Bench

RULES: list[dict[str, Any]] = [
    *(rule(f"grouped{n}", app="crm", tenant=n, body={"kind": "k"}) for n in range(8)),
    *(rule(f"plain{n}") for n in range(8)),
]


@pytest.fixture
async def make(redis_server: RedisServer) -> AsyncIterator[Any]:
    made: list[Bench] = []

    def make(keys: Keys) -> Bench:
        made.append(Bench(redis_server.url, keys=keys))
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def lying(benches: list[Bench]) -> dict[str, dict[str, Any]]:
    """All schedules by name; each lies in one partition, where the daemons look for it."""
    found: dict[str, dict[str, Any]] = {}
    for n, bench in enumerate(benches):
        assert bench.audit() == []
        for each in await read_schedules(bench.namespace):
            assert each.name not in found
            (definition,) = [d for d in defined(*RULES) if d.name == each.name]
            assert definition.place(len(benches)) == n
            found[each.name] = asdict(each) | {"daemon_age": 0}
    return found


def leave_gone(benches: list[Bench]) -> None:
    """Rows of configurations by which schedules lay elsewhere, which keep these out."""
    for home, other in itertools.permutations(benches, 2):
        known: Any = home.raw.zrange(home.keys("schedules"), 0, -1, withscores=True)
        for name, due in known:
            row: Any = home.raw.hgetall(home.keys("schedule", name.decode()))
            key = other.keys("schedule", name.decode())
            if b"gone" not in row and not other.raw.exists(key):
                other.raw.hset(key, mapping={**row, b"gone": b"1"})
                other.raw.zadd(other.keys("schedules"), {name: due})


async def test_they_go_where_their_ticks_will_lie(make: Any) -> None:
    known = {keys: make(keys) for count in (1, 3, 2) for keys in keys_of("moving", count)}
    benches = [known[keys] for keys in keys_of("moving", 1)]
    await agree(benches[0].client, 1)
    clock = Clockwork(*benches)
    clock.load(*RULES)
    await clock.look()
    let_pass(benches[0], 1, "plain1")
    await clock.look()
    before = await lying(benches)
    assert len(before) == len(RULES)
    for count in (3, 2, 1):
        clients = {keys: bench.client for keys, bench in known.items()}
        common = make(Keys("moving")).client
        await Repartition("moving", count, lambda k: clients.get(k, common)).run()  # noqa: B023
        benches = [known[keys] for keys in keys_of("moving", count)]
        after = await lying(benches)
        assert after == before
        leave_gone(benches)
        others = [bench for keys, bench in known.items() if bench not in benches]
        assert not any(bench.raw.keys(bench.keys("schedule*")) for bench in others)
