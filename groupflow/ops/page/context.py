"""What the page works with: the daemon's facts, the namespace, and who answers for health."""

from __future__ import annotations

from dataclasses import dataclass

from groupflow.operate.whole.namespace import Namespace
from groupflow.ops.health.answers import Health
from groupflow.ops.page.facts import Facts


@dataclass(slots=True)
class PageContext:
    facts: Facts  # what is known of the daemon; a reload puts others in their place
    namespace: Namespace  # on connections of the page's own
    health: Health  # answers for health and metrics
