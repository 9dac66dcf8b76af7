"""The layers of the architecture, as `pyproject.toml` states them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tests.deadlines import deadline

ROOT = Path(__file__).parent.parent


def test_layers_are_kept() -> None:
    """Each server has one room that knows it, core does no I/O, and nobody imports upwards."""
    linter = Path(sys.executable).with_name("lint-imports")
    found = subprocess.run(
        [linter, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=deadline(),
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "6 kept, 0 broken" in found.stdout


def test_core_opens_no_file() -> None:
    """What needs no import the linter can't see: a file is opened, or something is printed."""
    calls = [
        (path.name, node.lineno)
        for path in (ROOT / "groupflow" / "core").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name) and node.id in {"open", "print", "input"}
    ]
    assert calls == []
