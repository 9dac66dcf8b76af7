"""reload: takes a changed configuration over whole, or not at all.

The daemon loads and checks the new one in full, then compares. If it is wrong, or changes what a
running daemon can't, nothing changes and the old one goes on. What can change is built aside, and
then swapped in one step without a pause: no message or task sees half of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import structlog

from groupflow.core.backoff import Backoff
from groupflow.core.errors import ConfigError, GroupflowError, SessionLost, StoreUnavailable
from groupflow.settings.changes import SettingChange, compare
from groupflow.settings.model import Settings

log = structlog.get_logger("groupflow.reload")

TOLD_AT_MOST = 100  # changes and problems that a reload lists; the log has the same

ReloadVerdict: TypeAlias = Literal["changed", "unchanged", "refused"]
Swap: TypeAlias = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Reload:
    """What became of one reload."""

    number: int  # counts this daemon's reloads, from 1
    verdict: ReloadVerdict  # ``refused`` means that the old configuration goes on
    # settings that were taken over; in a refusal, those that need a restart
    changes: list[dict[str, Any]] = field(default_factory=list)
    # why it was refused, as lines for an operator
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The public shape."""
        return asdict(self)


class Reloading(Protocol):
    """What a `Reloader` reloads: the daemon."""

    def prepare(self, settings: Settings) -> Swap:
        """Build all that a configuration changes. The `Swap` puts it in place, at once.

        Raises:
            ConfigError: it can't be put in place; nothing has changed.
        """

    async def tell(self) -> None:
        """Tell other daemons what it runs with, and how the last reload ended."""

    def reload_began(self) -> None:
        """A reload begins."""

    def reload_ended(self) -> None:
        """A reload has ended, changed or refused."""


class Reloader:
    """Reloads the configuration at each `request`."""

    def __init__(
        self, settings: Settings, load: Callable[[], Settings] | None, daemon: Reloading
    ) -> None:
        """Binds a daemon that runs with these settings; without `load` every reload is refused."""
        self.settings = settings
        self.last: Reload | None = None
        self._load = load
        # A thread of our own, as handlers may hold all of the loop's for as long as they like.
        self._loading = ThreadPoolExecutor(1, thread_name_prefix="groupflow-reload")
        self._daemon = daemon
        self._is_wanted = False
        self._stir = asyncio.Event()

    def request(self) -> None:
        """Reload soon. A request during a reload makes one more after it."""
        self._is_wanted = True
        self._stir.set()

    def retell(self) -> None:
        """Tell others once more: a new session knows nothing yet."""
        self._stir.set()

    async def run(self) -> None:
        """Serve requests for ever."""
        while True:
            await self._stir.wait()
            self._stir.clear()
            if self._is_wanted:
                self._is_wanted = False
                self._daemon.reload_began()
                self.last = await self.run_once()
                self._daemon.reload_ended()
            await self._tell()

    async def run_once(self) -> Reload:
        """Reload once. Never raises: on any error the old configuration goes on."""
        number = self.last.number + 1 if self.last else 1
        try:
            reload = await self._reload(number)
        except ConfigError as error:
            problems = [str(problem) for problem in error.problems]
            reload = Reload(number, "refused", problems=problems[:TOLD_AT_MOST])
        except Exception as error:
            log.exception("config.not_reloaded")
            reload = Reload(number, "refused", problems=[f"it can't be loaded: {error!r}"])
        match reload.verdict:
            case "changed":
                log.info("config.reloaded", number=number, changes=reload.changes)
            case "unchanged":
                log.info("config.unchanged", number=number)
            case "refused":
                remedy = "the old configuration goes on whole; mend it, or restart"
                log.error("config.refused", number=number, problems=reload.problems, remedy=remedy)
        return reload

    async def _reload(self, number: int) -> Reload:
        if self._load is None:
            return Reload(number, "refused", problems=["this daemon has no configuration file"])
        loop = asyncio.get_running_loop()
        new = await loop.run_in_executor(self._loading, self._load)
        changes = compare(self.settings, new)
        if not changes:
            return Reload(number, "unchanged")
        stuck = [change for change in changes if change.needs_restart]
        if stuck:
            return Reload(number, "refused", _listed(stuck), [_needs_restart(c) for c in stuck])
        swap = self._daemon.prepare(new)
        swap()
        self.settings = new
        return Reload(number, "changed", _listed(changes))

    async def _tell(self) -> None:
        backoff = Backoff()
        while True:
            try:
                return await self._daemon.tell()
            except SessionLost:
                return None  # the next session tells it
            except StoreUnavailable as error:
                log.debug("reload.unanswered", error=str(error))
                await asyncio.sleep(backoff.next())
            except GroupflowError as error:
                log.warning("reload.not_told", error=str(error))
                return None


def _listed(changes: list[SettingChange]) -> list[dict[str, Any]]:
    return [change.as_json() for change in changes[:TOLD_AT_MOST]]


def _needs_restart(change: SettingChange) -> str:
    return f"{change.setting}: {change.old!r} → {change.new!r} needs a restart"
