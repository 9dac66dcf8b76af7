"""`[history]` and `[events]`: what is kept of tasks that end, and who is told."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from pydantic import Field

from groupflow.settings.types import MOST_EXCHANGE, BrokerName, Seconds, Section, Whole

Event: TypeAlias = Literal[
    "done", "dead", "cancelled", "expired", "superseded", "dropped", "drained"
]


class History(Section):
    """`[history]`: how long what is over stays findable."""

    retention: Seconds = Field(default=3600.0, ge=0)
    """Seconds that finished tasks are kept."""
    segment: Whole = Field(default=1_000_000, ge=1)
    """Entries at which the newest segment rolls over."""
    dead_retention: Seconds = Field(default=2_592_000.0, gt=0)
    """Seconds that dead letters are kept."""
    dead_memory: Whole = Field(default=268_435_456, ge=0)
    """Bytes of dead letters in Redis; the oldest bodies beyond lie in RabbitMQ."""
    results_memory: Whole = Field(default=67_108_864, ge=0)
    """Bytes of results that finished tasks keep; the oldest go first."""
    dead_policy: bool = False
    """A policy keeps bodies in RabbitMQ for long enough, even if the stream says less."""


class Events(Section):
    """`[events]`: what RabbitMQ is told of tasks that end."""

    exchange: BrokerName = Field(default="", max_length=MOST_EXCHANGE)
    """A durable topic exchange on the same RabbitMQ, declared where it is missing; empty: none."""
    names: tuple[Event, ...] = (
        "done", "dead", "cancelled", "expired", "superseded", "dropped", "drained",
    )  # fmt: skip
    """Which of them go there, by the routing key EVENT.APP.TENANT.TYPE."""
    replies: tuple[str, ...] = ("amq.*",)
    """Queues that a message's reply_to may name, * for any text; never groupflow's own."""
    max_memory: Whole = Field(default=67_108_864, ge=4096)
    """Bytes that may wait in Redis to be told, RabbitMQ being away; beyond, nothing is claimed."""

    @property
    def told(self) -> frozenset[str]:
        """The ends that all are told of."""
        return frozenset(self.names) if self.exchange else frozenset()

    def may_answer(self, queue: str, own: str) -> bool:
        """Whether a reply may go to a queue; `own` is the one that messages come by."""
        if queue == own or queue.startswith(f"{own}."):
            return False
        patterns = (".*".join(map(re.escape, each.split("*"))) for each in self.replies)
        return any(re.fullmatch(each, queue, re.DOTALL) for each in patterns)
