"""Where a dead letter's body lies once it has left Redis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A place in RabbitMQ's stream."""

    offset: int  # its number there
    message_id: str  # the id under which it was published, which proves that it is this body
