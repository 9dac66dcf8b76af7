"""What a page's process knows, in tests that have a namespace and no process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupflow.operate.archiving import Whole
from groupflow.operate.whole.letters import AllLetters, AnyLying
from groupflow.operate.whole.namespace import Namespace
from groupflow.ops.health.answers import Answers
from groupflow.ops.metrics import StoreMetrics
from groupflow.ops.page.context import PageContext
from groupflow.ops.page.facts import Facts
from groupflow.settings.model import Settings


def context_of(namespace: Namespace, configured: Mapping[str, Any]) -> PageContext:
    """The context of a page under a configuration, which is well."""
    settings = Settings.model_validate(configured)
    letters = AllLetters(namespace)

    async def redrive(lying: AnyLying) -> bool:
        return await letters.redrive(settings, lying)

    async def whole(lying: AnyLying) -> Whole:
        return await letters.whole(settings, lying)

    health = Answers(lambda: True, list, namespace, StoreMetrics(namespace).render)
    return PageContext(Facts("page", settings, {}), namespace, redrive, whole, health)
