"""Where messages are published to, and under which routing key."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from groupflow.core.errors import Unroutable
from groupflow.core.headers import json_headers
from groupflow.core.routing import MAX_TEXT_BYTES, Router


class Address:
    """The default exchange and a queue; or an exchange that gives each group to one of many."""

    def __init__(self, queue: str, router: Router | None = None) -> None:
        """Binds the names.

        Args:
            queue: as configured.
            router: tells which group a message is of, where the queue has several partitions;
                ``None``: it has one.
        """
        self._queue = queue
        self._router = router

    @property
    def exchange(self) -> str:
        """The exchange's name."""
        return "" if self._router is None else self._queue

    @property
    def name(self) -> str:
        """The address in words, for errors."""
        kind = "queue" if self._router is None else "exchange with a queue bound to it:"
        return f"{kind} {self._queue!r}"

    def routing_key(
        self,
        message_id: str,
        body: bytes,
        headers: Mapping[str, Any],
        type: str | None,
        priority: int | None,
    ) -> str:
        """The queue's name; where there are several, the message's group, or its id without one.

        AMQP bounds a routing key: for a long group it is the group's hash.
        """
        if self._router is None:
            return self._queue
        try:
            shown = json_headers(headers)
            group = self._router.route(body, shown, type=type, priority=priority).group
        except Unroutable:  # a dead letter, of no group
            return message_id
        if group is None:
            return message_id
        packed = group.encode()
        return group if len(packed) <= MAX_TEXT_BYTES else sha256(packed).hexdigest()
