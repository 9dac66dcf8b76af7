"""The exit codes of the public contract, which supervisors rely on (sysexits.h for 69 and 78)."""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum

from groupflow.cli.options import say
from groupflow.core.errors import ConfigError, GroupflowError, ServerUnreachable, StoreUnavailable
from groupflow.core.masking import mask_secrets


class Exit(IntEnum):
    FINE = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 69
    CONFIG = 78
    INTERRUPTED = 130


def end_of(kept: Collection[object]) -> Exit:
    """How a verb ends that left some of what it was given as it was, by what kept each."""
    is_away = any(isinstance(each, StoreUnavailable) for each in kept)
    return Exit.UNAVAILABLE if is_away else Exit.FAILED if kept else Exit.FINE


def explain(error: GroupflowError) -> Exit:
    """Say on stderr, without passwords, what ended the command; its exit code."""
    if isinstance(error, ConfigError):
        where = f" in {error.source}" if error.source else ""
        _say(f"groupflow: the configuration can't be used{where}:")
        for problem in error.problems:
            _say(f"  {problem}")
        return Exit.CONFIG
    _say(f"groupflow: {error}")
    return Exit.UNAVAILABLE if isinstance(error, ServerUnreachable) else Exit.FAILED


def _say(line: str) -> None:
    say(mask_secrets(line), err=True)
