"""The auditor sees what it is there to see: one key in Redis gone wrong a case, and none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from groupflow.servers import RedisServer
from groupflow.store.keys import Keys
from tests.store.bench import Bench, arrival, bury

LAST = 9_999_999_999_999_999

# Which command contradicts the rest, and what the auditor says of it. An @ begins a key.
WRONG: list[tuple[list[object], str]] = [
    (["SET", "@odd", 1], "S9: the key"),
    (["HDEL", "@tasks", "b0"], "S1: b0 is in lane"),
    (["HSET", "@tasks", "gone", '["t",null,null,null,{},""]\n'], "S1: gone has an envelope and is"),
    (["HSET", "@tasks", "x0", '["t",null,null,null,{},""]\n'], "L7: x0 is over and its envelope"),
    (["HSET", "@history:new", "b0", f'{LAST:016d}["done"]'], "S6: b0 is in 2 places"),
    (["HSET", "@task_state:gone", "due", 1], "L7: gone has a task state and no envelope"),
    (["HDEL", "@task_state:d0", "reason"], "S1: the dead letter d0 has no reason"),
    (["HDEL", "@task_state:d0", "attempts"], "S5: the dead letter d0 doesn't say how many"),
    (["HDEL", "@task_state:d0", "type", "tenant"], "S9: d0 has to be read whole"),
    (["HSET", "@task_state:d0", "type", "else"], "S9: d0 is told to be"),
    (["HSET", "@task_state:d0", "scope", "else"], "S9: d0 is told to be of scope"),
    (["HSET", "@task_state:b0", "due", 1], "S5: b0 in lane"),
    (["RENAME", "@lane:b", "@lane:c"], "S9: b0 is in lane"),
    (["RPOPLPUSH", "@lane:b", "@lane:b"], "S4: the lane of b is out of order"),
    (["ZADD", "@quarantined_groups", 1, "b"], "S4: the group b is ready in two indexes"),
    (["ZADD", "@quarantined_groups", 1, "b"], "L6: the group b is in quarantined_groups"),
    (["ZADD", "@pool_ready:p", 1, "b"], "S8: the group b is ready in pool 'p'"),
    (["ZADD", "@held", LAST, "b"], "S4: the group b is ready and held at once"),
    (["ZADD", "@ready", 1, "a"], "S4: the group a is ready and running at once"),
    (["ZADD", "@ready", 1, "a"], "S4: the group a is ready, and as many run as may"),
    (["ZADD", "@ready", 1, "none"], "S4: the group none is ready with nothing in its lane"),
    (["HSET", "@paused", "b", "{}"], "S4: the group b is ready, though an operator holds it"),
    (["ZREM", "@ready", "b"], "S8: the group b has tasks, no lock, and can't be claimed"),
    (["HSET", "@parked", "c", '["gone"]'], "S8: c is parked behind no dead letter"),
    (["ZREM", "@daemons", "d1"], "S8: the daemon d1 has a lease or a session, not both"),
    (["ZREM", "@daemons", "d1"], "S8: the checkpoints of d1 are left"),
    (["SET", "@fence", 0], "S3: the fence"),
    (["DEL", "@lock:a"], "S4: w1 runs a without its lock"),
    (["SET", "@lock:a", "somebody"], "S4: w1 runs a, which b'somebody' has locked"),
    (["SET", "@lock:b", "somebody"], "S8: the group b is locked, and no worker runs it"),
    (["DEL", "@worker:d1"], "S8: the group a is locked, and no worker runs it"),
    (["HSET", "@runs", "b", f"{1:016d}"], "S8: b is said to have a run"),
    (["ZADD", "@sharing", 0, f"0001b{7:016d} d1 w1"], "S8: b'0000000000000007 d1 w1' is counted"),
    (["ZADD", "@pool_pullers:p", LAST, "pool/q/w"], "S9: pool/q/w stands among the workers of 'p'"),
    (["ZADD", "@pool_pullers:p", LAST, "pool/p/w"], "S8: the pool p has workers, and no name"),
    (["ZADD", "@pool_holders:p", 2, "pool/p/w"], "S7: workers of p hold"),
    (["ZADD", "@losing", LAST, "d9"], "L8: d9 lost a lease, and nothing says what"),
    (["RPUSH", "@lost:d9", "process"], "L8: d9 lost a lease, and nothing with it"),
    (["HSET", "@task_state:d0", "lost_leases", 1], "L8: d0 lost more leases than"),
    (["HINCRBY", "@count", "queued_grouped", 1], "S7: queued_grouped says"),
    (["HINCRBY", "@count", "running_plain", 1], "S7: running_plain says"),
    (["HINCRBY", "@count", "taken", 1], "S7: taken says"),
    (["HINCRBY", "@count", "asleep", 1], "S7: asleep says"),
    (["HINCRBY", "@count", "delayed_bytes", 1], "L7: delayed_bytes says"),
    (["HINCRBY", "@count", "dead_bytes", 1], "L7: dead_bytes says"),
    (["HINCRBY", "@count", "carried_bytes", 1], "L7: carried_bytes says"),
    (["HINCRBY", "@carried", "42", 1], "L7: tenants are said to carry"),
    (["HINCRBY", "@task_state:d0", "dead_bytes", 1], "L7: d0 counts"),
    (["ZREM", "@bodies", "d0"], "L7: the body of d0 is counted or listed, not both"),
    (["HSET", "@task_state:d0", "offset", 1], "S1: d0 knows half of the place of its body"),
    (["ZADD", "@late", LAST, "b0"], "L7: b0 is counted or listed as late, not both"),
    (["HSET", "@daemon:d1", "quarantined", f"{7:016d}"], "L6: d1 has the mark"),
    (["ZADD", "@ordered", 1, f"{1:016d}+d0"], "S6: d0 is in 2 places"),
    (["ZADD", "@quarantined_plain", 1, f"{1:016d}+d0"], "L6: d0 waits in quarantined_plain"),
    (["HSET", "@charged", 7, "--------42"], "S8: what is counted by tenant is not what is charged"),
    (["HSET", "@charged", 7, "--------42"], "S8: 7 counts for --------42, and runs no more"),
    (["ZADD", "@standing", 1, "--------42"], "L7: nothing of --------42 waits"),
    (["HSET", "@turns", "g--------42", "b"], "S8: b'b' has the turn of g--------42, and doesn't"),
    (["ZADD", "@waits:g--------42", 1, "b"], "S4: the groups that wait for turns are not where"),
    (["HSET", "@debouncing", "0001b t", f"{1:016d}{2:016d}.b0"], "S12: b0 may be replaced"),
    (["HSET", "@cancels", "a0", '"b0"'], "S12: a0 is to make way for b0, and runs by no claim"),
    (["HSET", "@cancels", "a0", '"b0"'], "S12: a0 is to make way for b0, which is another kind"),
    (["ZADD", "@expiring", LAST, "p0"], "S13: p0 may expire, and waits in no place for that"),
    (
        ["HSET", "@history:new", "x1", f'{1:016d}["expired","t",null,2,0,"{1:016d}",""]'],
        "S13: x1 exp",
    ),
    (["ZADD", "@schedules", 1, "daily"], "T1: the schedule daily has a row or a due time"),
]


@pytest.fixture
async def scene(redis_server: RedisServer) -> AsyncIterator[Bench]:
    """A group that runs, one that is ready, a plain task, a dead letter, a task that is done."""
    bench = Bench(redis_server.url, keys=Keys("audited"))
    await bench.enqueue(arrival("x0"), arrival("d0"))
    daemon = await bench.daemon()
    done, dead = await daemon.claim("plain", "w1", "w2")
    await daemon.complete(done)
    await daemon.settle(bury(dead))
    await bench.enqueue(*(arrival(f"{group}{n}", group) for group in "ab" for n in range(2)))
    await bench.enqueue(arrival("p0"))
    await daemon.claim_one()
    assert bench.judge() == []
    yield bench
    await bench.close()


async def test_each_contradiction_is_said(scene: Bench) -> None:
    sound, raw = scene.dump(), cast(Any, scene.raw)
    for command, said in WRONG:
        words = [str(word).replace("@", scene.keys.front) for word in command]
        raw.execute_command(*words)
        found = scene.audit()
        assert any(str(each).startswith(said) for each in found), (command, found)
        scene.restore(sound)
        assert scene.audit() == []


async def test_what_is_left_at_the_end_is_said(scene: Bench) -> None:
    """What belongs to tasks that aren't over; not totals, history, dead letters."""
    left = [each.text for each in scene.judge_drained() if each.invariant == "L7"]
    front = f"left behind: {scene.keys.front}"
    names = {text.removeprefix(front) for text in left}
    tasks = {f"tasks {id_}" for id_ in ("a0", "a1", "b0", "b1", "p0")}
    assert names == {"plain", "ready", "lane:a", "lane:b", "lock:a", "worker:d1", *tasks}
