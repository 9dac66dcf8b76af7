"""How a task lies in Redis: one string, its facts as a JSON array, a line feed, the raw body.

JSON never holds a bare line feed, so the first one ends the facts; the rest is the body, byte for
byte as it was published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

import orjson

from groupflow.core.limits import Debounce
from groupflow.core.routing import Route
from groupflow.store.clock import microseconds

Pool: TypeAlias = Literal["plain", "grouped"]
"""Which workers: a task with a group is for those of the one, all others for the other."""


@dataclass(slots=True)  # a frozen one takes three times as long to make, once a claim
class Envelope:
    """What is known of a task from its routing on."""

    type: str  # names the handler; empty for a message that had none
    group: str | None  # the group key as rendered, None for a plain task
    tenant: str | None  # the tenant as text, or None
    rule: str | None  # the name of the rule that grouped it, None for a plain task
    headers: Mapping[str, Any]  # the AMQP headers, reduced to what JSON can carry
    body: bytes  # the published bytes
    scope: str = ""  # whose its id is (`groupflow.core.routing`)
    # whose workers come and ask for it; None where daemons run it. It is in the task state instead
    named_pool: str | None = None
    # `app`, `correlation_id` and `reply_to` of its message, those that there are, as far as its end
    # is to be told with them
    origin: Mapping[str, str] | None = None

    @classmethod
    def of(
        cls,
        route: Route,
        headers: Mapping[str, Any],
        body: bytes,
        origin: Mapping[str, str] | None = None,
    ) -> Self:
        """That of a message, by its route."""
        facts = (route.type, route.group, route.tenant, route.rule, headers, body)
        return cls(*facts, route.scope, route.pool, origin)

    @property
    def pool(self) -> Pool:
        return "grouped" if self.group else "plain"

    def pack(self) -> bytes:
        facts = [self.type, self.group, self.tenant, self.rule, self.headers, self.scope]
        if self.origin:
            facts.append(self.origin)
        return orjson.dumps(facts, default=repr) + b"\n" + self.body

    def pack_facts(
        self, debounce: Debounce | None = None, max_queued: int = 0, expires: float = 0.0
    ) -> bytes:
        """What scripts look at, apart from headers and body.

        Type, tenant, rule and pool; how long it waits for quiet, and at most (µs); how many tasks
        may wait in its group; within what it has to start (µs); for how long one that runs makes
        way for it (µs); and its origin. False for what isn't said.
        """
        facts: list[Any] = [self.type, self.tenant or "", self.rule or "", self.named_pool or ""]
        facts += [False, False, max_queued or False, microseconds(expires), False]
        facts.append(self.origin or False)
        if debounce:
            facts[4:6] = microseconds(debounce.quiet), microseconds(debounce.most)
            facts[8] = debounce.running is not None and microseconds(debounce.running)
        said = 6 if debounce else 2  # those are always there, and may be 0
        while len(facts) > said and not facts[-1]:
            facts.pop()
        return orjson.dumps(facts)

    @classmethod
    def unpack(cls, packed: bytes) -> Envelope:
        """The envelope in a stored string.

        Raises:
            ValueError: the string was not written by `pack`.
        """
        facts, _, body = packed.partition(b"\n")
        known = orjson.loads(facts)
        if not isinstance(known, list):
            raise ValueError("no envelope of ours")  # noqa: TRY004  not its caller's mistake
        # The origin may follow, and more of a dead letter that lies in RabbitMQ.
        type_, group, tenant, rule, headers, scope, *rest = known
        if not rest:
            return cls(type_, group, tenant, rule, headers, body, scope)
        return cls(type_, group, tenant, rule, headers, body, scope, None, rest[0])

    @classmethod
    def unpack_any(cls, packed: bytes, group: str | None) -> Envelope:
        """The same, or a bare body without a type, where another program wrote to our keys."""
        try:
            return cls.unpack(packed)
        except ValueError:
            return cls("", group, None, None, {}, packed)
