"""The layers of the architecture, as `pyproject.toml` states them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_layers_are_kept() -> None:
    """Only the store knows Redis, only the broker AMQP, and nobody imports upwards."""
    linter = Path(sys.executable).with_name("lint-imports")
    found = subprocess.run(
        [linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "4 kept, 0 broken" in found.stdout
