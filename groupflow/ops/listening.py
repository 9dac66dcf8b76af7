"""Listening at an address: logs once that it can't, and tries again; work goes on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

import structlog

log = structlog.get_logger("groupflow.http")

TRY_AGAIN = 15.0  # seconds
BACKLOG = 128  # connections that wait to be accepted

Serve = Callable[[socket.socket, asyncio.Event], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening(
    setting: str, address: str, serve: Serve, goodbye: float = 0.0
) -> AsyncIterator[None]:
    """Serve at an address until the block ends, even if the address is lost meanwhile.

    The log names the `setting` that has the address. `serve` serves on a socket that listens there,
    until its event is set; `goodbye` seconds later it is cancelled.
    """
    closing = asyncio.Event()
    task = asyncio.create_task(_listen(setting, address, serve, closing))
    try:
        yield
    finally:
        closing.set()
        await asyncio.wait([task], timeout=goodbye)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _listen(setting: str, address: str, serve: Serve, closing: asyncio.Event) -> None:
    """Listen and serve. Tries a taken port again: its owner may end."""
    is_first = True
    while not closing.is_set():
        try:
            with contextlib.closing(await asyncio.to_thread(_bound, address)) as sock:
                await serve(sock, closing)
        except OSError as error:
            if is_first:  # logged once: it would be the same every time
                log.warning(
                    "http.not_listening",
                    listen=address,
                    error=error.strerror or str(error),
                    remedy=f"Work goes on without it. Set {setting} to a free address, or empty; "
                    "it is tried again until then.",
                )
            is_first = False
        except Exception as error:
            log.error("http.failed", listen=address, error=repr(error), exc_info=error)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(closing.wait(), TRY_AGAIN)


def _bound(listen: str) -> socket.socket:
    """A socket that listens there.

    Raises:
        OSError: the name can't be resolved, or the address can't be had.
    """
    parts = urlsplit(f"//{listen}")
    family, *_, address = socket.getaddrinfo(
        parts.hostname, parts.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    is_6 = family == socket.AF_INET6  # [::] takes callers by IPv4 too
    sock = socket.create_server(address[:2], family=family, backlog=BACKLOG, dualstack_ipv6=is_6)
    sock.setblocking(False)
    return sock
