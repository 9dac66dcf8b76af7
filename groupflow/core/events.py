"""What is told of the end of a task: the event, how it is addressed, and what its id is.

The script that ends a task writes what only it knows; `Told` is that, as the relay reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from hashlib import sha256
from typing import Any, Final

import orjson

from groupflow.core.outcome import Untold
from groupflow.core.routing import MAX_TEXT_BYTES
from groupflow.core.task import Task

ENDS: Final = ("done", "dead", "cancelled", "expired", "superseded", "dropped", "drained")
"""The events there are. A group is ``drained``; of the rest each is the end of a task."""
RESULT_BYTES = 64 * 1024  # of a result, as JSON
MOST_FOLLOWING = 100  # follow-up tasks of one task
FOLLOWING_BYTES = 1024 * 1024  # of their bodies and headers together
_FIELDS = ("event", "id", "type", "app", "tenant", "group", "at", "seq", "attempts", "crashes",
           "seconds", "daemon", "reason", "result")  # fmt: skip
_MORE = ("result_error", "ends")  # that an event has only where they say something
_NOT_IN_WORDS = str.maketrans(dict.fromkeys(".*#", "_"))
_HASH = 16  # hexadecimal digits
_AROUND = 8  # lists or objects in which a result may lie where it is told


@dataclass(frozen=True, slots=True)
class Following:
    """A follow-up task, as its message will be."""

    type: str | None
    body: str  # a JSON object
    headers: Mapping[str, Any]


def shortened(text: str, most: int = MAX_TEXT_BYTES) -> str:
    """A text of at most so many bytes: a longer one is cut, and ends with its hash."""
    packed = text.encode()
    if len(packed) <= most:
        return text
    digest = sha256(packed).hexdigest()[:_HASH]
    return f"{packed[: most - _HASH - 1].decode(errors='ignore')}-{digest}"


@dataclass(frozen=True, slots=True)
class Told:
    """An entry of the outbox."""

    number: int  # rises within a partition; about Redis's clock (µs) at the end of the task
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, entry: bytes) -> Told:
        """From the bytes that lie there.

        Raises:
            ValueError: they are no entry of ours.
        """
        facts = orjson.loads(entry[16:])
        if not isinstance(facts, dict) or not isinstance(facts.get("id"), str):
            raise ValueError("no entry of the outbox")  # noqa: TRY004  not its caller's mistake
        return cls(int(entry[:16]), facts)

    @property
    def event(self) -> str:
        return str(self.facts.get("event", ""))

    @property
    def reply_to(self) -> str:
        """The queue that waits for it; empty for none."""
        return self._short("reply_to")

    @property
    def correlation_id(self) -> str:
        """What its publisher knows it by; empty for nothing."""
        return self._short("correlation_id")

    def _short(self, name: str) -> str:
        """A fact that AMQP can carry; bytes that are no text have come as twice as long a text."""
        text = str(self.facts.get(name) or "")
        return text if len(text.encode()) <= MAX_TEXT_BYTES else ""

    @property
    def line(self) -> str:
        """What it is published in order with."""
        return str(self.facts.get("group") or self.facts["id"])

    @property
    def message_id(self) -> str:
        again = self.facts.get("redriven")
        return shortened(f"{self.facts['id']}/{self.event}{f'/{again}' if again else ''}")

    @property
    def routing_key(self) -> str:
        """``<event>.<app>.<tenant>.<type>``; ``_`` for none, and for what no word can hold."""
        words = [str(self.facts.get(name) or "_") for name in ("app", "tenant", "type")]
        words = [word.translate(_NOT_IN_WORDS) for word in words]
        key = ".".join((self.event, *words))
        if len(key.encode()) > MAX_TEXT_BYTES:
            key = ".".join((self.event, *(shortened(word, 80) for word in words)))
        return key

    @property
    def body(self) -> bytes:
        """The event as it is published, JSON."""
        at = self.facts.get("at") or self.number
        more = {name: self.facts[name] for name in _MORE if name in self.facts}
        known = {**self.facts, "at": at / 1_000_000, "seq": self.number, **more}
        return orjson.dumps({name: known.get(name) for name in (*_FIELDS, *more)})

    @property
    def following(self) -> list[tuple[str, Following]]:
        """The follow-up tasks, in order, with their ids."""
        rows = self.facts.get("then") or ()
        return [
            (shortened(f"{self.facts['id']}/then/{n}"), Following(*row))
            for n, row in enumerate(rows, 1)
        ]


def packed_result(result: Any) -> tuple[bytes, str]:
    """A result as JSON, or why it can't be kept."""
    if isinstance(result, Untold):
        return b"", result.why
    try:
        # orjson refuses what is nested too deep, and what tells of it would fail for good.
        packed = orjson.dumps(reduce(lambda inner, _: [inner], range(_AROUND), result))
        packed = packed[_AROUND:-_AROUND]
    except (TypeError, ValueError) as error:
        return b"", f"the result is no JSON: {error}"
    if len(packed) > RESULT_BYTES:
        return b"", f"the result has {len(packed)} bytes, over {RESULT_BYTES}"
    return packed, ""


def entry_of_done(  # noqa: PLR0917  what is known of it
    task: Task,
    origin: Mapping[str, str] | None,
    redriven: int,
    seconds: float,
    daemon: str,
    result: bytes,
    result_error: str,
    then: Sequence[Following],
    carrier: Mapping[str, str],
) -> bytes:
    """What the outbox has of a task that is done, JSON; `seconds` is how long its attempt took."""
    facts: dict[str, Any] = {
        "event": "done",
        "id": task.id,
        "type": task.type,
        "tenant": task.tenant,
        "group": task.group,
        "attempts": task.attempt,
        "crashes": task.crashes,
        "seconds": round(seconds, 6),
        "daemon": daemon,
        **(origin or {}),
    }
    if redriven:
        facts["redriven"] = redriven
    if result:
        facts["result"] = orjson.Fragment(result)
    if result_error:
        facts["result_error"] = result_error
    if then:
        facts["then"] = [(each.type, each.body, {**each.headers, **carrier}) for each in then]
    if carrier:
        facts["trace"] = carrier
    return orjson.dumps(facts)
