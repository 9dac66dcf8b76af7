"""Free TCP ports of 127.0.0.1 for servers that keep them over a restart."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack
from pathlib import Path

_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_SPAN = 12_000


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
    low = _ephemeral_low() - _SPAN
    if low > 1024:  # noqa: PLR2004  below are the privileged ports
        for _ in range(50):
            port = low + secrets.randbelow(_SPAN)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    probe.bind(("127.0.0.1", 0))
    return int(probe.getsockname()[1])


def _ephemeral_low() -> int:
    try:
        return int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
