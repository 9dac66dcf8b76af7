"""Of what code a figure is: its commit, whether files differ from it; older code in a folder."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
MEASURED = "groupflow"  # the package that daemons run
# What both sides of a pair are measured by.
MEASURING = ("tests/__init__.py", "tests/verification/__init__.py", "tests/verification/bench")


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
