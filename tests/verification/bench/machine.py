"""On what a run ran: machine and versions. A figure without them says nothing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import orjson

from groupflow.servers import MissingServer, RabbitmqServer
from tests.databases import Postgres
from tests.verification.bench.peers.running import NODE

_PACKAGES = ("groupflow", "uvloop", "redis", "hiredis", "aio-pika", "aiormq", "procrastinate")

SHORT = 50  # ticks, half a second of one core: too few to tell a share


def describe() -> dict[str, str]:
    """Machine and versions, by name."""
    facts = {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "Python": platform.python_version(),
        "Redis": _said("redis-server", "--version").partition("v=")[2].partition(" ")[0],
        "RabbitMQ": _rabbitmq(),
        "Node": _said("node", "--version").lstrip("v"),
        "PostgreSQL": _postgres(),
    }
    for name in _PACKAGES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = "not installed"
    for name in ("groupmq", "ioredis"):
        file = NODE / "node_modules" / name / "package.json"
        facts[name] = orjson.loads(file.read_bytes())["version"] if file.exists() else "missing"
    return {name: value or "unknown" for name, value in facts.items()}


class Stolen:
    """Processor time that a virtual machine was due and its host gave to others.

    The kernel's own count (proc(5), the first line of /proc/stat). A figure from minutes in which a
    tenth was stolen is a figure about the host.
    """

    def __init__(self) -> None:
        self._stolen, self._all = self._ticks()
        self._share = 0.0

    def share(self) -> float:
        """The stolen share of all processor time, idle time included, since the last look.

        Figures that come together were measured together: they have the same share.
        """
        stolen, everything = self._ticks()
        if everything - self._all > SHORT:
            self._share = (stolen - self._stolen) / (everything - self._all)
            self._stolen, self._all = stolen, everything
        return self._share

    @staticmethod
    def _ticks() -> tuple[int, int]:
        ticks = [int(n) for n in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
        return ticks[7], sum(ticks)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _said(program: str, *arguments: str) -> str:
    found = shutil.which(program)
    if found is None:
        return ""
    answer = subprocess.run(
        [found, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    return answer.stdout.strip()


def _postgres() -> str:
    try:
        return _said(Postgres.binary(), "--version").partition(") ")[2].partition(" ")[0]
    except MissingServer:
        return ""


def _rabbitmq() -> str:
    """Its libraries' folder is named for its version; to ask the program takes seconds."""
    home = Path(RabbitmqServer.binary()).resolve().parents[1]
    folders = [*home.glob("plugins/rabbit-*"), *home.glob("lib/*/plugins/rabbit-*")]
    return folders[0].name.removeprefix("rabbit-").removesuffix(".ez") if folders else ""
