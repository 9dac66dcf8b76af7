"""Whose a list's ids are, and lines that are too large for a script; `test_pools` has the rest."""

from __future__ import annotations

from typing import Any

from groupflow.operate.pools import pools_in
from groupflow.store.enqueue import CARRIED, READ_WHOLE, Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.history import rotate_history
from groupflow.store.pulling import Pulling
from groupflow.store.scans import present
from groupflow.store.settlements import Bury
from tests.store.actors import POOL, Worker
from tests.store.bench import Bench, ids
from tests.store.story import hears, play
from tests.store.task_state import found
from tests.store.test_ids import OURS, THEIRS, garbage
from tests.store.test_pools import listed, prune, put


def of(scope: str, id_: str, pool: str | None = POOL, size: int = 2, **facts: Any) -> Arrival:
    """A tenant's message."""
    body = b"{" + b" " * (size - 2) + b"}"
    return Arrival(id_, Envelope("t", None, None, None, {}, body, scope, pool), **facts)


async def fill_with_theirs(shop: Bench) -> list[str]:
    """Another tenant has a task of each id, each in another state, or garbage has it."""
    await shop.enqueue(of(THEIRS, "pdone", None), of(THEIRS, "pdropped", None))
    await play(shop, "drop pdropped | drain pdone")
    every = [
        of(THEIRS, "of a pool"),
        of(THEIRS, "of daemons", None),
        of(THEIRS, "large", None, size=2 * READ_WHOLE),
        of(THEIRS, "late", delay=60.0),
        of(THEIRS, "dead", dead="no type"),
        garbage("garbage"),
        of(THEIRS, "held", priority=9.0),
    ]
    await shop.enqueue(*every)
    assert ids(await Worker(shop, "carl").claim(1)) == ["held"]
    return ["pdone", "pdropped", *(each.id for each in every)]


async def test_no_other_tenant_takes_a_list_s_ids_beforehand(shop: Bench) -> None:
    """All of it is handed out, once; sent again it is what it was."""
    names = await fill_with_theirs(shop)
    mine = [listed(id_, scope=OURS) for id_ in names]
    assert (await put(shop, *mine))[0] == dict.fromkeys(names, "added")
    assert await put(shop, *mine) == (dict.fromkeys(names, "kept"), 0)
    assert await present(shop.client, [(id_, OURS) for id_ in names]) == [True] * len(names)
    anna = Worker(shop)
    claims = await anna.claim(50)
    assert {claim.task.id.partition("~")[0] for claim in claims} == set(names)
    assert all("~" in id_ for id_ in ids(claims)), "theirs were not in the list, and are gone"
    assert (await put(shop, *mine))[0] == dict.fromkeys(names, "assigned")
    await anna.complete(*claims)
    assert await present(shop.client, [(id_, OURS) for id_ in names]) == [False] * len(names)
    for _ in range(2):  # in the history's newer part, and in its older one
        assert (await put(shop, *mine))[0] == dict.fromkeys(names, "over")
        await rotate_history(shop.client, keep=0, size=1)
    assert await anna.claim(50) == []


async def test_a_list_takes_nothing_from_others(shop: Bench) -> None:
    """What another tenant's id ended as stays known, so its message is taken once (S6)."""
    await shop.enqueue(of(THEIRS, "x", None))
    told = await play(shop, "drop x")
    assert (await put(shop, listed("x", scope=OURS)))[0] == {"x": "added"}
    assert await shop.enqueue(of(THEIRS, "x", None)) == [False]
    await told.go_on("task x dropped")
    assert await put(shop) == ({}, 1)
    await rotate_history(shop.client, keep=0, size=1)
    assert (await put(shop, listed("x", scope=OURS)))[0] == {"x": "added"}, "it was dropped"
    [again] = await Worker(shop).claim(9)
    assert again.task.id.startswith("x~")
    assert not shop.raw.hexists(shop.keys("history_old"), again.task.id), "one place each"


async def test_messages_of_its_own_tenant_are_the_same_tasks(shop: Bench) -> None:
    """Under a derived id too, in either order; and what is listed is none of theirs."""
    await shop.enqueue(of(THEIRS, "a"), of(OURS, "a"), of(THEIRS, "b"), of(THEIRS, "c"))
    await shop.enqueue(of(OURS, "c", None))
    mine = [listed(id_, scope=OURS) for id_ in "abc"]
    assert (await put(shop, *mine))[0] == {"a": "kept", "b": "added", "c": "foreign"}
    for scope in (OURS, THEIRS):
        assert await shop.enqueue(*(of(scope, id_) for id_ in "abc")) == [False] * 3


