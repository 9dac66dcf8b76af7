"""What a page's process knows, in tests that have a namespace and no process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from groupflow.operate.namespace import Namespace
from groupflow.ops.health import DaemonHealth
from groupflow.ops.metrics import StoreMetrics
from groupflow.ops.page.facts import Facts, PageContext
from groupflow.ops.page.site import Site
from groupflow.settings.model import Settings
from tests.page.served import as_

TOKEN = "a-token-of-the-tests"


def configured(listen: str = "127.0.0.1:9464") -> dict[str, Any]:
    """A page with a token."""
    return {"http": {"listen": listen, "token": TOKEN}}


def context_of(namespace: Namespace, configured: Mapping[str, Any]) -> PageContext:
    """The context of a page under a configuration, which is well."""
    settings = Settings.model_validate(configured)
    health = DaemonHealth(lambda: True, list, namespace, StoreMetrics(namespace).render)
    return PageContext(Facts("page", settings, {}), namespace, health)


@asynccontextmanager
async def client_of(
    namespace: Namespace, sections: Mapping[str, Any] | None = None, *parts: Any, **how: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """The API in this process, with further parts, for a client that has the token."""
    site = Site(context_of(namespace, sections or configured()), parts)
    usual: Any = {"base_url": "http://localhost:9464/api", "headers": as_(TOKEN)}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(site.app), **usual | how) as client:
        try:
            yield client
        finally:
            await site.close()
