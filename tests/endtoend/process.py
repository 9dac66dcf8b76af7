"""Daemons as real processes, and how a test waits: for conditions, never for a time to pass."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import orjson

from tests.deadlines import deadline

LOOK = 0.01
REPOSITORY = Path(__file__).resolve().parents[2]


def groupflow(*words: str | Path, build: Path = REPOSITORY) -> list[str]:
    """A command line of `groupflow`, of this repository or of an environment with a build."""
    python = sys.executable if build == REPOSITORY else build / "bin/python"
    return [str(python), "-m", "groupflow", *map(str, words)]


def environment(**more: str) -> dict[str, str]:
    """That of this process, without what would be settings of groupflow, and with some more."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("GROUPFLOW_")}
    return kept | more


class Process:
    """A `groupflow run`, with its log."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: dict[str, str],
        log: Path,
        tree: Path = REPOSITORY,
    ) -> None:
        self.name = name
        self.log = log
        self._known: list[dict[str, Any]] = []
        self._end = 0  # of what is known of the log, in bytes
        self._file: IO[bytes] = log.open("ab")
        where: dict[str, Any] = {"cwd": tree, "env": env, "stdout": self._file}
        self._process = subprocess.Popen(command, **where, stderr=subprocess.STDOUT)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def events(self, name: str) -> list[dict[str, Any]]:
        """The lines of its log about one kind of event."""
        with self.log.open("rb") as log:
            log.seek(self._end)
            *whole, _begun = log.read().split(b"\n")
        self._known += [orjson.loads(line) for line in whole if line.startswith(b"{")]
        self._end += sum(len(line) + 1 for line in whole)
        return [event for event in self._known if event.get("event") == name]

    def wait_for(self, name: str, times: int = 1) -> dict[str, Any]:
        """Wait until its log has an event so many times; the last of them."""

        def is_said() -> bool:
            has_ended = not self.is_running  # a look before: what it said last is in the log then
            said = len(self.events(name)) >= times
            assert said or not has_ended, f"{self.name} ended without {name}:\n{self.tail()}"
            return said

        until(is_said, lambda: f"{self.name} never logged {name} {times} times:\n{self.tail()}")
        return self.events(name)[times - 1]

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def wait(self) -> int:
        """Wait for its end; its exit code."""
        try:
            return self._process.wait(deadline())
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end:\n{self.tail()}") from None

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.send(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def close(self) -> None:
        """End it, even where it is stopped."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
        self._file.close()

    def tail(self, characters: int = 4000) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-characters:]


def until(
    condition: Callable[[], bool],
    complaint: Callable[[], str] = lambda: "",
    seconds: float | None = None,
) -> None:
    """Wait until a condition holds, for no longer than a deadline."""
    end = time.monotonic() + (deadline() if seconds is None else seconds)
    while not condition():
        assert time.monotonic() < end, complaint()
        time.sleep(LOOK)  # between two looks at another process
