"""Tells systemd: ready, stopping, and alive, as long as the loop and the claim path are.

The lease's thread feeds the watchdog: a handler may block the loop for longer than it waits.

The protocol (sd_notify(3)) is one datagram to a socket that the environment names. Outside systemd
there is none, and this module does nothing.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable

import structlog

log = structlog.get_logger("groupflow.supervisor")

MICROSECONDS = 1_000_000
_ALIVE = "WATCHDOG=1"
_WAIT = 1.0  # seconds for the manager to read, which stop the loop


class Supervisor:
    """Speaks to the service manager that started this process."""

    def __init__(self, address: str, watchdog: float) -> None:
        """Binds the socket's address: a path, or ``@`` and an abstract name; empty for no manager.

        The manager takes `watchdog` seconds of silence for death; 0 for no watchdog.
        """
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog = watchdog

    @classmethod
    def from_environment(cls) -> Supervisor:
        """The service manager that the environment names, if any."""
        for_us = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = os.environ.get("WATCHDOG_USEC", "0") if for_us else "0"
        watchdog = int(microseconds) / MICROSECONDS if microseconds.isdecimal() else 0.0
        return cls(os.environ.get("NOTIFY_SOCKET", ""), watchdog)

    def ready(self) -> None:
        self._notify("READY=1")

    def reloading(self) -> None:
        """The daemon takes a changed configuration over; `ready` ends it."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={now}")

    def stopping(self) -> None:
        """The daemon ends in order."""
        self._notify("STOPPING=1")

    async def run(
        self, seconds_stuck: Callable[[], float], turns: Callable[[], bool] = lambda: True
    ) -> None:
        """Feed the watchdog for ever, except while the loop or the claim path is stuck.

        Args:
            seconds_stuck: how long the claim path has been waiting for one answer, though the loop
                turned.
            turns: whether the loop turns, or is blocked for no longer than it may; its watcher logs
                where it doesn't.
        """
        if not self._watchdog:
            return
        while True:
            stuck = seconds_stuck()
            if stuck >= self._watchdog:
                log.critical("claims.stuck", seconds=round(stuck, 1), remedy="systemd restarts us")
            elif turns():
                self._notify(_ALIVE)
            await asyncio.sleep(self._watchdog / 3)

    def _notify(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                # Where the manager doesn't read, what comes again needn't wait, and no other long.
                sender.settimeout(0.0 if state == _ALIVE else _WAIT)
                sender.connect(self._address)
                sender.sendall(state.encode())
        except OSError as error:
            log.warning("supervisor.unheard", state=state, error=str(error))
