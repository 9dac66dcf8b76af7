"""Builds of a commit, as others have them: released, and installed apart from this repository."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.endtoend.process import REPOSITORY
from tests.programs import must, ran

HEAD = "HEAD"
# What an upgrade comes from: the first commit whose keys have the format that they have now. It
# moves on with each format and, once there are any, with each version.
PREVIOUS = "9c94ca9e09eb9cf7ffc7c6bdc59498508172aeda"


def released(folder: Path, commit: str = HEAD) -> Path:
    """All that `make release` makes of a commit, in this folder."""
    found = ran("git", "cat-file", "-e", f"{commit}^{{commit}}", folder=REPOSITORY)
    assert found.returncode == 0, (
        f"The commit {commit} is needed and isn't in this repository: it wants the whole history"
        " (git fetch --unshallow)"
    )
    must(".ci/release", commit, folder)
    return folder


def installed(package: Path, folder: Path, python: str | Path = sys.executable) -> Path:
    """An environment with a package and what it asks for; the tests' handlers lie beside it."""
    uv = must(".ci/setup", "uv").strip()
    must(uv, "venv", "--quiet", "--python", python, folder)
    must(uv, "pip", "install", "--quiet", "--python", folder / "bin/python", package)
    (folder / "tests").symlink_to(REPOSITORY / "tests")
    return folder


def build_of(commit: str, folder: Path) -> Path:
    """An environment below this folder, with the wheel of a commit in it."""
    (wheel,) = released(folder / f"released-{commit}", commit).glob("*.whl")
    return installed(wheel, folder / f"build-{commit}")
