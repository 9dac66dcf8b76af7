"""How far an attempt has got: from its handler, of any kind, to the store, once a pass."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from groupflow import App, Task
from groupflow.core.errors import StoreUnavailable
from groupflow.core.task import take_progress
from groupflow.flow.exec_handlers import OutputLines
from groupflow.operate.tasks import Tasks
from groupflow.store.scripts import Verb
from groupflow.upkeep.progress import ProgressWriter
from tests.deadlines import deadline
from tests.flow.crew import Crew, crew
from tests.flow.tasks import shell, task
from tests.store.actors import made as made_of
from tests.store.bench import Bench

LINE = '{"progress": [400, 1000, "rows"]}'


class Handlers:
    """One of each kind, which says how far it has got and ends once it may."""

    def __init__(self, folder: Path) -> None:
        self.app = App()
        self._gate, self._opened = folder / "gate", threading.Event()
        for handle in (self.coroutine, self.thread, self.command):
            self.app.handler(handle.__name__)(handle)
        self.app.batch_handler("batch", size=9)(self.batch)

    async def coroutine(self, task: Task) -> None:
        await task.progress(7)
        await task.progress(400, 1000, "rows")
        await asyncio.to_thread(self._opened.wait)

    def thread(self, task: Task) -> None:
        task.progress(7)
        task.progress(400, 1000, "rows")
        self._opened.wait()

    async def batch(self, tasks: Sequence[Task]) -> None:
        assert len(tasks) == 2
        await self.coroutine(tasks[1])

    async def command(self, task: Task) -> Any:
        script = f"echo '{LINE}'; while [ ! -e '{self._gate}' ]; do sleep 0.01; done"
        return await (shell(script).handle(task) if task.id == "t0" else self.coroutine(task))

    def end(self) -> None:
        self._opened.set()
        self._gate.touch()


async def written(made: Crew, writer: ProgressWriter) -> str:
    """What operators are told, after as many passes as it takes."""
    async with asyncio.timeout(deadline()):
        while True:
            await writer.run_once()
            found = await Tasks(made.bench.namespace).find("t0")
            if found and found.progress and found.progress.done > 7:
                return found.progress.words()
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["coroutine", "thread", "batch", "command"])
async def test_the_last_word_is_written_even_behind_a_failed_pass(
    bench: Bench, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass behind which nothing was said sends nothing."""
    handlers, run_all, calls = Handlers(tmp_path), bench.client.run_all, list[Any]()
    await bench.enqueue(made_of(f"t0:{kind}"), made_of(f"t1:{kind}"))

    async def fail_once(some: Any, *more: Any) -> Any:
        if some[0][0] is Verb.PROGRESS:
            calls.append(some)
            if len(calls) == 1:
                raise StoreUnavailable("away")
        return await run_all(some, *more)

    monkeypatch.setattr(bench.client, "run_all", fail_once)
    facts: dict[str, Any] = {"batch": 9} if kind == "batch" else {}
    async with crew(bench, handlers.app, **facts) as made:
        writer = ProgressWriter(bench.client, made.daemon.session, [made.exchanger.said])
        try:
            with pytest.raises(StoreUnavailable):
                await written(made, writer)
            assert (await written(made, writer)).startswith("400 of 1,000 rows, 40 % (")
            sent = len(calls)
            await writer.run_once()
            assert len(calls) == sent
        finally:
            handlers.end()
        await made.finish(2)


FLOOD = b"x" * 100 + b"\n"
FINE = LINE.encode() + b"\n"


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([FINE], b'[400,1000,"rows"]'),
        ([b"out\n", FINE[:9], FINE[9:20], FINE[20:], b"out"], b'[400,1000,"rows"]'),
        ([FINE * 3 + b'{"progress": [7]}\nout\n'], b'[7,null,""]'),
        ([FINE + b'{"progress": [-7]}\n{"progress": []}\n{"progress": 7}\n'], b'[400,1000,"rows"]'),
        ([FLOOD * 700 + FINE + FLOOD * 700], b'[400,1000,"rows"]'),
        ([FINE[:-1]], None),
        ([FLOOD[:-1] * 700, FINE], None),
        ([b'{"progress": [1], "stage": "two"}\n{"progress": [1,2,"",4]}\n'], None),
        ([b'{"progress": [1]' + b" " * 9000, b"}\n"], None),
    ],
)
def test_lines_of_a_command(pieces: Sequence[bytes], said: bytes | None) -> None:
    """The last line that can be used counts, if it is whole; nothing else is kept."""
    of = task()
    lines = OutputLines(of)
    for piece in pieces:
        lines.feed(piece)
        assert len(lines._begun) < 600
    assert take_progress(of) == said
