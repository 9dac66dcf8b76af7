"""The image of deploy/docker: as an ordinary user, on a root file system that can't be written."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from groupflow.servers.server import free_ports
from tests.endtoend.conftest import MakeRig
from tests.endtoend.process import REPOSITORY, Process, until
from tests.endtoend.rig import APP
from tests.endtoend.streams import mixed
from tests.programs import must, ran

# Like `docker run --read-only --tmpfs /tmp`, with a folder of ours mounted at its own path.
RUN = """
root=$1 folder=$2 user=$3; shift 3
mount --bind "$root" "$root"
mount --bind "$TESTS" "$root/app/tests"
mount -o remount,bind,ro "$root"
mount -t tmpfs -o mode=1777 none "$root/tmp"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mkdir -p "$root$folder"
mount --bind "$folder" "$root$folder"
exec chroot --userspec "$user" "$root" env --chdir /app "$@"
"""


@dataclass(frozen=True, slots=True)
class Image:
    root: Path
    says: dict[str, Any]

    def command(self, folder: Path, *words: str | Path) -> list[str]:
        """Run something in it, as it says; the folder is the one that may be written."""
        shell = ("unshare", "--mount", "sh", "-ec", RUN, "run")
        return [str(each) for each in (*shell, self.root, folder, self.says["User"], *words)]

    @property
    def environment(self) -> dict[str, str]:
        own = dict(each.split("=", 1) for each in self.says["Env"])
        return {**own, "TESTS": str(REPOSITORY / "tests")}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    if os.geteuid() != 0:
        pytest.skip("only root can build it, and run it like this")
    folder = tmp_path_factory.mktemp("image")
    must(".ci/image", folder, seconds=1200.0)
    (folder / "root/app/tests").mkdir()
    says = json.loads((folder / "image.json").read_text())
    yield Image(folder / "root", says["Docker"]["config"])
    shutil.rmtree(folder)


@pytest.mark.timeout(1500)
def test_a_daemon_of_the_image(make_rig: MakeRig, image: Image) -> None:
    """It runs tasks, answers its own health check, writes nowhere, and leaves at SIGTERM."""
    (port,) = free_ports(1)
    rig = make_rig(http={"listen": f"127.0.0.1:{port}"})
    rig.folder.chmod(0o777)
    options = ("--config", rig.config, "--app", APP, "--name", "d1")
    command = image.command(rig.folder, *image.says["Entrypoint"], *image.says["Cmd"], *options)
    environment = {"HISTORY_FILE": str(rig.journal.path), **image.environment}
    daemon = Process("d1", command, environment, rig.folder / "d1.log")
    with closing(daemon):
        daemon.wait_for("daemon.started")
        rig.publish(mixed(60, seed=37))
        rig.wait_for_all()
        # Before it an init stands, which reaps what commands leave behind, and hands signals on.
        init = psutil.Process(daemon.pid)
        assert init.name() == "tini"
        (main,) = init.children()
        process = Path(f"/proc/{main.pid}")
        lines = (process / "status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines)
        assert status["Uid"].split() == ["10001"] * 4
        assert int(status["CapEff"], 16) == 0
        mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
        options_of = {mount[4]: mount[5].split(",") for mount in mounts}
        assert "ro" in options_of["/"]
        how, *check = image.says["Healthcheck"]["Test"]
        assert how == "CMD"
        words = [each.replace(":9464/", f":{port}/") for each in check]
        look = image.command(rig.folder, *words)
        until(lambda: ran(*look, env=image.environment).returncode == 0, daemon.tail)
        assert daemon.stop() == 0, daemon.tail()
    assert rig.judge(with_faults=False) == []
