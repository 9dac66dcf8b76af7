"""How a one-shot verb asks the store: connect, agree, ask, close; no answer is exit 69."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from groupflow.cli.safe import say
from groupflow.core.errors import reaching

if TYPE_CHECKING:
    from groupflow.operate.namespace import Namespace

_Answer = TypeVar("_Answer")


def ask_store(config: Path | None, ask: Callable[[Namespace], Awaitable[_Answer]]) -> _Answer:
    """Load the configuration and ask its Redis one thing.

    Where some partitions don't answer and others do, stderr names them.

    Raises:
        ConfigError: the configuration can't be used, or isn't the namespace's.
        ServerUnreachable: Redis does not answer, or refused the credentials.
    """
    from groupflow.operate.namespace import Namespace, check_number
    from groupflow.settings.load import load_settings
    from groupflow.store.partitions import open_partitions

    settings = load_settings(config)
    url = settings.redis_url()

    async def ask_once() -> _Answer:
        partitions = open_partitions(settings)
        namespace = Namespace(partitions, settings.router)
        try:
            await check_number(settings, partitions)
            answer = await ask(namespace)
        finally:
            await partitions.close()
        for away in namespace.away:
            say(str(away), err=True)
        return answer

    return run_against(url, ask_once)


def run_against(url: str, work: Callable[[], Coroutine[Any, Any, _Answer]]) -> _Answer:
    """Do something with the Redis of a URL.

    Raises:
        ServerUnreachable: it does not answer, or refused the credentials.
    """
    from groupflow.store.refusals import address_of

    with reaching("Redis", address_of(url)):
        return asyncio.run(work())
