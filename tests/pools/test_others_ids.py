"""Lists whose ids strangers have published before: each is handed out all the same, once."""

from __future__ import annotations

import orjson

from groupflow.core.scope import scope_of
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from tests.pools.conftest import Shop
from tests.pools.shop import TOKEN, Worker, as_, lines

LIST = "/couriers/tasks"
STRANGER = 666
TAKEN, ALL = [f"d{n}" for n in range(1, 6)], [f"d{n}" for n in range(1, 7)]


def of_a_stranger(id_: str, *, of_pool: bool) -> Arrival:
    """Another tenant's message with an id of the list."""
    body, scope = orjson.dumps({"tenant_id": STRANGER}), scope_of(None, str(STRANGER))
    pool = "couriers" if of_pool else None
    return Arrival(id_, Envelope("t", None, str(STRANGER), None, {}, body, scope, pool))


def malformed(id_: str) -> Arrival:
    return Arrival(id_, Envelope("", None, None, None, {}, b"{", ""), dead="not JSON")


async def test_a_list_is_made_equal_whatever_others_published(shop: Shop) -> None:
    d1, d2, *rest = TAKEN
    await shop.spread.enqueue(malformed(d1), of_a_stranger(d2, of_pool=True))
    await shop.spread.enqueue(*(of_a_stranger(id_, of_pool=False) for id_ in rest))
    sent = lines(*({"id": id_, "body": {"tenant_id": 1, "n": id_}} for id_ in ALL))
    first = (await shop.api.put(LIST, content=sent, headers=as_(TOKEN))).json()
    assert (first["added"], first["foreign"], first["dead"]) == (6, 0, 0)
    again = (await shop.other.put(LIST, content=sent, headers=as_(TOKEN))).json()
    assert (again["added"], again["kept"], again["removed"]) == (0, 6, 0)
    anna, given = Worker(shop.api), list[str]()
    while tasks := await anna.claim(4):
        assert {task["tenant"] for task in tasks} == {"1"}
        given += [task["body"]["n"] for task in tasks]
        assert await anna.done(*tasks) == ["accepted"] * len(tasks)
    assert sorted(given) == ALL
    over = (await shop.api.put(LIST, content=sent, headers=as_(TOKEN))).json()
    assert (over["over"], over["added"]) == (6, 0)
