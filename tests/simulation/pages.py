"""The page's processes: they answer workers that pull, without HTTP, and may die at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.types import Message

from groupflow.core.errors import GroupflowError
from groupflow.operate.namespace import Namespace
from groupflow.ops.health import DaemonHealth
from groupflow.ops.metrics import StoreMetrics
from groupflow.ops.page.endpoints import Caller, endpoints_of
from groupflow.ops.page.facts import Facts, PageContext
from groupflow.ops.page.problems import RequestRefused
from groupflow.pools.calls import Pools
from groupflow.store.partitions import open_partitions
from tests.simulation.clock import pass_virtual
from tests.simulation.fleet import Fleet
from tests.simulation.jobs import POOL
from tests.simulation.processes import Process, context_of

ANSWER_WITHIN = 6.0  # seconds that a caller waits for an answer
AWAY = 0.5  # seconds until one that died is there again

Serve = Callable[[Any, Caller], Awaitable[Any]]


class NoAnswer(Exception):
    """A call may have been served, and no caller hears of it."""


async def _stay() -> Message:
    """A caller that doesn't hang up."""
    await asyncio.Event().wait()
    return {"type": "http.disconnect"}


class Page:
    """A place for a page's process, and the one that has it now."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        """Begins at once."""
        self._fleet = fleet
        self._name = name
        self.process: Process
        self._handles: dict[str, tuple[type[BaseModel], Serve]] = {}
        self._start()

    def _start(self) -> None:
        self.process = process = self._fleet.make_process(self._name)
        context_of(process.main).run(self._open)

    def _open(self) -> None:
        settings = self._fleet.settings
        namespace = Namespace(open_partitions(settings))
        health = DaemonHealth(lambda: True, list, namespace, StoreMetrics(namespace).render)
        context = PageContext(Facts(self._name, settings, {}), namespace, health)
        self._handles = {
            f"{each.method} {each.path}": (each.asks, each.serve)
            for each in endpoints_of(Pools(context))
        }

    async def kill(self, steps: int) -> None:
        """Let it die within so many callbacks; another process comes in its place."""
        process = self.process
        process.fuse = steps
        await pass_virtual(AWAY)
        self._fleet.loop.kill(process)
        self._start()

    async def ask(self, path: str, worker: str, said: object, *, is_lost: bool = False) -> Any:
        """What it answers to a worker.

        Raises:
            NoAnswer: it died, Redis did not answer, or the answer got lost.
        """
        network, loop = self._fleet.network, self._fleet.loop
        model, serve = self._handles[path]
        asked = model.model_validate(said)
        scope = {"type": "http", "path_params": {"pool": POOL, "worker": worker}}
        caller = Caller(Request(scope, _stay), None, sees_contents=True)
        await pass_virtual(network.delay())
        if self.process.is_dead:
            raise NoAnswer("connection refused")
        work = self._served(serve(asked, caller))
        serving = loop.create_task(work, context=context_of(self.process.main))
        await asyncio.wait([serving], timeout=ANSWER_WITHIN)
        await pass_virtual(network.delay())
        if not serving.done() or is_lost or self.process.is_stopped:
            raise NoAnswer("no answer")
        if isinstance(serving.result(), NoAnswer):
            raise serving.result()
        return serving.result()

    async def _served(self, work: Awaitable[Any]) -> Any:
        try:
            return await work
        except RequestRefused as error:
            self._fleet.troubles.append(f"a page refused a worker's call: {error!r}")
        except GroupflowError as error:
            return NoAnswer(str(error))  # 503
        except Exception as error:
            self._fleet.troubles.append(f"a page ended a call with {error!r}")
        return NoAnswer("an error")
