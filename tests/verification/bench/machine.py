"""On what a run ran: machine and versions. A figure without them says nothing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import orjson

from groupflow.servers import RabbitmqServer
from tests.verification.bench.peers import NODE

_PACKAGES = ("groupflow", "uvloop", "redis", "hiredis", "aio-pika", "aiormq")


def describe() -> dict[str, str]:
    """Machine and versions, by name."""
    facts = {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "Python": platform.python_version(),
        "Redis": _said("redis-server", "--version").partition("v=")[2].partition(" ")[0],
        "RabbitMQ": _rabbitmq(),
        "Node": _said("node", "--version").lstrip("v"),
        **{name: version(name) for name in _PACKAGES},
    }
    for name in ("groupmq", "ioredis"):
        file = NODE / "node_modules" / name / "package.json"
        facts[name] = orjson.loads(file.read_bytes())["version"] if file.exists() else "missing"
    return {name: value or "unknown" for name, value in facts.items()}


def processor_ticks() -> tuple[int, int]:
    """Processor time that a virtual machine was due and its host gave to others, and all time.

    The kernel's own count (proc(5), the first line of /proc/stat). A figure from minutes in which a
    tenth was stolen is a figure about the host.
    """
    ticks = [int(n) for n in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    return ticks[7], sum(ticks)


def _processor() -> str:
    behind = Path("/proc/cpuinfo").read_text().partition("model name")[2]
    return behind.partition(":")[2].partition("\n")[0].strip()


def _said(program: str, *arguments: str) -> str:
    found = shutil.which(program)
    if found is None:
        return ""
    answer = subprocess.run(
        [found, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    return answer.stdout.strip()


def _rabbitmq() -> str:
    """Its libraries' folder is named for its version; to ask the program takes seconds."""
    home = Path(RabbitmqServer.binary()).resolve().parents[1]
    folders = [*home.glob("plugins/rabbit-*"), *home.glob("lib/*/plugins/rabbit-*")]
    return folders[0].name.removeprefix("rabbit-").removesuffix(".ez") if folders else ""
