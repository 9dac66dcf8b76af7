"""What the page is given by the daemon: the parts of it that the page shows or acts through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from groupflow.core.app import App
from groupflow.core.checkup import Check
from groupflow.core.settings import Settings
from groupflow.store.client import StoreClient
from groupflow.store.dead import DeadLetter


@dataclass(slots=True)
class Parts:
    """A daemon, as far as its page is concerned.

    Attributes:
        daemon: its name.
        settings: what it runs by just now; a reload puts others in their place.
        app: its Python handlers.
        client: the store, on connections of the page's own.
        started: set once it has begun to work.
        checks: what it says of its own parts; of the store the page asks itself.
        redrive: makes a dead letter a task again, routed first where it never was; raises
            `Unroutable` where that fails.
        metrics: what Prometheus reads.
    """

    daemon: str
    settings: Settings
    app: App
    client: StoreClient
    started: asyncio.Event
    checks: Callable[[], list[Check]]
    redrive: Callable[[DeadLetter], Awaitable[bool]]
    metrics: Callable[[], Awaitable[bytes]]
