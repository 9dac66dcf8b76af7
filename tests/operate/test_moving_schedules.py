"""repartition takes schedules along: each lies where its ticks will lie, and goes on as it was."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from typing import Any

from groupflow.operate.schedules import read_schedules
from tests.operate.moved import MakeWorld
from tests.schedule.clockwork import Clockwork, defined, let_pass, rule
from tests.store.bench import Bench

RULES: list[dict[str, Any]] = [
    *(rule(f"grouped{n}", app="crm", tenant=n, body={"kind": "k"}) for n in range(8)),
    *(rule(f"plain{n}") for n in range(8)),
]


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


async def test_they_go_where_their_ticks_will_lie(make_world: MakeWorld) -> None:
    world = make_world(1)
    await world.note()
    clock = Clockwork(*world.at(1))
    clock.load(*RULES)
    await clock.look()
    let_pass(world.at(1)[0], 1, "plain1")
    await clock.look()
    before = await lying(world.at(1))
    assert len(before) == len(RULES)
    for count in (3, 2, 1):
        await world.move(count)
        assert await lying(world.at(count)) == before
        leave_gone(world.at(count))
        tags = tuple(f"{bench.keys.tag}:schedule" for bench in world.at(count))
        assert all(name.startswith(tags) for name in world.names() if ":schedule" in name)
