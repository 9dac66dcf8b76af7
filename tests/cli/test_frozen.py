"""What a daemon's process has when it begins is not looked through for garbage again."""

from __future__ import annotations

import asyncio
import gc
import signal
from typing import Any

from groupflow.cli import run


class Idle:
    """A daemon that ends at once."""

    has_running_handlers = False
    frozen = 0

    async def run(self) -> None:
        """See how much is frozen by now."""
        self.frozen = gc.get_freeze_count()

    def stop(self) -> None:
        """It ends by itself."""


async def test_a_daemon_begins_with_nothing_to_look_through() -> None:
    idle: Any = Idle()
    serve = vars(run)["_serve"]
    try:
        assert await serve(lambda: idle) == 0
        assert idle.frozen > 10_000
    finally:
        gc.unfreeze()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)
