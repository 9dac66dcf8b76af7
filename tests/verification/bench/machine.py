"""Of what code and on what machine a figure is, without which it says nothing."""

from __future__ import annotations

import io
import os
import platform
import shutil
import subprocess
import tarfile
from importlib.metadata import version
from pathlib import Path

import orjson

from groupflow.servers import RabbitmqServer
from tests.programs import ran

REPOSITORY = Path(__file__).resolve().parents[3]
NODE = REPOSITORY / ".bench" / "node"
MEASURED = "groupflow"  # the package that daemons run
# What both sides of a pair are measured by.
MEASURING = ("tests/__init__.py", "tests/verification/__init__.py", "tests/verification/bench")
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
    return ran(found, *arguments).stdout.strip() if found else ""


def _rabbitmq() -> str:
    """Its libraries' folder is named for its version; to ask the program takes seconds."""
    home = Path(RabbitmqServer.binary()).resolve().parents[1]
    folders = [*home.glob("plugins/rabbit-*"), *home.glob("lib/*/plugins/rabbit-*")]
    return folders[0].name.removeprefix("rabbit-").removesuffix(".ez") if folders else ""


def is_dirty() -> bool:
    """Whether files outside docs/, into which the benchmark writes, differ from their commit."""
    return bool(_git("status", "--porcelain", "--", ".", ":!docs").strip())


def resolve(name: str) -> str:
    """The full hash of a commit.

    Raises:
        subprocess.CalledProcessError: there is none of that name; git has said so.
    """
    return _git("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}").decode().strip()


def take(folder: Path, commit: str) -> Path:
    """Lay a commit's package into a folder that is made, with the benchmark of now."""
    with tarfile.open(fileobj=io.BytesIO(_git("archive", commit, MEASURED))) as archive:
        archive.extractall(folder, filter="data")
    return _add(folder, MEASURING)


def copy(folder: Path) -> Path:
    """Lay the package of the working tree into a folder that is made, with the benchmark."""
    return _add(folder, (MEASURED, *MEASURING))


def _add(folder: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        source, target = REPOSITORY / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target, ignore=ignored)
        else:
            shutil.copy(source, target)
    return folder


def _git(*arguments: str) -> bytes:
    return subprocess.run(
        ["git", *arguments], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True, timeout=60
    ).stdout
