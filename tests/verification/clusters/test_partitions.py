"""One namespace over several partitions, served by daemons that work for all of them."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

from groupflow.store.keys import Keys
from groupflow.store.partitions import keys_of, partition_of
from groupflow.store.scripts import Scripts, Verb
from tests.deadlines import short_lease
from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Job
from tests.endtoend.test_order import mixed


def test_all_that_holds_for_one_holds_for_four(make_rig: MakeRig) -> None:
    """Order, no overlap, nothing lost, nothing twice; each task where its group's hash says."""
    rig = make_rig(redis={"partitions": 4}, workers={"order": "fair"})
    daemons = rig.start_all("d1", "d2", "d3")
    jobs = mixed(600, seed=14)
    rig.publish(jobs[:400])
    rig.publish(jobs[300:])
    rig.end(with_faults=False)
    runs = Counter(event.pid for event in rig.events("start"))
    assert set(runs) == {daemon.pid for daemon in daemons}
    assert rig.count("duplicates") >= 100  # more where a busy machine lost a connection
    taken = [int(rig.raw.hget(keys("count"), "done") or 0) for keys in rig.partitions]
    places = Counter(partition_of(job.group, job.id, 4) for job in jobs)
    assert taken == [places[n] for n in range(4)]


def test_partitions_without_work_are_not_asked_while_one_has_some(make_rig: MakeRig) -> None:
    """Each is at the start; from then on it hears nothing of what others have to do."""
    rig = make_rig(redis={"partitions": 16})
    rig.start("d1")
    entities = [f"e{n}" for n in range(200) if partition_of(f"e{n}:42", "", 16) == 0]
    with rig.raw.monitor() as watch:
        rig.publish([Job(f"j{n}", entities[n % len(entities)], n=n) for n in range(400)])
        rig.wait_for_all()
        rig.raw.echo("over")
        asked = Counter(_asked_for_work(watch))
    rig.stop_all()
    assert rig.judge(with_faults=False) == []
    busy, *idle = (asked[keys.front] for keys in rig.partitions)
    assert busy >= 10
    assert max(idle) <= 2, "once in each pool, where the start's claims come late"


def _asked_for_work(watch: Any) -> Iterator[str]:
    """The partition of each claim and settlement that Redis has seen, up to the word."""
    scripts = Scripts("oldest", partitions=16)
    of_work = {scripts[verb].sha for verb in (Verb.EXCHANGE, Verb.HOP)}
    while (said := watch.next_command()["command"].split(" ", 4))[:2] != ["ECHO", "over"]:
        if said[0] == "EVALSHA" and said[1] in of_work:
            yield said[3]


def test_a_daemon_that_is_killed_leaves_nothing_in_any_partition(make_rig: MakeRig) -> None:
    rig = make_rig(redis={"partitions": 4}, workers={"lease": short_lease(2.0)})
    first, _ = rig.start_all("d1", "d2")
    gate = rig.gate()
    held = [Job(f"h{n}", f"e{n}", n=n, facts={"gate": str(gate)}) for n in range(12)]
    rig.publish(held)
    rig.until(lambda: len(rig.events("start")) >= 12, "twelve starts")
    rig.kill(first)
    gate.touch()
    rig.publish(mixed(200, seed=15))
    rig.end(with_faults=True)


def test_who_sleeps_while_a_namespace_is_moved_writes_nothing(make_rig: MakeRig) -> None:
    """A frozen daemon has messages in hand; it wakes, is told, and they come to who runs now."""
    rig = make_rig(redis={"partitions": 2}, workers={"lease": short_lease(2.0)})
    sleeper = rig.start("d1")
    jobs = mixed(120, seed=16)
    rig.publish(jobs[:40])
    rig.wait_for_all()
    sleeper.send(signal.SIGSTOP)
    rig.publish(jobs[40:])

    def is_moved() -> bool:
        return rig.call("repartition", "1", "--config", str(rig.config)).returncode == 0

    rig.until(is_moved, "the move, behind its lease")
    sleeper.send(signal.SIGCONT)
    assert sleeper.wait() == 78
    assert "has 1: set it to 1" in sleeper.tail()
    old = rig.partitions
    rig.configure(redis={"partitions": 1}, workers={"lease": short_lease(2.0)})
    rig.partitions = keys_of(rig.keys.namespace, 1)
    rig.start("d2")
    rig.end(with_faults=True)
    assert rig.raw.exists(*(keys(kind) for keys in old for kind in ("tasks", "daemons"))) == 0


def test_the_node_that_knows_the_number_is_needed_once(make_rig: MakeRig) -> None:
    """From then on each partition tells; another number is refused."""
    rig = make_rig(redis={"partitions": 2})
    rig.start("d1")
    rig.stop_all()
    rig.configure(redis={"partitions": 8})
    refused = rig.spawn("d2")
    assert refused.wait() == 78
    assert "has 2: set it to 2" in refused.tail()
    rig.configure(redis={"partitions": 2})
    common = Keys(rig.keys.namespace)("partitions")
    rig.raw.delete(common)
    rig.start("d2")
    rig.publish(mixed(40, seed=17))
    rig.wait_for_all()
    rig.stop_all()
    assert rig.raw.exists(common) == 0
    assert rig.judge(with_faults=False) == []


def test_of_two_with_one_name_the_later_lives_on(make_rig: MakeRig) -> None:
    """In all partitions, though in some of them the later one isn't known when the earlier asks."""
    rig = make_rig(redis={"partitions": 6}, workers={"lease": short_lease(2.0)})
    earlier = rig.start("d1")
    earlier.send(signal.SIGSTOP)
    later = rig.start("d1")
    for keys in rig.partitions[1::2]:  # as after a fail-over that lost its registration
        rig.raw.delete(keys("daemon", "d1"))
        rig.raw.zrem(keys("daemons"), "d1")
    earlier.send(signal.SIGCONT)
    assert earlier.wait() == 78
    assert "another process registered" in earlier.tail()
    rig.publish(mixed(60, seed=18))
    rig.wait_for_all()
    assert later.is_running
    assert not later.events("lease.ended")
    assert later.stop() == 0
