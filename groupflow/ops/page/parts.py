"""What the page is made of: what it shows, what it acts through, whom it asks about health."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from groupflow.ops.health.answers import Health
from groupflow.ops.page.facts import Facts
from groupflow.store.client import StoreClient
from groupflow.store.dead import DeadLetter
from groupflow.store.envelope import Envelope


@dataclass(slots=True)
class Parts:
    """A page's surroundings.

    Attributes:
        facts: what is known of the daemon; a reload puts others in their place.
        client: the store, on connections of the page's own.
        redrive: makes a dead letter a task again, routed first where it never was; raises
            `Unroutable` where that fails.
        whole_letter: a dead letter's envelope, wherever its body lies; raises `KeyError` where
            there is none, `ServerUnreachable` where its body lies with who doesn't answer.
        health: answers for health and metrics.
    """

    facts: Facts
    client: StoreClient
    redrive: Callable[[DeadLetter], Awaitable[bool]]
    whole_letter: Callable[[str], Awaitable[Envelope]]
    health: Health
