"""cancel: messages ask that tasks be cancelled, each by the id that its publisher gave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from groupflow.store.client import Argument

CANCELLED_AT_ONCE = 100  # messages a script: bounds how long one may block Redis
BY_PUBLISHER: Final = b'["publisher",""]'  # who wants a task cancelled, and why

CancelVerdict: TypeAlias = Literal["requested", "over", "unknown"]
"""What a message came to that cancels a task; ``over``: the task has ended, or is a dead letter."""


class Named(NamedTuple):
    """A task as messages call it."""

    id: str  # the message's id; its task may have a derived one
    scope: str  # whose it is


@dataclass(frozen=True, slots=True)
class Cancel:
    """What became of a message that cancels a task."""

    verdict: CancelVerdict
    id: str = ""  # the task, where it is to be cancelled
    group: str = ""  # its group, empty for a plain one


def cancel_arguments(named: Sequence[Named]) -> list[Argument]:
    """What `cancel_named.lua` takes."""
    return [BY_PUBLISHER, *(each for task in named for each in task)]


def cancel_of(row: Sequence[bytes]) -> Cancel:
    """What it answers of one message."""
    verdict, *task = (each.decode() for each in row)
    return Cancel(verdict, *task)  # type: ignore[arg-type]
