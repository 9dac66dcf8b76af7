"""What is known of tasks that are over: each, those of a group, and groups that they left empty."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

import orjson
import pytest

from groupflow.operate import ended
from groupflow.operate.cancelling import Several, cancel_step
from groupflow.operate.ended import drained_lately, ended_lately, lately_of, list_ended
from groupflow.operate.groups import Groups
from groupflow.operate.listing import TaskFilter, TaskList, every_task
from groupflow.operate.namespace import Namespace
from groupflow.operate.pages import UnknownCursor
from groupflow.operate.tasks import Tasks
from groupflow.store.settlements import Complete
from tests.operate.spread import Spread, all_pages
from tests.operate.test_listing import STRANGE, of
from tests.store.bench import Bench, arrival


async def test_what_is_kept_of_a_task_that_is_done(bench: Bench) -> None:
    """When it came, began and ended; where, and what it gave, or why that isn't kept."""
    told: dict[str, Any] = {
        "gave": {"result": [2**60]}, "wrong": {"result_error": "no"}, "silent": {}
    }  # fmt: skip
    await bench.enqueue(*(arrival(id_, "g") for id_ in told))
    daemon, before = await bench.daemon("d7"), bench.server_time() / 1_000_000
    for id_, kept in told.items():
        result = orjson.dumps(kept) if kept else b""
        await daemon.settle(Complete(await daemon.claim_one(), 1.5, result=result))
        found = await Tasks(bench.namespace).find(id_)
        assert found
        assert (found.result, found.result_error) == (kept.get("result"), kept.get("result_error"))
        assert (found.state, found.attempt, found.daemon, found.worker) == ("done", 1, "d7", None)
        assert (found.seconds, found.began_at) == (1.5, round((found.since or 0) - 1.5, 6))
        assert (found.enqueued_at or 9e9) <= before <= (found.since or 0)
        shown = asdict(found)
    newest, *_ = lately = await ended_lately(bench.namespace, "g")
    assert [each.id for each in lately] == ["silent", "wrong", "gave"]
    assert asdict(newest).items() <= shown.items()
    for what in ("history", "results"):
        bench.raw.rename(bench.keys(f"{what}_new"), bench.keys(f"{what}_old"))
    older = await Tasks(bench.namespace).find("gave")
    assert older is not None
    assert older.result == [2**60]


async def test_what_ended_lately_is_found_among_all(bench: Bench, monkeypatch: Any) -> None:
    """By bounded looks, in groups of any name, once each, in what the history still has."""
    ids = [f"s{n}" for n in range(12)]
    await bench.enqueue(*(arrival(each, STRANGE) for each in ids))
    await bench.enqueue(*(of(f"o{n}", f"o{n}", "1", STRANGE) for n in range(20)))
    daemon = await bench.daemon()
    await Tasks(bench.namespace).drop("s0")
    await Tasks(bench.namespace).cancel("s1", "ops")
    await daemon.work_off()
    bench.raw.rename(bench.keys("history_new"), bench.keys("history_old"))
    await bench.enqueue(arrival("s12", STRANGE))
    await daemon.work_off()
    bench.raw.rpush(bench.keys("lately_new"), "s11", "gone")
    monkeypatch.setattr(ended, "_LOOK", 4)
    found = [each.id for each in await ended_lately(bench.namespace, STRANGE)]
    assert found == ["s11", "s12", *ids[10:2:-1]][:10]
    every = [each.id for each in await ended_lately(bench.namespace, STRANGE, 20)]
    assert every == ["s11", "s12", *ids[10::-1]][:13]
    assert [each.id for each in await ended_lately(bench.namespace, "o7")] == ["o7"]
    monkeypatch.setattr(ended, "KEPT", 8)
    few = await ended_lately(bench.namespace, STRANGE, 20)
    assert len(few) <= 8, "no more are looked at"
    assert await ended_lately(bench.namespace, "o-") == []


async def page_of(namespace: Namespace, wanted: Any, limit: int, cursor: str) -> TaskList:
    return await list_ended(namespace, "done", TaskFilter(**wanted), cursor=cursor, limit=limit)


