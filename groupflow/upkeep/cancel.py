"""cancel: ends tasks that wait and that a message has cancelled."""

from __future__ import annotations

from collections import deque

import structlog

from groupflow.operate.tasks import end_cancelled
from groupflow.store.client import StoreClient
from groupflow.upkeep.duty import Duty

log = structlog.get_logger("groupflow.cancel")

MOST = 10_000  # tasks that wait to be ended
IDLE = 3600.0  # seconds; each new one wakes the duty


class CancelledTasks(Duty):
    """Takes cancelled tasks of one partition out of where they wait: intake doesn't wait for that.

    The store begins none of them in any case. So what is beyond `MOST`, or lost with this process,
    only ends later: when its turn comes.
    """

    def __init__(self, client: StoreClient) -> None:
        super().__init__("cancel", self._end_all, again=1.0)
        self._client = client
        self._left: deque[tuple[str, str]] = deque()

    def add(self, id_: str, group: str) -> None:
        """A task is to be cancelled, of a group or plain; it may wait."""
        if len(self._left) < MOST:
            self._left.append((id_, group))
            self.wake()

    async def _end_all(self) -> float:
        while self._left:
            id_, group = self._left[0]
            if await end_cancelled(self._client, id_, group):
                log.info("task.cancelled", task=id_, group=group or None)
            self._left.popleft()
        return IDLE
