"""The daemon works under the unit's filters of system calls, sockets and memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from groupflow.servers import RabbitmqServer, RedisServer
from tests.deadlines import deadline
from tests.deploy.test_systemd import UNIT
from tests.endtoend.process import groupflow
from tests.endtoend.rig import Job, Rig

CONFINED = Path(__file__).with_name("confined.py")


def confined(*command: str) -> list[str]:
    return [sys.executable, str(CONFINED), str(UNIT), *command]


@pytest.mark.parametrize(
    "statement",
    [
        "import os; os.chroot('/')",
        "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC)",
        "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    ],
)
def test_each_filter_holds(statement: str) -> None:
    words = confined(sys.executable, "-c", statement)
    found = subprocess.run(words, capture_output=True, check=False, timeout=deadline())
    assert b"Operation not permitted" in found.stderr


def test_a_daemon_works_under_them(
    tmp_path: Path,
    rabbitmq_server: RabbitmqServer,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All kinds of handlers that run here: coroutines, threads, commands; then an orderly end."""
    seen = tmp_path / "seen"
    command = ["/bin/sh", "-c", f"cat >>{seen}; uname >>{seen}"]
    handlers: dict[str, Any] = {'handlers."command"': {"exec": command, "timeout": 60.0}}
    rig = Rig(tmp_path, rabbitmq_server, redis_server, **handlers)
    monkeypatch.setattr("tests.endtoend.rig.groupflow", lambda *words: confined(*groupflow(*words)))
    daemon = rig.start("host-1")
    assert "Seccomp:\t2\n" in Path(f"/proc/{daemon.pid}/status").read_text()
    kinds = ("work", "thread", "command")
    jobs = [Job(f"{kind}-{n}", f"e{n % 2}", n=n, type=kind) for kind in kinds for n in range(4)]
    try:
        rig.publish(jobs)
        rig.wait_for_all()
        assert rig.dead() == []
        assert seen.read_text().count("Linux") == 4
        assert daemon.stop() == 0
    finally:
        rig.close()
