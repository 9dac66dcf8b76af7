"""A worker whose server leads it elsewhere or is away, and one that leaves."""

from __future__ import annotations

import asyncio
import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from structlog.testing import capture_logs

from groupflow.broker.publisher import Message
from groupflow.core.outcome import Dead, Done
from groupflow.core.task import PULLED, Task
from groupflow.pools.remote_pool import MOST_BYTES, settlement
from groupflow.remote import Refused, Worker
from groupflow.servers.server import free_ports
from groupflow.store.pulling import Pulling
from tests.deadlines import deadline
from tests.endtoend.verbs import said
from tests.pools import shop as shops
from tests.pools.shop import Shop
from tests.running import run
from tests.store.actors import pooled
from tests.turns import turns, turns_until


def test_an_answer_that_is_none_is_told() -> None:
    """A worker whose calls are led elsewhere, or are too many, says so, and tries again."""
    answer = b"HTTP/1.1 308 Moved\r\nlocation: https://elsewhere/\r\ncontent-length: 0\r\n\r\n"

    async def lead_elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        worker.stop()
        writer.write(answer)
        writer.close()

    async def deliver(_task: Task) -> None: ...

    (port,) = free_ports(1)
    worker = Worker(f"http://127.0.0.1:{port}", "couriers", deliver)

    async def try_it() -> None:
        async with await asyncio.start_server(lead_elsewhere, "127.0.0.1", port):
            async with asyncio.timeout(deadline()):
                await worker.run()

    with capture_logs() as heard:
        run(try_it())
    assert [(each["event"], "308" in each["error"]) for each in heard] == [
        ("remote.no_answer", True)
    ]


async def test_who_leaves_a_server_that_is_away_asks_it_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has something to settle, for which it has a while, whatever its handler raised."""
    asked = list[str]()

    async def refused(method: str, *_: object, **__: object) -> None:
        asked.append(method)
        raise httpx.ConnectError("connection refused")

    async def handle(_: Task) -> None:
        raise ValueError(10**5000)  # a text that can't be read

    worker = Worker("http://127.0.0.1:1", "couriers", handle)
    monkeypatch.setattr("groupflow.remote.TIMEOUT", 0.5)
    monkeypatch.setattr(worker._pool.http, "request", refused)
    await worker._run((1, "a"), Task("a", "t"))
    assert b"ValueError: (its text can't be read)" in worker._said[1, "a"]
    await worker._leave()
    assert asked[-2:] == ["POST", "DELETE"]
    assert len(asked) < 10


class Server:
    """Gives one task, which its worker has lost by the first renewal; settles slowly."""

    def __init__(self, **strange: Any) -> None:
        self.strange = strange  # answers of other shapes, by the last word of the path
        self.asked = list[str]()
        self.settling = self.most_settling = 0
        self.settles_again, self.may_settle = asyncio.Event(), asyncio.Event()
        self.renewals = asyncio.Semaphore(0)

    async def request(self, method: str, path: str, **_: Any) -> httpx.Response:
        self.asked.append(path or method)
        answer: Any = {}
        if path == "/claims":
            if "/claims" in self.asked[:-1]:
                await asyncio.Event().wait()
            task = dict.fromkeys(PULLED, 1) | {"id": "a", "context": {}, "body": {}}
            answer = {"tasks": [task], "lease": 0.04}
        elif path == "/renewal":
            self.renewals.release()
            answer = {"lease": 0.04, "fences": []}
        elif path == "/settlements":
            self.settling += 1
            self.most_settling = max(self.most_settling, self.settling)
            if "/settlements" in self.asked[:-1]:
                self.settles_again.set()
            try:
                await self.may_settle.wait()
            finally:
                self.settling -= 1
            answer = [{"verdict": "accepted"}]
        answer = self.strange.get(path[1:], answer)
        packed = answer if isinstance(answer, bytes) else orjson.dumps(answer)
        return httpx.Response(200, content=packed, request=httpx.Request(method, "http://x/"))


async def test_what_goes_back_has_ended(monkeypatch: Any) -> None:
    """A worker that leaves waits for the handlers that it cancels: none runs beside the next."""
    server = Server(renewal={"lease": 0.04, "fences": [1]})

    async def handle(_: Task) -> None:
        worker.stop()
        try:
            await asyncio.Event().wait()
        finally:
            await turns(20)  # it takes its time
            server.asked.append("ended")

    worker = Worker("http://127.0.0.1:1", "couriers", handle, drain=0.0)
    monkeypatch.setattr(worker._pool.http, "request", server.request)
    server.may_settle.set()
    await worker.run()
    assert server.asked[-2:] == ["ended", "DELETE"]


async def test_a_worker_that_leaves_settles_in_one_place(monkeypatch: Any) -> None:
    """Its own loop had met a task that its end had settled."""
    server = Server()

    async def handle(_: Task) -> None:
        worker.stop()

    worker = Worker("http://127.0.0.1:1", "couriers", handle)
    monkeypatch.setattr(worker._pool.http, "request", server.request)
    working = asyncio.create_task(worker.run())
    await server.settles_again.wait()
    server.may_settle.set()
    await working
    assert (server.asked[-1], server.most_settling) == ("DELETE", 1)


async def test_a_lost_task_is_cancelled_once(monkeypatch: Any) -> None:
    """What its handler does at its end isn't cut by the next renewal."""
    server, ends = Server(), asyncio.Queue[str]()

    async def handle(_: Task) -> None:
        how = "cut"
        try:
            await asyncio.Event().wait()
        finally:
            try:
                for _renewal in range(2):
                    await server.renewals.acquire()
                how = "in good order"
            finally:
                ends.put_nowait(how)

    worker = Worker("http://127.0.0.1:1", "couriers", handle)
    monkeypatch.setattr(worker._pool.http, "request", server.request)
    working = asyncio.create_task(worker.run())
    assert await ends.get() == "in good order"
    server.may_settle.set()
    worker.stop()
    await working


