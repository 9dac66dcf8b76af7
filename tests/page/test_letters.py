"""Dead letters by the API: which go first, and what one does whose body can't be read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from groupflow.broker.archive import Archive
from groupflow.core.errors import ArchiveRefused, BodyMissing, BrokerUnavailable, GroupflowError
from groupflow.core.task import Place
from groupflow.operate.archiving import archive, oldest_bodies
from groupflow.store.sessions import Session
from tests.page.context import client_of, configured
from tests.store.bench import Bench, arrival, bury

ALL = {"everything": True}


async def test_in_bulk_the_oldest_go_first(bench: Bench) -> None:
    """As by the command line: where a group has room for some, those that came first get it."""
    rule = {"name": "rule", "key": "{k}", "max_queued": 1}
    messages = [replace(arrival(f"a{n}", "a"), max_queued=1) for n in range(3)]
    assert (await bench.take_in(*messages)).full == {1, 2}
    daemon = await bench.daemon()
    await daemon.complete(await daemon.claim_one())
    async with client_of(bench.namespace, {**configured(), "groups": [rule]}) as api:
        answer = (await api.post("/dead/redrive", json=ALL)).json()
    assert (answer["done"], [each["id"] for each in answer["stayed"]]) == (["a1"], ["a2"])


@pytest.mark.parametrize(
    "error", [BodyMissing("gone"), ArchiveRefused("no stream"), BrokerUnavailable("away")]
)
async def test_a_body_that_cannot_be_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: GroupflowError
) -> None:
    """All else of its letter is shown, and no other letter stays for it."""

    async def read(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(Archive, "read", read)
    await bench.enqueue(arrival("unread"), arrival("whole"))
    daemon = await bench.daemon()
    for _ in range(2):
        await daemon.settle(bury(await daemon.claim_one("plain")))
    bodies = await oldest_bodies(bench.client, Session("d1"), 0, most=1, most_bytes=10**6)
    assert await archive(bench.client, bodies, [Place(7, "m7")]) == 1
    async with client_of(bench.namespace) as api:
        shown, whole = [
            (await api.get("/letter", params={"id": id_})).json() for id_ in ("unread", "whole")
        ]
        assert (shown["reason"], shown["body"], shown["is_withheld"]) == ("broken", None, False)
        assert (str(error) in shown["body_error"], whole["body_error"]) == (True, "")
        if not isinstance(error, BrokerUnavailable):  # then it is the same of all
            answer = (await api.post("/dead/redrive", json=ALL)).json()
            assert answer["done"] == ["whole"]
            assert [each["id"] for each in answer["stayed"]] == ["unread"]
        bench.events.clear()  # a redriven task starts once more, which the history can't know
        api.headers.pop("Authorization")
        withheld = (await api.get("/letter", params={"id": "unread"})).json()
        assert (withheld["is_withheld"], withheld["body_error"]) == (True, "")
