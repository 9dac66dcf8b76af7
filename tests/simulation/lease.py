"""The thread of the lease as a part of the simulated loop: it stands when its process does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

from groupflow.upkeep.lease import ENDS_WITHIN, LeaseThread
from tests.simulation.processes import OWNER, ThreadLoop


class SimulatedLease(LeaseThread):
    """A lease whose thread is one of its process's, on the loop that all share."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """As the product's."""
        owner = OWNER.get()
        assert owner is not None
        loop: Any = asyncio.get_running_loop()
        for each in self._leases:
            each.listener.loop = ThreadLoop(loop, owner.process.main)  # type: ignore[assignment]
        self.watch.begin()
        lease: Any = ThreadLoop(loop, owner.process.lease)
        self._loop = lease
        began: Future[Any] = Future()
        living = lease.create_task(self._stay(began))
        await asyncio.wrap_future(began)
        try:
            yield
        finally:
            lease.call_soon_threadsafe(self._leaving.set)
            await asyncio.wait([living], timeout=ENDS_WITHIN)
