"""What operators did, for those who come after them: the last thousand, for the whole namespace.

Each is noted beside the scripts that act, which know only their own partition, and once one has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import orjson

from groupflow.operate.namespace import Namespace
from groupflow.operate.reasons import counted, duration
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.clock import microseconds, seconds

MOST = 1000  # that are kept
_NAMED = 10  # tasks of one
_CHARACTERS = 300  # of a name, or of other words
_TOGETHER = 60.0  # seconds
# What was done, and to what, in the page's words: see `views/operators.js`. What is missing here is
# told as it is noted.
_DID = {
    "unlimited": "ended the limits", "dropped_waiting": "dropped", "ran_now": "made due",
    "redriven": "redrove", "dropped": "dropped dead letters", "ran_schedule": "ran",
    "paused_schedule": "paused", "resumed_schedule": "resumed", "dropped_schedule": "forgot",
    "woke_scan": "woke", "paused_scan": "paused", "resumed_scan": "resumed",
    "dropped_scan": "forgot", "repartitioned": "moved the namespace",
}  # fmt: skip
_SHOWN: dict[str, Callable[[Any], str]] = {
    "group": lambda name: name if name == "everything" else f"group {name}",
    "tenant": lambda name: f"tenant {name}" if name else "tasks of no tenant",
    "seconds": lambda length: f"for {duration(length)}",
    "since": lambda length: f"dead for {duration(length)} at most",
    "reason": lambda text: f'"{text}"',
    "limits": str,
    "corrected": lambda _: "with another body",
}


@dataclass(frozen=True, slots=True)
class Action:
    """What an operator did."""

    at: float  # when, Unix seconds by Redis's clock
    what: str  # as the page's log has it: `paused`, `redriven`
    by: str  # the operator, as the command line or the caller named it
    token: str | None  # of which token the page was shown, None for the command line
    count: int  # to how many tasks; 0 where it wasn't done to tasks
    tasks: list[str]  # the ids of the first of them
    facts: dict[str, Any]  # what else tells it from others: `group`, `reason`, `seconds`, …

    @property
    def words(self) -> str:
        """Who did what, to what, for people."""
        who = f"{self.by} (token {self.token})" if self.token not in (None, self.by) else self.by
        whom = [_SHOWN[k](v) if k in _SHOWN else f"{k} {v}" for k, v in self.facts.items()]
        if self.count:
            tasks = ", ".join(self.tasks) + (", …" if self.count > len(self.tasks) else "")
            number = counted(self.count, "task")
            whom.append(f"{number}: {tasks}" if self.tasks else number)
        return "  ".join([who, _DID.get(self.what, self.what), ", ".join(whom)])


async def note(
    namespace: Namespace,
    what: str,
    by: str,
    *,
    token: str | None = None,
    tasks: Sequence[str] = (),
    count: int | None = None,
    **facts: Any,
) -> None:
    """Note what an operator did just now.

    Args:
        namespace: where.
        what: as in `Action`.
        by: likewise.
        token: likewise.
        tasks: the ids of those to which it was done.
        count: how many those are, where not all have been named.
        facts: as in `Action`; one that is ``None`` is left out.

    Raises:
        StoreUnavailable: no answer; it may be noted.
    """
    told = {name: _cut(fact) for name, fact in facts.items() if fact is not None}
    head = orjson.dumps([what, _cut(by), token, told])
    some = orjson.dumps([_cut(id_) for id_ in tasks[:_NAMED]])
    number = len(tasks) if count is None else count
    bounds = MOST, microseconds(_TOGETHER), _NAMED
    async with namespace.common() as client:
        await client.run(OperatorVerb.NOTE_ACTION, uuid4().hex, head, number, some, *bounds)


async def latest(namespace: Namespace, limit: int = MOST) -> list[Action]:
    """What operators did, the latest first.

    Raises:
        StoreUnavailable: no answer.
    """
    async with namespace.common() as client:
        rows = await client.run(OperatorVerb.ACTIONS, limit)
    return [_read(text, int(float(at))) for text, at in zip(rows[::2], rows[1::2], strict=True)]


def _read(text: bytes, at: int) -> Action:
    _, count, tasks, head = text.split(b"\n", 3)
    what, by, token, facts = orjson.loads(head)
    return Action(seconds(at), what, by, token, int(count), orjson.loads(tasks), facts)


def _cut(fact: Any) -> Any:
    is_long = isinstance(fact, str) and len(fact) > _CHARACTERS
    return f"{fact[:_CHARACTERS]}…" if is_long else fact