async def test_the_latest_to_end_come_first(spread: Spread) -> None:
    """Page by page, over all partitions and both segments; by each filter but the tenant."""
    names = [f"g{n}" for n in range(20)]
    await spread.enqueue(*(of(f"{name}-1", name, "1") for name in names))
    await spread.enqueue(*(of(f"p{n}", None, "1", "mail.x") for n in range(20)))
    daemons = await spread.daemons()
    for daemon in daemons:
        await daemon.work_off()
        key = daemon.bench.keys
        daemon.bench.raw.rename(key("history_new"), key("history_old"))
    await spread.enqueue(*(of(f"{name}-2", name, "1") for name in names))
    for daemon in daemons:
        await daemon.work_off()
    ended = [row async for page in every_task(spread.namespace, "done") for row in page.tasks]
    ended.sort(key=lambda row: (-(row.since or 0.0), row.id))
    wanted = {"id": "-1", "type": "mail.*", "group": "g1", "older": 0.001}
    for name, part in (("", ""), *wanted.items()):
        kept = [row.id for row in ended if str(part).strip("*") in str(getattr(row, name, part))]
        for limit in (7, 500):
            look = partial(page_of, spread.namespace, {name: part} if name else {}, limit)
            pages = await all_pages(look)
            assert [row.id for page in pages for row in page.tasks] == kept
            assert {len(page.tasks) for page in pages[:-1]} <= {limit}
            assert all(page.is_whole for page in pages)
    await spread.enqueue(of("wrong", None, "1"))
    assert await Tasks(spread.namespace).drop("wrong") is None
    found = await list_ended(spread.namespace, "dropped", limit=1)
    assert ([row.id for row in found.tasks], found.next) == (["wrong"], None)
    for cursor in ("1.2", "a.b.c"):
        with pytest.raises(UnknownCursor, match="another list"):
            await list_ended(spread.namespace, "done", cursor=cursor)


async def test_what_ended_at_once_is_listed_once(bench: Bench) -> None:
    """Tasks that one script ended have one time: each is on one page."""
    ids = [f"t{n}" for n in range(90)]
    await bench.enqueue(*(arrival(id_, "g") for id_ in ids))
    await cancel_step(bench.namespace, Several("g"), "ada")
    pages = await all_pages(partial(list_of_cancelled, bench.namespace))
    listed = [row.id for page in pages for row in page.tasks]
    assert (len({row.since for page in pages for row in page.tasks}), len(pages)) == (1, 9)
    assert sorted(listed) == sorted(ids)


async def list_of_cancelled(namespace: Namespace, cursor: str) -> TaskList:
    return await list_ended(namespace, "cancelled", cursor=cursor, limit=10)


async def test_the_latest_of_a_long_history(bench: Bench, monkeypatch: Any) -> None:
    """Of groups the latest; of plain tasks those among so many: the list isn't whole."""
    monkeypatch.setattr(ended, "_STEP", 10)
    raw: Any = bench.raw
    daemon, key = await bench.daemon(), bench.keys("history_new")
    await bench.enqueue(
        *(arrival(f"p{n}") for n in range(300)), *(arrival(f"g{n}", "g") for n in range(300))
    )
    await daemon.work_off()
    newest = [f"g{n}" for n in range(299, -1, -1)]
    line = raw.hget(key, "g0").decode()
    raw.hset(key, "g0", f"{int(line[:16]) - 7_200_000_000:016}{line[16:]}")
    page = await page_of(bench.namespace, {"older": 3600.0}, 1, "0")
    assert ([row.id for row in page.tasks], page.next) == (["g0"], None)
    for most, least, is_whole in ((ended.LOOKED_AT, 600, True), (20, 20, False)):
        monkeypatch.setattr(ended, "LOOKED_AT", most)
        page = await page_of(bench.namespace, {"group": "g"}, 30, "0")
        assert [row.id for row in page.tasks] == newest[:30]
        assert (page.is_whole, least <= page.looked_at < least + 40) == (is_whole, True)
        page = await page_of(bench.namespace, {"group": "g"}, 30, page.next or "")
        assert [row.id for row in page.tasks] == newest[30:60]


