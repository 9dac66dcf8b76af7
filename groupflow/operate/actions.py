"""What operators did, for those who come after them: the last thousand, for the whole namespace.

Each is noted beside the scripts that act, which know only their own partition, and once one has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import orjson

from groupflow.operate.namespace import Namespace
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.clock import microseconds, seconds

MOST = 1000  # that are kept
_NAMED = 10  # tasks of one
_CHARACTERS = 300  # of a name, or of other words
_TOGETHER = 60.0  # seconds


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
        """Who did what, to what."""
        who = f"{self.by} (token {self.token})" if self.token not in (None, self.by) else self.by
        tasks = ", ".join(self.tasks) + (", …" if self.count > len(self.tasks) else "")
        named = [f"{self.count:,} task{'s' * (self.count > 1)}: {tasks}"] if self.count else []
        return "  ".join([who, self.what, *(f"{k} {v}" for k, v in self.facts.items()), *named])


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
    arguments = (uuid4().hex, head, number, some, MOST, microseconds(_TOGETHER))
    async with namespace.common() as client:
        await client.run(OperatorVerb.NOTE_ACTION, *arguments)


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
