"""What can go wrong with a private server, worded for whoever started it."""

from __future__ import annotations

from collections.abc import Sequence

from groupflow.core.errors import GroupflowError


class MissingServer(GroupflowError):
    """A server's program is not installed.

    Attributes:
        binaries: the programs that were looked for and not found.
    """

    def __init__(self, binaries: Sequence[str], remedy: str = "") -> None:
        self.binaries = tuple(binaries)
        what = " and ".join(self.binaries)
        # Debian's packages carry the names of their programs.
        how = remedy or f"apt-get install {' '.join(self.binaries)}"
        super().__init__(f"{what} not found. Install what is missing: {how}")


class ServerFailed(GroupflowError):
    """A private server ended, or stayed silent, before it was ready; its last words are shown."""


class PortTaken(ServerFailed):
    """The server ended because somebody else has one of its ports."""