async def test_the_last_hour_of_a_group(bench: Bench, monkeypatch: Any) -> None:
    """Minute by minute, by how tasks ended, from when on that is known; no older ones."""
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(5)), arrival("b0", "b"))
    daemon = await bench.daemon()
    await Tasks(bench.namespace).cancel("a4", "ops")
    await daemon.work_off()
    raw: Any = bench.raw
    key, this = bench.keys("history_new"), bench.server_time() // 60_000_000
    for id_, ago in {"a0": 70, "a1": 2, "a2": 2, "a3": 0, "a4": 0}.items():
        facts = orjson.loads(raw.hget(key, id_)[16:])
        if id_ != "a4":
            facts[5][1] = 2.5
        line = f"{(this - ago) * 60_000_000:016d}".encode() + orjson.dumps(facts)
        raw.hset(key, id_, line)
    bench.raw.delete(bench.keys("lately_new"))
    bench.raw.rpush(bench.keys("lately_new"), "a0", "a1", "a2", "b0", "a3", "a4")
    found = await lately_of(bench.namespace, "a", 2)
    assert [each.id for each in found.tasks] == ["a4", "a3"]
    assert [(each.done, each.others) for each in found.minutes] == [(2, 0), (1, 1)]
    two, last = found.minutes
    assert last.at - two.at == 120
    assert (two.seconds, last.seconds) == (5.0, 2.5)
    assert found.since == pytest.approx(bench.server_time() / 1e6 - ended.HOUR, abs=5)
    monkeypatch.setattr(ended, "KEPT", 4)
    monkeypatch.setattr(ended, "_LOOK", 1)
    found = await lately_of(bench.namespace, "a", 2)
    assert [(each.done, each.others) for each in found.minutes] == [(1, 0), (1, 1)]
    assert found.since == two.at, "before that, others may have ended"


async def test_a_drained_group_is_found(spread: Spread, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a part of any name, the last one first; not while anything of it is there."""
    names = [f"{name}/{n}" for n in range(9) for name in ('o"ne', "two")]
    waits, parks, holds = names[:3]
    await spread.enqueue(*(arrival(f"{name}-1", name) for name in names))
    for daemon in await spread.daemons():
        await daemon.work_off()
    assert {row.group for row in (await drained_lately(spread.namespace)).groups} == {*names}
    await spread.enqueue(arrival("w", waits), arrival("p", parks, delay=60.0), arrival("h", holds))
    await Groups(spread.namespace).pause(names[3], "me")
    daemon = await spread.benches[spread.place_of(holds)].daemon("d2")
    claims = await daemon.claim("grouped", "w1", "w2")
    page = await drained_lately(spread.namespace, text="/")
    assert {row.group for row in page.groups} == {*names[4:]}
    since = [row.since or 0.0 for row in page.groups]
    assert since == sorted(since, reverse=True)
    assert (page.next, page.groups[0].state, page.groups[0].type) == (None, "drained", "t")
    ones = (await drained_lately(spread.namespace, text='o"n')).groups
    assert {row.group for row in ones} == {name for name in names[4:] if name.startswith("o")}
    assert len((await drained_lately(spread.namespace, limit=2)).groups) == 2
    monkeypatch.setattr(ended, "_LOOK_DRAINED", 1)
    page = await drained_lately(Namespace([spread.benches[0].client]), limit=1)
    assert (len(page.groups), page.total) == (1, 2), "there are more"
    assert (await drained_lately(spread.namespace, text="t")).groups[0].group.startswith("two")
    await daemon.complete(*claims)
    raw, key, id_ = daemon.bench.raw, daemon.bench.keys("history_new"), f"{holds}-1"
    line: Any = raw.hget(key, id_)  # long after, its id came again, to no group
    raw.hset(key, id_, line.replace(orjson.dumps(holds), b"null"))
    assert holds in {row.group for row in (await drained_lately(spread.namespace)).groups}
