"""ReplicaWait: a batch counts as written only once replicas have it (`redis.replicas`).

`WAIT` goes on the very connection that wrote, right behind the script: Redis then compares what
replicas have acknowledged with what that connection wrote last. It holds up all calls behind it on
that connection, so callers that wait for replicas have one of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from groupflow.store.wire import Packed, Wire, pack


@dataclass(frozen=True, slots=True)
class ReplicaWait:
    """How many replicas must have a batch."""

    replicas: int
    timeout: float  # seconds to wait for them before saying so

    @property
    def command(self) -> Packed:
        """What follows a script."""
        return pack("WAIT", self.replicas, max(1, int(self.timeout * 1000)))

    async def wait(self, wire: Wire) -> int:
        """Wait once more, on the connection that wrote.

        Returns:
            How many replicas have what it wrote.

        Raises:
            redis.exceptions.RedisError: the connection has ended, or the server leads no more.
        """
        (reply,) = await wire.call([self.command], 2 * self.timeout)
        if isinstance(reply, Exception):
            raise reply
        return int(reply)
