"""Logs that Redis is away: once, then once a minute, and once when it is back."""

from __future__ import annotations

from threading import Lock
from time import monotonic

import structlog

from groupflow.core.backoff import Outage

SETTLES = 0.5  # seconds: a partition's clients notice the same end at different times

log = structlog.get_logger("groupflow.store")


class StoreHearing:
    """Hears of every script that a daemon runs, by any client and partition. From any thread."""

    def __init__(self) -> None:
        self.is_away = False  # whether some partition's Redis doesn't answer
        self._outage = Outage(monotonic, settles=SETTLES)
        self._lock = Lock()

    def failed(self, who: str, error: str) -> None:
        """A script got no answer."""
        with self._lock:
            facts = self._outage.failed(who)
            self.is_away = True
        if facts is not None:
            log.warning("store.unavailable", error=error, **facts)

    def answered(self, who: str) -> None:
        """A script got an answer."""
        with self._lock:
            away_for = self._outage.answered(who)
            self.is_away = self._outage.is_away
        if away_for is not None:
            log.info("store.back", away_for=away_for)
