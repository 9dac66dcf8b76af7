"""A daemon's claims of one partition, and what becomes of them with its session and lease there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from groupflow.flow.exchange import Exchanger
from groupflow.flow.worker import Worker
from groupflow.store.envelope import Pool


class Holding:
    """All claims of one partition, of all pools (upkeep.renew.Holder)."""

    def __init__(
        self,
        exchangers: Mapping[Pool, Exchanger],
        workers: Callable[[], Sequence[Worker]],
        on_session: Callable[[], None],
    ) -> None:
        """Binds the partition's exchanges, and the workers that may run their claims.

        `on_session` is called for each new session.
        """
        self._exchangers = exchangers
        self._workers = workers
        self._on_session = on_session

    def wake(self, pools: Set[Pool] | None = None) -> None:
        """Something may be claimable now, in these pools, or in any."""
        for name, exchanger in self._exchangers.items():
            if pools is None or name in pools:
                exchanger.wake()

    def hold_back(self, groups: Set[str] | None) -> None:
        """Groups, or (``None``) all, are held back: what was claimed of them doesn't begin."""
        if groups is None or groups:
            for exchanger in self._exchangers.values():
                exchanger.hold_back(groups)

    def lease_ended(self) -> None:
        """Another daemon may have taken over: stop the handlers of this partition's claims."""
        for worker in self._running():
            worker.hand_back()

    def session_lost(self) -> None:
        """Every claim is lost: drop them, and stop their handlers."""
        for exchanger in self._exchangers.values():
            exchanger.close_session()
        for worker in self._running():
            worker.lose()

    def session_opened(self) -> None:
        """Claims can be made again."""
        for exchanger in self._exchangers.values():
            exchanger.open_session()
        self._on_session()

    def session_continued(self) -> None:
        """Ask each free slot: if the store lost its settlement, it holds a claim again."""
        for exchanger in self._exchangers.values():
            exchanger.doubt()

    def claimable(self, plain: int, groups: int) -> None:
        """Each renewal tells what waits, as wakes may be lost."""
        waiting: dict[Pool, int] = {"plain": plain, "grouped": groups}
        self.wake({name for name in waiting if waiting[name]})
        for exchanger in self._exchangers.values():
            exchanger.doubt_late_calls()

    def _running(self) -> list[Worker]:
        """The workers that run a claim of this partition."""
        ours = set(self._exchangers.values())
        return [worker for worker in self._workers() if worker.source in ours]
