"""Messages of 15 MiB by the hundred, from one who may publish: what they cost Redis, and others.

Nothing here waits for a time: what is measured is Redis's own log of slow commands, the processes'
largest memory by the kernel's word, and how often another tenant's tasks have run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from groupflow.servers import RabbitmqServer
from tests.endtoend.raw import Properties, RawMessage, send_raw
from tests.endtoend.rig import Job
from tests.page.served import page_of, peak
from tests.verification.security.slow import MIB, longest, served

LARGE, NUMBER = 15 * MIB, 110
# Bytes of any of our processes: 450 to 540 MiB were seen, the more the busier the machine. All of
# these bodies at once would be three times that.
MOST = 640 * MIB
SLOW = 0.05  # seconds of a script, on a machine that has time for it


@pytest.mark.timeout(600)  # 1.6 GiB there and back, where all cores are busy
def test_a_daemon_with_a_hundred_workers_takes_them_as_they_fit(
    tmp_path: Path, rabbitmq_server: RabbitmqServer
) -> None:
    """All of them run, once each; and another tenant's task runs once beside them."""
    with served(tmp_path, rabbitmq_server, "", workers={"plain": 100, "grouped": 4}) as world:
        rig = world.rig
        for n in range(NUMBER):
            head = b'{"app_name":"plain","tenant_id":666,"n":%d,"x":"' % n
            body = head + b"x" * (LARGE - len(head) - 2) + b'"}'
            properties = Properties(message_id=f"large-{n}", message_type="work")
            send_raw(rig.rabbitmq.url, rig.queue, [RawMessage(body, properties)])
        rig.publish([Job("good", "good", tenant=7)])
        rig.wait_for_end("good")
        for n in range(NUMBER):
            rig.wait_for_end(f"large-{n}")
        starts = [event.id for event in rig.journal.read() if event.kind == "start"]
        assert sorted(starts) == sorted({*starts})
        # A script of ours takes about as long as one that reads as much as it may.
        # One that reads a body is slow with each of them.
        slowest = longest(world.raw, b"EVALSHA", but=NUMBER // 20)
        world.raw.set("floor", b"x" * 4 * MIB)
        for _ in range(8):
            world.raw.eval("return redis.call('GET', KEYS[1])", 1, "floor")
        assert slowest < max(SLOW, 5 * longest(world.raw, b"EVAL")), slowest
        sizes = [peak(pid) for pid in (world.daemon.pid, page_of(world.daemon))]
        assert max(sizes) < MOST, sizes
        assert world.daemon.events("lease.ended") == []
