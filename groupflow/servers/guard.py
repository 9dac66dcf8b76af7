"""Runs one server and outlives the asker, just long enough to clean up.

A script, not a module: ``python -I -S guard.py LOG SCRATCH COMMAND…``, standard library only, so
that it is up at once. Its stdin is a lifeline that the asker holds open and never writes to; the
kernel closes it however the asker dies, kill -9 included. Then, or when the server ends by itself,
the guard:

1. kills every process that the server started, those that made themselves daemons (RabbitMQ's epmd)
   too: as a *subreaper* the guard inherits them;
2. removes the folder SCRATCH (empty: none) if the lifeline ended, since no other process is left to
   do it.

It writes the server's process id to stdout, as one line. The server leads a process group of its
own with that id.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Run the command until it ends or the lifeline does."""
    log_path, scratch, *command = sys.argv[1:]
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    with Path(log_path).open("ab") as log:
        server = subprocess.Popen(  # noqa: S603  the command is the launcher's own
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            # In case the guard itself is killed. It is safe here: the guard forks from its main
            # thread, before any other runs.
            preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509
        )
    with suppress(OSError):  # the asker may be gone already; the lifeline will say so
        os.write(1, f"{server.pid}\n".encode())
    abandoned = threading.Event()
    threading.Thread(target=_watch_lifeline, args=(server.pid, abandoned), daemon=True).start()
    # We inherit the server's orphans, and reap them when they end.
    while os.waitpid(-1, 0)[0] != server.pid:
        pass
    server.returncode = 0  # else `Popen` would wait for the process again
    _kill_descendants()
    if scratch and abandoned.is_set():
        shutil.rmtree(scratch, ignore_errors=True)


def _watch_lifeline(group: int, abandoned: threading.Event) -> None:
    while os.read(0, 1):
        pass
    abandoned.set()
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _kill_descendants() -> None:
    """Kill and reap until no process that came from the server is left.

    Only children are looked for: those of a killed one become ours.
    """
    while True:
        for pid in _children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> Iterator[int]:
    """By ``/proc``; none where there is no ``/proc``."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended while we looked
            # "pid (name) state ppid …", and a name may hold any bytes, brackets too.
            if int(stat.read_bytes().rpartition(b")")[2].split()[1]) == os.getpid():
                yield int(stat.parent.name)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
