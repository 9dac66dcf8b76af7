"""Free TCP ports of 127.0.0.1 for servers that keep them over a restart."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack

_LOW, _HIGH = 20_000, 32_000
_TRIES = 50


def free_ports(count: int) -> list[int]:
    """Choose ports that no process has bound now, all different.

    Another process may still take one before the server does; the server then fails to start and
    the caller chooses again.
    """
    with ExitStack() as held:
        # All stay bound until the last is found, so that they differ.
        return [_bind(held.enter_context(socket.socket())) for _ in range(count)]


def _bind(probe: socket.socket) -> int:
    """Bind a socket to a free port and return that port.

    Ports below the ephemeral range come first. While a server is down, the kernel may give a port
    inside that range to an outgoing connection, even to a client's attempt to reconnect, which then
    connects to itself; the restarted server can't have the port back.
    """
    chosen = (_LOW + secrets.randbelow(_HIGH - _LOW) for _ in range(_TRIES))
    for port in (*chosen, 0):
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        break
    return int(probe.getsockname()[1])
