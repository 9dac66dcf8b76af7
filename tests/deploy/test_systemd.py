"""The unit: as systemd reads it, as strict as it says, and the daemon lives under its filters."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


def analyze(*arguments: str) -> tuple[int, str]:
    found = subprocess.run(
        ["systemd-analyze", "--no-pager", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=deadline(),
    )
    return found.returncode, found.stdout + found.stderr


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit with a command that is there, which is all that `verify` can't do without."""
    program = Path(sys.executable).with_name("groupflow")
    text = UNIT.read_text()
    assert "ExecStart=/opt/groupflow/venv/bin/groupflow run " in text
    unit = tmp_path / UNIT.name
    unit.write_text(text.replace("/opt/groupflow/venv/bin/groupflow", str(program)))
    return unit


def test_systemd_has_nothing_to_say_against_it(installed: Path) -> None:
    assert analyze("verify", str(installed)) == (0, "")


def test_an_unknown_setting_would_be_noticed(installed: Path) -> None:
    installed.write_text(installed.read_text().replace("WatchdogSec=", "WatchDogSec="))
    assert "Unknown key 'WatchDogSec'" in analyze("verify", str(installed))[1]


def test_it_is_little_exposed(installed: Path) -> None:
    code, report = analyze("security", "--offline=true", str(installed))
    level = re.search(r"Overall exposure level .*: ([0-9.]+)", report)
    assert code == 0, report
    assert level is not None, report
    assert float(level[1]) <= MOST_EXPOSED


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
        found = subprocess.run(
            [f"systemd-{program}", f"--root={tmp_path}", *options],
            capture_output=True,
            check=False,
            timeout=deadline(),
        )
        assert found.returncode in fine, found.stderr
    assert f"{value_of('User')}:" in (tmp_path / "etc/passwd").read_text()
    assert (tmp_path / "etc/groupflow").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "etc/groupflow/secrets").stat().st_mode & 0o777 == 0o700
