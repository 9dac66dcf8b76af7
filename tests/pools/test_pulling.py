"""A worker: what it can be made of, when it asks for how many tasks, and its lease."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import orjson
import pytest

from groupflow.core.outcome import Outcome, Retry
from groupflow.core.task import PULLED, Task
from groupflow.remote import Worker
from tests.deadlines import deadline
from tests.turns import turns, turns_until


async def test_who_holds_all_that_it_may_asks_once_something_is_settled(monkeypatch: Any) -> None:
    """It asked without a pause: an answer with nothing new in it comes at once then."""
    asked, told, may_settle = list[str](), dict.fromkeys(PULLED, 1), asyncio.Event()
    tasks = [{**told, "id": str(n), "context": {}, "body": {}} for n in range(500)]

    async def request(method: str, path: str, **_: Any) -> httpx.Response:
        asked.append(path)
        await asyncio.sleep(0)
        answer: Any = {"tasks": tasks, "lease": 600.0, "fences": [1]}
        if path == "/settlements":
            await may_settle.wait()
            answer = [{"verdict": "accepted"}]
        return httpx.Response(200, json=answer, request=httpx.Request(method, "http://x/"))

    async def handle(task: Task) -> None:
        if task.id != "0":
            await asyncio.Event().wait()

    worker = Worker("http://127.0.0.1:1", "couriers", handle, concurrency=500)
    monkeypatch.setattr(worker._pool.http, "request", request)
    working = asyncio.create_task(worker.run())
    await turns_until(lambda: "/settlements" in asked)
    await turns(20)
    assert asked.count("/claims") == 1
    may_settle.set()
    await turns_until(lambda: asked.count("/claims") > 1)
    working.cancel()
    await asyncio.wait([working])


async def test_no_more_run_at_once_than_may(monkeypatch: Any) -> None:
    """As where one of those that run was lost: of two that come one waits its turn."""
    told = dict.fromkeys(PULLED, 1)
    ran, most, running = list[str](), 0, 0

    async def request(method: str, path: str, *, content: Any, **_: Any) -> httpx.Response:
        await asyncio.sleep(0)
        given = "bc" if ran else "a"
        tasks = [{**told, "id": id_, "context": {}, "body": {}} for id_ in given]
        answer: Any = {"tasks": tasks, "lease": 600.0, "fences": [1]}
        if path == "/settlements":
            answer = [{"verdict": "accepted"} for _ in orjson.loads(content)]
        return httpx.Response(200, json=answer, request=httpx.Request(method, "http://x/"))

    async def handle(task: Task) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        ran.append(task.id)
        await turns(20)
        running -= 1
        if len(ran) == 3:
            worker.stop()

    worker = Worker("http://127.0.0.1:1", "couriers", handle)
    monkeypatch.setattr(worker._pool.http, "request", request)
    async with asyncio.timeout(deadline()):
        await worker.run()
    assert (ran, most) == (["a", "b", "c"], 1)


async def test_no_more_is_held_than_can_run(monkeypatch: Any) -> None:
    """A task that has ended made room for two once it was settled: the second waited for long."""
    told, waiting = dict.fromkeys(PULLED, 1), ["c", "b", "a"]
    held, most, settled, ran = list[str](), 0, asyncio.Event(), list[str]()

    async def request(method: str, path: str, *, content: Any, **_: Any) -> httpx.Response:
        nonlocal most
        await asyncio.sleep(0)
        wanted = orjson.loads(content or b"{}")
        answer: Any = {"lease": 600.0, "fences": [1]}
        if path == "/claims":
            if ran:  # it waits on the server, which looks again when there may be something
                await settled.wait()
            while waiting and len(held) < wanted["limit"]:
                held.append(waiting.pop())
            most = max(most, len(held))
            tasks = [{**told, "id": id_, "context": {}, "body": {}} for id_ in held]
            answer["tasks"] = tasks
        elif path == "/settlements":
            await turns(20)  # enough for a call that doesn't wait for it
            for each in wanted:
                held.remove(each["id"])
            settled.set()
            answer = [{"verdict": "accepted"} for _ in wanted]
        return httpx.Response(200, json=answer, request=httpx.Request(method, "http://x/"))

    async def handle(task: Task) -> None:
        ran.append(task.id)
        if len(ran) == 3:
            worker.stop()

    worker = Worker("http://127.0.0.1:1", "couriers", handle)
    monkeypatch.setattr(worker._pool.http, "request", request)
    async with asyncio.timeout(deadline()):
        await worker.run()
    assert (ran, most) == (["a", "b", "c"], 1)


async def _returns(_task: Task) -> None: ...


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"url": "127.0.0.1:9464"}, r"url='127.0.0.1:9464'\): write http://HOST:PORT"),
        ({"url": "http://"}, "write http://HOST:PORT"),
        ({"concurrency": 0}, r"concurrency=0\): from 1 to 500"),
        ({"concurrency": 501}, "from 1 to 500"),
    ],
)
def test_what_can_not_be_is_said_at_once(facts: dict[str, Any], words: str) -> None:
    """It asked nothing for ever, or a server that can't be, without a word or with many."""
    with pytest.raises(ValueError, match=words):
        Worker(**{"url": "http://127.0.0.1:1", "pool": "couriers", "handle": _returns, **facts})


async def test_a_plain_function_runs_in_a_thread() -> None:
    """Its work was done, and the attempt had failed: it was done again. A lambda may be either."""
    seen = list[int]()

    def deliver(task: Task) -> Outcome | None:
        seen.append(threading.get_ident())
        return Retry(after=7.0) if task.id == "b" else None

    told = []
    for handle in (deliver, lambda _: asyncio.sleep(0, Retry(after=8.0))):
        worker = Worker("http://127.0.0.1:1", "couriers", handle)
        for id_ in "ab":
            await worker._run((1, id_), Task(id_, "t"))
        said = [orjson.loads(each) for each in worker._said.values()]
        told += [(each["outcome"], each.get("after")) for each in said]
    assert told == [("done", None), ("retry", 7.0), ("retry", 8.0), ("retry", 8.0)]
    assert threading.get_ident() not in seen


async def test_one_renewal_without_an_answer_loses_no_lease(monkeypatch: Any) -> None:
    """It took ten seconds whatever the lease, and the next came a quarter of a lease later."""
    task = dict.fromkeys(PULLED, 1) | {"id": "a", "context": {}, "body": {}}
    renewals, limits = list[float](), list[float]()

    async def request(method: str, path: str, timeout: float, **_: Any) -> httpx.Response:
        answer: Any = {"tasks": [task], "lease": 20.0, "fences": [1]}
        if path == "/renewal":
            renewals.append(asyncio.get_running_loop().time())
            limits.append(timeout)
            if len(renewals) == 1:
                raise httpx.ReadTimeout("no answer")
            worker.stop()
        if path == "/settlements":
            answer = [{"verdict": "accepted"}]
        return httpx.Response(200, json=answer, request=httpx.Request(method, "http://x/"))

    async def handle(_: Task) -> None:
        await asyncio.Event().wait()

    worker = Worker("http://127.0.0.1:1", "couriers", handle, drain=0.0)
    monkeypatch.setattr(worker._pool.http, "request", request)
    async with asyncio.timeout(deadline()):
        await worker.run()
    assert limits == [5.0, 5.0]
    assert renewals[1] - renewals[0] < limits[0]
