"""The unit: as systemd reads it, as strict as it says; its times, its user, its folders."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from groupflow.flow.workforce import HAND_BACK
from groupflow.settings.model import Settings
from tests.deadlines import deadline

SYSTEMD = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = SYSTEMD / "groupflow@.service"
MOST_EXPOSED = 2.0


def value_of(name: str) -> str:
    """What the unit sets that once."""
    (found,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return str(found)


def call(*words: str) -> tuple[int, str]:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=deadline())
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
