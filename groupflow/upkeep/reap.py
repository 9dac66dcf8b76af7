"""reap: takes over from daemons whose lease has run out.

After an outage of Redis every lease looks expired, though the daemons live and only wait to renew.
So a daemon that has seen such an outage lets one lease pass before it takes over from any other.
After Redis itself was started, or another one leads, the script sees to that (`lua/epochs.lua`).
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import structlog

from groupflow.core.measures import UpkeepMeasures
from groupflow.crashpoints import crash_point
from groupflow.store.pulling import puller_of
from groupflow.store.sessions import Sessions
from groupflow.upkeep.renew import log_handed_over

log = structlog.get_logger("groupflow.reap")

AGAIN = 0.01  # seconds until the next pass where there is more to take: Redis serves others too


class Reaper:
    """Looks when the nearest lease may end, and at least once in the shortest lease."""

    def __init__(
        self,
        sessions: Sessions,
        lease: float,
        steady_since: Callable[[], float],
        measures: UpkeepMeasures,
        shortest: Callable[[], float],
    ) -> None:
        """Binds the duty.

        Args:
            sessions: the store's verbs.
            lease: of a daemon, in seconds.
            steady_since: when (monotonic) our renewals last failed.
            measures: where it counts.
            shortest: the shortest lease (s) of daemons and pools by now.
        """
        self._shortest = shortest
        self._measures = measures
        self._sessions = sessions
        self._lease = lease
        self._steady_since = steady_since
        self._began = monotonic()

    async def run_once(self) -> float:
        """Take over from daemons, which it counts, and pullers whose lease is over."""
        grace = self._grace_left()
        if grace > 0:
            return grace
        crash_point("before_reap")
        wait, handed = await self._sessions.reap()
        crash_point("after_reap", handed)
        for each in handed:
            if puller_of(each.daemon) is None:
                self._measures.taken_over += 1
            log_handed_over("task.taken_over", each)
        if wait == 0:
            return AGAIN
        # A little past the end: a lease is over only after its last microsecond.
        shortest = self._shortest()
        return min(shortest, (shortest if wait is None else wait) + 0.05)

    def _grace_left(self) -> float:
        """Seconds for which living daemons may still be about to renew after an outage."""
        since = self._steady_since()
        return since + self._lease - monotonic() if since > self._began else 0.0
