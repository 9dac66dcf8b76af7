"""Simulations in processes of their own, some at a time."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeAlias, TypeVar

_Part = TypeVar("_Part")
Said: TypeAlias = tuple[int, list[str]]
"""A process's exit code, and the lines that it printed."""


def in_children(
    module: str, waiting: deque[_Part], arguments: Callable[[_Part], Sequence[str]], jobs: int
) -> Iterator[tuple[_Part, Said]]:
    """Run a module for each part that waits; each, as it ends. More may begin to wait meanwhile."""
    running: dict[Future[Said], _Part] = {}
    with ThreadPoolExecutor(jobs) as pool:
        while waiting or running:
            while waiting and len(running) < jobs:
                part = waiting.popleft()
                running[pool.submit(_run, module, arguments(part))] = part
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(ended), ended.result()


def _run(module: str, arguments: Sequence[str]) -> Said:
    command = [sys.executable, "-W", "ignore", "-m", module, "--child", *arguments]
    # However long that takes: `make sim` is stopped by hand.
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=None)
    # Ids have any characters, those that end lines for `splitlines` too.
    return child.returncode, [*filter(None, child.stdout.split("\n"))]