async def test_its_own_letters_stay_letters(shop: Bench) -> None:
    """However long they are dead, under a derived id as well."""
    await shop.enqueue(of(THEIRS, "b"), *(of(OURS, id_, dead="no") for id_ in "ab"))
    letters: Any = shop.raw.zrange(shop.keys("dead"), 0, -1)
    shop.raw.zadd(shop.keys("dead"), dict.fromkeys(letters, 1))
    mine = [listed(id_, scope=OURS) for id_ in "ab"]
    assert (await put(shop, *mine))[0] == {"a": "dead", "b": "dead"}
    assert await shop.enqueue(of(OURS, "a", None)) == [True], "its letter gave the id back"
    [done] = await (await shop.daemon()).work_off()
    assert done.startswith("a~")
    await play(shop, "drop a")
    assert (await put(shop, mine[0]))[0] == {"a": "over"}, "it was done before"


async def test_large_lines_become_what_small_ones_do(shop: Bench) -> None:
    """Each is laid in Redis in front of the script."""
    lines = [listed(id_, size=CARRIED if id_ in "bde" else 0) for id_ in "abcde"]
    assert (await put(shop, *lines))[0] == dict.fromkeys("abcde", "added")
    assert await put(shop, *lines) == (dict.fromkeys("abcde", "kept"), 0)
    anna = Worker(shop)
    claims = await anna.claim(9)
    assert ids(claims) == [*"abcde"], "in the order of the list"
    assert (await put(shop, *lines))[0] == dict.fromkeys("abcde", "assigned")
    for claim in claims:
        assert not claim.apart or await claim.fetch()
    assert {claim.task.id for claim in claims if len(claim.task.body) == CARRIED} == {*"bde"}
    await anna.complete(*claims)
    assert (await put(shop, *lines))[0] == dict.fromkeys("abcde", "over")
    assert not shop.raw.exists(shop.keys("tasks")), "no envelope is left behind"


async def test_a_large_line_leaves_others_bodies_alone(shop: Bench) -> None:
    """A task of another tenant keeps its own, and so does a dead letter of that id."""
    await shop.enqueue(of(THEIRS, "x", None))
    mine = listed("x", scope=OURS, size=CARRIED)
    for word in ("added", "kept"):
        assert (await put(shop, mine))[0] == {"x": word}
    anna = Worker(shop)
    [claim] = await anna.claim(9)
    assert claim.task.id.startswith("x~")
    assert not claim.apart or await claim.fetch()
    assert len(claim.task.body) == CARRIED
    assert set(shop.raw.hkeys(shop.keys("tasks"))) == {b"x", claim.task.id.encode()}
    await anna.settle(Bury(claim, "no", []))
    before = shop.raw.hget(shop.keys("tasks"), claim.task.id)
    assert (await put(shop, listed("x", scope=OURS, size=CARRIED + 5)))[0] == {"x": "dead"}
    assert shop.raw.hget(shop.keys("tasks"), claim.task.id) == before


async def test_numbers_and_arrivals_only_rise(shop: Bench) -> None:
    """Also where the server's clock is set back: behind the last, in front of the next."""
    ahead = f"{shop.server_time() + 3_600_000_000:016d}"
    shop.raw.hset(shop.keys("count"), "sequence", ahead)
    store = Pulling(shop.client, 8.0)
    numbers = [ahead, *[await store.begin_list(POOL) for _ in range(3)]]
    assert numbers == sorted(set(numbers))
    told = await play(shop, "take p1=")
    await store.put(POOL, numbers[-1], [listed("p2"), listed("p3")])
    for id_ in ("p2", "p3"):
        assert shop.raw.hget(shop.keys("task_state", id_), "list") == numbers[-1].encode()
    await told.go_on("take p4= | anna: all p1 p2 p3 p4")


async def test_what_a_newer_list_has_stays(shop: Bench) -> None:
    """An older one, which another process sends beside it, has it too; and what came meanwhile."""
    store = Pulling(shop.client, 8.0)
    await play(shop, "take p1=")
    older, newer = [await store.begin_list(POOL) for _ in range(2)]
    assert await store.put(POOL, newer, [listed("p1"), listed("p2")]) == ["kept", "added"]
    told = await play(shop, "take p3=")
    lines = [listed(id_) for id_ in ("p1", "p2", "p3")]
    assert await store.put(POOL, older, lines) == ["kept"] * 3
    assert await prune(shop, newer) == 0
    await told.go_on("anna: all p1 p2 p3")


async def test_a_list_is_told_of(shop: Bench) -> None:
    """Who waits for a pool is woken by it; a pool is known by its first task, and no sooner."""
    await play(shop, "take p")
    store = Pulling(shop.client, 8.0)
    number = await store.begin_list(POOL)
    assert await store.put(POOL, number, [listed("p")]) == ["foreign"]
    assert (await pools_in(shop.client)) == []
    assert await hears(shop, lambda: store.put(POOL, number, [listed("a")])) == ["pool"]
    assert [each.name for each in (await pools_in(shop.client))] == [POOL]
    assert (await found(shop, "a")).state == "queued"