async def test_a_worker_that_leaves_is_given_nothing(shop: Shop, monkeypatch: Any) -> None:
    """A call of its own is still on its way: what that brings would lie there for a lease."""
    await shop.spread.put(pooled("p0"))
    sound, is_asked, may_go_on = Pulling.claim, asyncio.Event(), asyncio.Event()

    async def claim(*arguments: Any, **facts: Any) -> Any:
        is_asked.set()
        await may_go_on.wait()
        return await sound(*arguments, **facts)

    monkeypatch.setattr(Pulling, "claim", claim)
    anna = shops.Worker(shop.api)
    claiming = asyncio.create_task(anna.claim(1))
    await is_asked.wait()
    leaving = asyncio.create_task(shop.api.delete(anna.path))
    await asyncio.wait([leaving], timeout=0.3)
    may_go_on.set()
    await asyncio.gather(claiming, leaving)
    assert await anna.held() == []


STRANGE: dict[str, list[Any]] = {
    "claims": [{}, [], {"tasks": {}, "lease": 1}, *({"tasks": [], "lease": n} for n in (0, "60"))],
    "renewal": [{}, {"lease": 1}, {"fences": [], "lease": 0}, b"<p>", b"[" * 100_000],
    "settlements": [{}, [], [1], [{}], {"a": 1}],
}


@pytest.mark.parametrize(
    "strange",
    [{name: each} for name, some in STRANGE.items() for each in some],
    ids="{!s:.40}".format,
)
async def test_an_answer_of_another_shape_is_no_groupflow_s(
    monkeypatch: Any, strange: dict[str, Any]
) -> None:
    """A worker that asks another service says so, and keeps nothing."""
    server = Server(**strange)
    server.may_settle.set()

    async def handle(_: Task) -> None:
        if "renewal" in strange:
            await asyncio.Event().wait()

    worker = Worker("http://127.0.0.1:1", "couriers", handle)
    monkeypatch.setattr(worker._pool.http, "request", server.request)
    with pytest.raises(Refused, match="is no groupflow"):
        async with asyncio.timeout(deadline()):
            await worker.run()
    assert server.asked[-1] == "DELETE"


async def test_a_cancelled_worker_leaves(monkeypatch: Any) -> None:
    """What had ended ran again, and what it held counted as crashed, a lease later."""
    server = Server()
    worker = Worker("http://127.0.0.1:1", "couriers", lambda _: asyncio.sleep(0))
    monkeypatch.setattr(worker._pool.http, "request", server.request)
    working = asyncio.create_task(worker.run())
    await turns_until(lambda: server.settling)
    working.cancel()
    server.may_settle.set()
    await asyncio.wait([working])
    assert working.cancelled()
    assert server.asked[-2:] == ["/settlements", "DELETE"]
    assert server.asked.count("/settlements") == 2


@pytest.mark.parametrize("status", [404, 405])
async def test_a_proxy_s_own_page_is_no_refusal(monkeypatch: Any, status: int) -> None:
    """One that knows of no server behind it, during a deploy: all workers ended."""
    pages = [
        httpx.Response(status, html="<p>"),
        httpx.Response(status, headers={"content-type": "application/problem+json"}),
    ]

    async def request(method: str, *_: Any, **__: Any) -> httpx.Response:
        page = pages.pop(0) if pages else httpx.Response(200)
        page.request = httpx.Request(method, "http://x/")
        return page

    worker = Worker("http://127.0.0.1:1", "couriers", lambda _: asyncio.sleep(0))
    monkeypatch.setattr(worker._pool.http, "request", request)
    with pytest.raises(Refused, match=f"refuses this worker.*{status}"):
        async with asyncio.timeout(deadline()):
            await worker.run()
    assert pages == []


