"""Servers of any kind that are used together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self

from groupflow.servers.server import PrivateServer


class ServerGroup:
    """Servers that start and stop together."""

    servers: Sequence[PrivateServer]

    async def start(self) -> None:
        """Start all, and join them.

        Raises:
            ServerFailed: they did not come together in time.
        """
        await asyncio.gather(*(server.start() for server in self.servers))

    async def stop(self) -> None:
        """Stop all."""
        await asyncio.gather(*(server.stop() for server in self.servers))

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
