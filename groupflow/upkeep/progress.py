"""progress: writes how far attempts have got, once a second at most, and all in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import monotonic

from groupflow.store.client import StoreClient
from groupflow.store.progress import Said, write_progress
from groupflow.store.sessions import Session
from groupflow.upkeep.duty import Duty

PAUSE = 1.0  # seconds between two passes


class ProgressWriter(Duty):
    """Writes what handlers have said of the claims of one partition. Where none has, nothing."""

    def __init__(
        self, client: StoreClient, session: Session, asks: Sequence[Callable[[], Iterable[Said]]]
    ) -> None:
        """Each of `asks` gives what was said of some claims since it was last called."""
        super().__init__("progress", self._write, again=PAUSE, level="debug")
        self._client, self._session, self._asks = client, session, asks
        self._unwritten: dict[str, tuple[Said, float]] = {}  # by slot, and when (monotonic)

    async def _write(self) -> float:
        now = monotonic()
        self._unwritten |= {said.slot: (said, now) for ask in self._asks for said in ask()}
        if self._unwritten:
            ages = [(said, now - at) for said, at in self._unwritten.values()]
            await write_progress(self._client, self._session, ages)
            self._unwritten.clear()
        return PAUSE
