"""The unit: as systemd reads it, as strict as it says, and a daemon works under its filters."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from groupflow.flow.workforce import HAND_BACK
from groupflow.settings.model import Settings
from tests.endtoend.process import groupflow
from tests.endtoend.rig import Job, Rig
from tests.programs import ran

SYSTEMD = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = SYSTEMD / "groupflow@.service"
MOST_EXPOSED = 2.0


def value_of(name: str) -> str:
    """What the unit sets that once."""
    (found,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return str(found)


def call(*words: str) -> tuple[int, str]:
    done = ran(*words)
    return done.returncode, done.stdout + done.stderr


def test_systemd_s_own_checkers_are_content(tmp_path: Path) -> None:
    """Of the unit with a command that is there, without which `verify` can't do."""
    program, text = Path(sys.executable).with_name("groupflow"), UNIT.read_text()
    assert "ExecStart=/opt/groupflow/venv/bin/groupflow run " in text
    unit = tmp_path / UNIT.name
    unit.write_text(text.replace("/opt/groupflow/venv/bin/groupflow", str(program)))
    analyze = ("systemd-analyze", "--no-pager")
    assert call(*analyze, "verify", str(unit)) == (0, "")
    code, report = call(*analyze, "security", "--offline=true", str(unit))
    level = re.search(r"Overall exposure level .*: ([0-9.]+)", report)
    assert (code, level is not None) == (0, True), report
    assert level is None or float(level[1]) <= MOST_EXPOSED


def test_its_times_fit_the_defaults() -> None:
    workers = Settings().workers
    assert float(value_of("TimeoutStopSec")) > workers.drain + HAND_BACK
    assert float(value_of("WatchdogSec")) > Settings().redis.timeout
    assert value_of("RestartPreventExitStatus") == "2 78"


def test_user_and_folders_are_made(tmp_path: Path) -> None:
    """By systemd's own programs, in a root of their own."""
    (tmp_path / "etc").mkdir()
    for program, options, fine in (
        ("sysusers", (), {0}),
        ("tmpfiles", ("--create",), {0, 73}),  # 73: an ordinary user can't give folders to root
    ):
        folder = tmp_path / "usr" / "lib" / f"{program}.d"
        folder.mkdir(parents=True)
        shutil.copy(SYSTEMD / f"{program}.conf", folder / "groupflow.conf")
        code, said = call(f"systemd-{program}", f"--root={tmp_path}", *options)
        assert code in fine, said
    assert f"{value_of('User')}:" in (tmp_path / "etc/passwd").read_text()
    assert (tmp_path / "etc/groupflow").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "etc/groupflow/secrets").stat().st_mode & 0o777 == 0o700


CONFINED = Path(__file__).with_name("confined.py")


def confined(*command: str) -> list[str]:
    return [sys.executable, str(CONFINED), str(UNIT), *command]


REFUSED = [
    "import os; os.chroot('/')",
    "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC)",
    "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
]


@pytest.mark.parametrize("statement", REFUSED)
def test_each_filter_holds(statement: str) -> None:
    words = confined(sys.executable, "-c", statement)
    assert "Operation not permitted" in ran(*words).stderr


def test_a_daemon_works_under_them(
    tmp_path: Path, rabbitmq_server: Any, redis_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All kinds of handlers that run here: coroutines, threads, commands; then an orderly end."""
    seen = tmp_path / "seen"
    command = ["/bin/sh", "-c", f"cat >>{seen}; uname >>{seen}"]
    handlers: dict[str, Any] = {'handlers."command"': {"exec": command, "timeout": 60.0}}
    rig = Rig(tmp_path, rabbitmq_server, redis_server, **handlers)
    monkeypatch.setattr(
        "tests.endtoend.rig.groupflow", lambda *words, build: confined(*groupflow(*words))
    )
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
