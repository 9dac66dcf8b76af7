"""Programs that tests run to their end."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.deadlines import SECONDS, deadline

REPOSITORY = Path(__file__).parents[1]


def ran(
    *command: str | Path,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    seconds: float = SECONDS,
) -> subprocess.CompletedProcess[str]:
    """A program that has ended, in a folder and an environment, or in those of this process."""
    return subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env=env,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=deadline(seconds),
        check=False,
    )


def must(
    *command: str | Path, folder: Path = REPOSITORY, seconds: float = 300.0, **how: Any
) -> str:
    """What a program says that has to succeed; `how` is as of `ran`."""
    ended = ran(*command, folder=folder, seconds=seconds, **how)
    assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"
    return ended.stdout
