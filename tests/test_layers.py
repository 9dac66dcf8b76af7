"""The layers of the architecture, as `pyproject.toml` states them."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_core_opens_no_file() -> None:
    """What needs no import the linter can't see: a file is opened, or something is printed."""
    calls = [
        (path.name, node.lineno)
        for path in (ROOT / "groupflow" / "core").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name) and node.id in {"open", "print", "input"}
    ]
    assert calls == []
