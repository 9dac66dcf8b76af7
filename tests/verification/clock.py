"""A wall clock that can be set while a process runs: libfaketime, told through a file.

The monotonic clock stays true, as it does when an administrator or NTP sets the time.
"""

from __future__ import annotations

from pathlib import Path

_LIBRARY = "usr/lib/*/faketime/libfaketimeMT.so.1"  # of Debian's package libfaketime


class Clock:
    """The wall clock of the processes that are started with its environment.

    Attributes:
        can_be_set: whether libfaketime is there.
        environment: for the processes; empty where it isn't.
    """

    def __init__(self, file: Path) -> None:
        """A clock that is right.

        Args:
            file: where its shift is written; each process looks there once a second.
        """
        library = next(Path("/").glob(_LIBRARY), None)
        self.can_be_set = library is not None
        self.environment: dict[str, str] = {}
        self._file = file
        if library is not None:
            self.set(0.0)
            self.environment = {
                "LD_PRELOAD": str(library),
                "FAKETIME_TIMESTAMP_FILE": str(file),
                "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "NO_FAKE_STAT": "1",
            }

    def set(self, shift: float) -> None:
        """Let it be wrong by so many seconds."""
        written = self._file.with_suffix(".new")
        written.write_text(f"{shift:+.3f}\n")
        written.replace(self._file)
