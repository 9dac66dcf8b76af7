"""What a page's process knows, in tests that have a namespace and no process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupflow.operate.namespace import Namespace
from groupflow.ops.health.answers import DaemonHealth
from groupflow.ops.metrics import StoreMetrics
from groupflow.ops.page.facts import Facts, PageContext
from groupflow.settings.model import Settings


def context_of(namespace: Namespace, configured: Mapping[str, Any]) -> PageContext:
    """The context of a page under a configuration, which is well."""
    settings = Settings.model_validate(configured)
    health = DaemonHealth(lambda: True, list, namespace, StoreMetrics(namespace).render)
    return PageContext(Facts("page", settings, {}), namespace, health)
