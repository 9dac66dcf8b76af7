"""Of what code a figure is: its commit, whether files differ from it; older code in a folder."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tests.verification.bench.daemons import REPOSITORY

MEASURED = "groupflow"  # the package that daemons run
# What both sides of a pair are measured by.
MEASURING = ("tests/__init__.py", "tests/verification/__init__.py", "tests/verification/bench")


class NoSuchCommit(Exception):
    """Git has no such commit here, or there is no git; the message says what it said."""


@dataclass(frozen=True, slots=True)
class Source:
    """Some state of the code.

    Attributes:
        commit: its full hash; "unknown" without git.
        is_dirty: whether files outside docs/ differ from it, or are not in it. (The benchmark
            itself writes into docs/.)
    """

    commit: str
    is_dirty: bool

    @classmethod
    def here(cls) -> Source:
        """This working tree's."""
        try:
            changed = _git("status", "--porcelain", "--", ".", ":!docs").strip()
            return cls(resolve("HEAD"), bool(changed))
        except NoSuchCommit:
            return cls("unknown", is_dirty=True)


def resolve(name: str) -> str:
    """The full hash of a commit that somebody named.

    Raises:
        NoSuchCommit: there is none of that name.
    """
    return _git("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}").decode().strip()


def take(folder: Path, commit: str = "") -> Path:
    """Lay a commit's package, or that of the working tree, into a folder that is made.

    It gets the benchmark of now to be measured by.
    """
    ignored = shutil.ignore_patterns("__pycache__")
    if commit:
        with tarfile.open(fileobj=io.BytesIO(_git("archive", commit, MEASURED))) as archive:
            archive.extractall(folder, filter="data")
    for name in MEASURING if commit else (MEASURED, *MEASURING):
        source, target = REPOSITORY / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignored)
        else:
            shutil.copy(source, target)
    return folder


def _git(*arguments: str) -> bytes:
    try:
        return subprocess.run(
            ["git", *arguments], cwd=REPOSITORY, capture_output=True, check=True, timeout=60
        ).stdout
    except FileNotFoundError:
        raise NoSuchCommit("git is not installed") from None
    except subprocess.CalledProcessError as error:
        raise NoSuchCommit(error.stderr.decode(errors="replace").strip()) from None
