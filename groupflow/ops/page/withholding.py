"""What is withheld of a task from a caller without the token, where there is one.

A body, its headers and a handler's words about them belong to a tenant. Looking at the queue, which
may be open to all of a machine, doesn't show them. A reason repeats such words (a command's stderr,
an answer that echoes the body, a value that could not be routed): its kind is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from groupflow.operate.dead import DeadPage
from groupflow.operate.listing import Waiting
from groupflow.operate.scans import ScanStory
from groupflow.operate.tasks import Found

WITHHELD = "(shown with the token)"


_Shown = TypeVar("_Shown", Found, Waiting)


def without_words(errors: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Failed attempts by their number, kind, time and daemon, without their words."""
    shown = ({name: fact for name, fact in e.items() if name != "traceback"} for e in errors)
    return [{**error, "message": WITHHELD} for error in shown]


def withheld(tasks: Sequence[_Shown]) -> list[_Shown]:
    """Tasks without the words of their failed attempts."""
    return [replace(task, errors=without_words(task.errors)) for task in tasks]


def withheld_find(found: Found) -> Found:
    """The same for one task, with the kind in place of a dead one's reason."""
    kind = found.errors[-1]["error"] if found.errors else ""
    reason = None if found.reason is None else kind or WITHHELD
    return replace(found, reason=reason, errors=without_words(found.errors))


def withheld_page(page: DeadPage) -> DeadPage:
    """Dead letters by their kind alone."""
    letters = [replace(letter, reason=letter.kind or WITHHELD) for letter in page.letters]
    return replace(page, letters=letters)


def withheld_scans(scans: Sequence[ScanStory]) -> list[ScanStory]:
    """Scans without their databases' words."""
    return [replace(scan, trouble=WITHHELD if scan.trouble else "") for scan in scans]
