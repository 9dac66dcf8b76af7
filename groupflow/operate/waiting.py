"""Tasks that wait: drop one for good, or have a delayed one run now."""

from __future__ import annotations

from typing import Literal, TypeAlias

from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.tasks import Found, find_task
from groupflow.store.client import StoreClient
from groupflow.store.settlements import history_line

LOOKED_AT = 2000  # places in a line a script: bounds how long one may block Redis

Left: TypeAlias = Literal["running", "dead", "over", "due", "unknown"]
"""Why a task was left as it is; ``due``: nothing holds it back but its turn."""

REASONS: dict[Left, str] = {
    "running": "it runs: a task that runs is left alone",
    "dead": "it is a dead letter: redrive or drop it as one",
    "over": "it is over",
    "due": "it isn't delayed: it waits for its turn",
    "unknown": "nothing is known of it",
}


class WaitingTasks:
    """The waiting tasks of one store. Each call may be made again."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    async def drop(self, id_: str) -> Left | None:
        """Remove a task that waits, or is delayed, for good. Its group goes on.

        Returns:
            ``None`` where it is dropped, else why it was left.

        Raises:
            StoreUnavailable: no answer; it may be dropped.
        """
        found = await find_task(self._client, id_)
        left = _left(found)
        if found is None or left is not None:
            return left
        line = history_line("dropped", found.type, found.group, found.attempt, found.crashes)
        place = 0
        while place >= 0:
            dropped, place = await self._client.run(
                OperatorVerb.DROP_WAITING, id_, found.group or "", line, place, LOOKED_AT
            )
            if dropped:
                return None
        # It was claimed, or ended, since: say as what.
        return _left(await find_task(self._client, id_)) or "running"

    async def run_now(self, id_: str) -> Left | None:
        """Make a delayed task due.

        Returns:
            ``None`` where it is due from now on, else why it was left.

        Raises:
            StoreUnavailable: no answer; it may be due.
        """
        found = await find_task(self._client, id_)
        left = _left(found)
        if found is None or left is not None:
            return left
        if await self._client.run(OperatorVerb.RUN_NOW, id_, found.group or ""):
            return None
        return "due"

    async def delayed_of(self, group: str) -> list[str]:
        """The delayed tasks of a group, by bounded looks: what moves meanwhile may be missed.

        Raises:
            StoreUnavailable: no answer.
        """
        held: list[str] = []
        aside: list[str] = []
        for place, ids in (("lane", held), ("aside", aside)):
            passed, looked = 0, LOOKED_AT
            while looked == LOOKED_AT:
                looked, found = await self._client.run(
                    OperatorVerb.DELAYED_OF, group, place, passed, LOOKED_AT
                )
                passed += looked
                ids += [id_.decode() for id_ in found]
        return [*reversed(held), *aside]  # the next to run first


def _left(found: Found | None) -> Left | None:
    """Why a task can't be acted on, as far as its state tells."""
    if found is None:
        return "unknown"
    match found.state:
        case "running" | "dead":
            return found.state
        case "queued" | "delayed":
            return None
        case _:
            return "over"