async def test_processes_that_differ_about_the_lease_are_asked_seldom(monkeypatch: Any) -> None:
    """Each renewal told another one than that before, and so was followed by the next at once."""
    server = Server()
    sound, leases = server.request, itertools.cycle((40, 60))

    async def request(method: str, path: str, **how: Any) -> httpx.Response:
        server.strange = {"renewal": {"lease": next(leases), "fences": [1]}}
        return await sound(method, path, **how)

    async def handle(_: Task) -> None:
        for _turn in range(200):
            await asyncio.sleep(0)
        worker.stop()

    worker = Worker("http://127.0.0.1:1", "couriers", handle)
    monkeypatch.setattr(worker._pool.http, "request", request)
    server.may_settle.set()
    await worker.run()
    assert server.asked.count("/renewal") <= 1


UNTELLABLE = [{1}, Decimal(1), "\udce9", 10**400, "x" * MOST_BYTES, [0] * 10_000]


@pytest.mark.parametrize("result", UNTELLABLE, ids="{!r:.20}".format)
def test_what_is_done_is_done_whatever_its_result_is(result: Any) -> None:
    """It was a failed attempt, and so the work was done again, to no other end."""
    outcome = Done(result, [Message(b"{}", "t")])
    with capture_logs() as heard:
        told = orjson.loads(settlement((1, "a"), outcome))
    assert (told["outcome"], len(told["then"]), "result" in told) == ("done", 1, False)
    assert told["result_error"] == heard[0]["error"]
    assert (heard[0]["event"], heard[0]["task"]) == ("remote.result_dropped", "a")


def test_a_result_that_a_server_takes_is_told() -> None:
    """With follow-up tasks it may have so many values, and some room is left."""
    told = orjson.loads(settlement((1, "a"), Done([0] * 9_900, [Message(b"{}", "t")])))
    assert len(told["result"]) == 9_900


@pytest.mark.parametrize("reason", ["\udce9", "\udce9" * 2000, 7])
def test_what_can_t_succeed_is_dead_whatever_its_reason_is(reason: Any) -> None:
    told = orjson.loads(settlement((1, "a"), Dead(reason)))
    assert (told["outcome"], len(told["reason"]) <= 2000) == ("dead", True)


@pytest.mark.parametrize(
    ("answer", "words"),
    [(b"200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(each), each), "is no groupflow")
     for each in (b"{}", b"[]", b"1", b"<p>")]
    + [(b"308 Moved\r\ncontent-length: 0\r\n\r\n", "/tasks answers 308")],
)  # fmt: skip
async def test_a_list_that_another_service_takes_is_not_sent(
    tmp_path: Path, answer: bytes, words: str
) -> None:
    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 " + answer)
        writer.close()

    (tmp_path / "list").touch()
    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        url = "http://127.0.0.1:{1}".format(*server.sockets[0].getsockname())
        call = ("pool", "sync", "couriers", str(tmp_path / "list"), "--url", url)
        code, _, error = await asyncio.to_thread(said, call, {})
    assert (code, words in error) == (1, True), error


SYNC, WORK = "pool sync couriers /dev/null", "work --pool couriers --exec cat"
NOWHERE = ("http://", "http://[::1", "http://a:port", "http://a:99999", "ftp://a")
MISUSED = [
    *((f"{verb} --url {url}", "", 2, "write http://HOST:PORT")
      for verb in (SYNC, WORK) for url in NOWHERE),
    *((f"{verb} --url http://127.0.0.1:1", token, 78, "GROUPFLOW_TOKEN: Use at least 16")
      for verb in (SYNC, WORK) for token in ("a-tøken-of-the-tests", "a-token-of-the-tests\n")),
    (f"{WORK}\0'a --url http://127.0.0.1:1", "", 2, "No closing quotation"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "token", "code", "told"), MISUSED)
def test_what_can_t_be_used_is_told(words: str, token: str, code: int, told: str) -> None:
    """And no token is."""
    call = [each.replace("\0", " ") for each in words.split(" ")]
    ended, _, error = said(call, {"GROUPFLOW_TOKEN": token})
    assert (ended, "oken-of-the-" in error) == (code, False)
    assert told in " ".join(error.split())
