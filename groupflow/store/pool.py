"""Connections of redis-py's, set up as all of ours are; for rare calls."""

from __future__ import annotations

import ssl
from typing import Any

from redis.asyncio.connection import ConnectionPool, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from groupflow.settings.transport import split_tls


class _TlsConnection(SSLConnection):
    """A connection whose server is verified as we say, not as the library's options do."""

    def __init__(self, *, tls: ssl.SSLContext, **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context.context = tls


def make_pool(url: str, timeout: float) -> ConnectionPool:
    """Connections to a server; nothing connects yet.

    Args:
        url: ``redis://``, ``rediss://`` with its TLS files, or ``unix://``.
        timeout: seconds for a connection; each call has one of its own over the whole of it.
    """
    url, tls = split_tls(url)
    pool = ConnectionPool.from_url(
        url,
        socket_timeout=None,
        socket_connect_timeout=timeout,
        **({} if url.startswith("unix:") else {"socket_keepalive": True}),
        # Without it redis-py names itself by CLIENT SETINFO, a right that nothing else needs.
        driver_info=None,
        retry=Retry(NoBackoff(), 0),
    )
    if tls is not None:
        pool.connection_class = _TlsConnection
        pool.connection_kwargs["tls"] = tls
    return pool
