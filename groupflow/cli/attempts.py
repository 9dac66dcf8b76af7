"""How the verbs print a task's failed attempts: when, how long, where, of what; the traceback."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from groupflow.cli.safe import say


def moment(seconds: float | None) -> str | None:
    """Unix seconds as people read them, in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def print_attempts(errors: Sequence[dict[str, Any]], indent: str = "  ") -> None:
    """Print them, the oldest first; what was no attempt of a daemon has less in it."""
    for error in errors:
        facts = [f"attempt {error.get('attempt', '-')}"]
        if "at" in error:
            facts += [str(moment(error["at"])), f"{error['seconds']:.3f} s on {error['daemon']}"]
        said = f": {error['message']}" if error["message"] else ""
        say(f"{indent}{', '.join(facts)}: {error['error']}{said}")
        for line in error.get("traceback", "").splitlines():
            say(f"{indent}    {line}")
