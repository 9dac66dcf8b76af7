"""What the page works with: what it shows, acts through, and asks about health."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from groupflow.operate.archiving import Whole
from groupflow.operate.whole.letters import AnyLying
from groupflow.operate.whole.namespace import Namespace
from groupflow.ops.health.answers import Health
from groupflow.ops.page.facts import Facts


@dataclass(slots=True)
class PageContext:
    facts: Facts  # what is known of the daemon; a reload puts others in their place
    namespace: Namespace  # on connections of the page's own

    redrive: Callable[[AnyLying], Awaitable[bool]]
    """Makes a dead letter a task again, routed first where it never was; raises `Unroutable` where
    that fails."""

    whole_letter: Callable[[AnyLying], Awaitable[Whole]]
    """All of a dead letter, with its body from Redis or RabbitMQ; raises `KeyError` where there is
    none, `ServerUnreachable` where the server that has the body doesn't answer."""

    health: Health  # answers for health and metrics
