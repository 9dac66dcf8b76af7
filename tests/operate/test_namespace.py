"""All partitions as of one: what is summed, merged, looked for everywhere, done to all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import orjson
import pytest
from pydantic import TypeAdapter

from groupflow.core.errors import AmbiguousId, StoreUnavailable
from groupflow.operate import bulk
from groupflow.operate.bulk import count
from groupflow.operate.busy import read_busy, read_tops
from groupflow.operate.cancelling import Several, cancel_step, count_step
from groupflow.operate.dead import DeadLetters, Filter
from groupflow.operate.groups import ALL, Groups
from groupflow.operate.listing import TaskFilter, every_task, list_tasks, search_tasks
from groupflow.operate.namespace import Namespace
from groupflow.operate.pages import walk
from groupflow.operate.redrive import Redriver
from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.statistics import SampleRow, together
from groupflow.operate.tasks import Choice, Tasks
from groupflow.operate.totals import read_daemons, read_totals
from groupflow.ops.page.shapes import CursorText
from groupflow.settings.model import Settings
from groupflow.store.client import Argument, StoreClient
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.keys import Keys
from groupflow.store.scripts import AnyVerb
from tests.history.auditor import audit
from tests.operate.namesakes import ID, wait
from tests.operate.spread import Spread, all_pages
from tests.store.bench import arrival
from tests.store.task_state import found, letter

AWAY = r"partition {} is away: Redis at 127\.0\.0\.1:1 "


async def kill_some(spread: Spread, number: int = 30) -> list[str]:
    """Dead letters, one after another; their ids, the latest first."""
    for n in range(number):
        group = f"d{n}" if n % 2 else None
        await spread.enqueue(arrival(f"dead-{n:02}", group, dead=f"reason {n % 3}"))
    return [f"dead-{n:02}" for n in reversed(range(number))]


async def test_totals_are_summed_and_daemons_merged(spread: Spread) -> None:
    await spread.fill()
    daemons = [*await spread.daemons("d1"), *await spread.daemons("d2")]
    for daemon in daemons[:4]:
        await daemon.claim("grouped", "w1", "w2")
        await daemon.complete(await daemon.claim_one("plain", "w3"))
    parts = [await bench.status() for bench in spread.benches]
    found = await read_totals(spread.namespace)
    assert (found.queued_plain, found.running_plain, found.done_total) == (36, 0, 4)
    assert (found.queued_grouped, found.running_grouped, found.taken_total) == (72, 8, 120)
    assert (found.groups, found.ready) == (40, 32)
    assert [(each.name, each.workers) for each in found.daemons] == [("d1", 2), ("d2", 2)]
    assert "away" not in found.as_json()
    assert found.waited_plain >= max(part.waited_plain for part in parts)
    assert [each.name for each in await read_daemons(spread.namespace)] == ["d1", "d2"]


async def test_a_partition_that_is_away_is_named_and_the_others_go_on(spread: Spread) -> None:
    names = await spread.fill()
    there = [name for name in names if spread.place_of(name) != 3]
    namespace = spread.without(3)
    found = await read_totals(namespace)
    assert found.groups == len(there) < 40
    assert found.as_json()["away"] == [3]
    assert [each.partition for each in namespace.away] == [3]
    with pytest.raises(StoreUnavailable, match=AWAY.format(3)):
        await Groups(namespace).why(spread.group_in(3))
    assert (await Groups(namespace).why(there[0])).state == "ready"
    tops = await read_tops(namespace)
    assert [each.partition for each in tops.away] == [3]
    assert [top.group for top in tops.slowest] == there[:10]
    assert len(await read_busy(namespace)) == len(there)
    namespace.clients = spread.namespace.clients  # it comes back
    assert (await read_totals(namespace)).away == namespace.away == []
    with pytest.raises(StoreUnavailable, match="no partition answers; " + AWAY.format(0)):
        await read_totals(spread.without(0, 1, 2, 3))


async def test_no_call_waits_twice_for_a_silent_partition(spread: Spread, monkeypatch: Any) -> None:
    """One that is frozen costs the whole timeout once, and then little."""
    monkeypatch.setattr("groupflow.operate.namespace.RECALL", 0.01)
    asked: list[AnyVerb] = []

    async def run(verb: AnyVerb, *_: Argument) -> None:
        asked.append(verb)
        await asyncio.get_running_loop().create_future()

    async def ask(client: StoreClient) -> None:
        if client is frozen:
            await client.run(OperatorVerb.TYPES)

    frozen = spread.namespace.clients[2]
    monkeypatch.setattr(frozen, "run", run)
    first = await spread.namespace.ask_all(ask, timeout=0.05)
    again = await spread.namespace.ask_all(ask)  # would wait for ever
    assert [*first.by_partition] == [*again.by_partition] == [0, 1, 3]
    assert len(asked) == 2
    assert str(first.away[0]) == "partition 2 is away: no answer in 0.05 s"
    assert str(again.away[0]) == "partition 2 is away: no answer in 0.01 s"


async def test_who_is_back_gets_as_long_for_its_answer_as_all(
    spread: Spread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only whether it is back has to be said at once."""
    monkeypatch.setattr("groupflow.operate.namespace.RECALL", 0.01)
    namespace = spread.without(2)
    gone = namespace.clients[2]
    number = partial(StoreClient.run, verb=OperatorVerb.NUMBER)
    assert [each.partition for each in (await namespace.ask_all(number)).away] == [2]
    await gone.close()
    namespace.clients = spread.namespace.clients

    async def run(*_: object) -> str:
        return "at once"

    async def ask(client: StoreClient) -> int:
        await asyncio.sleep(0.05)  # longer than RECALL
        return namespace.clients.index(client)

    monkeypatch.setattr(namespace.clients[2], "run", run)
    assert (await namespace.ask_all(ask)).all == [0, 1, 2, 3]
    assert namespace.away == []


@pytest.mark.parametrize("walk", ["letters", "count", "cancel"])
async def test_a_walk_tells_what_it_passed_over(
    spread: Spread, monkeypatch: pytest.MonkeyPatch, walk: str
) -> None:
    """Though that has answered something else before the end."""
    await spread.fill(4)
    namespace = spread.without(0)
    gone, other = namespace.clients[:2]
    run = other.run

    async def run_and_ask(verb: AnyVerb, *arguments: Argument) -> Any:
        namespace.clients = spread.namespace.clients
        await namespace.ask(0, lambda client: client.run(OperatorVerb.NUMBER))
        return await run(verb, *arguments)

    monkeypatch.setattr(other, "run", run_and_ask)
    meant = Several(type="t")
    steps: dict[str, Callable[[], Awaitable[Any]]] = {
        "letters": partial(bulk.step, namespace, Filter()),
        "count": partial(count_step, namespace, meant),
        "cancel": partial(cancel_step, namespace, meant, "ada"),
    }
    done = await steps[walk]()
    await gone.close()
    assert ([each.partition for each in done.away], namespace.away) == ([0], [])


async def test_where_a_partition_ends_a_walk_goes_on(spread: Spread) -> None:
    """By a cursor that the API takes."""

    async def look(_place: str, _client: StoreClient) -> tuple[str, bool]:
        return "", True

    cursor, _ = await walk(spread.namespace, "0", look, 5)
    assert (cursor, TypeAdapter(CursorText).validate_python(cursor)) == ("1", "1")
    assert (await walk(spread.namespace, "1", look, 5))[0] == "2"


async def test_the_only_partition_is_the_whole() -> None:
    """Its error stays what it is, and names no partition."""
    namespace = Namespace([StoreClient("redis://127.0.0.1:1/0", Keys("unknown"))])
    with pytest.raises(StoreUnavailable, match=r"^Redis at 127"):
        await read_totals(namespace)
    with pytest.raises(StoreUnavailable, match=r"^Redis at 127"):
        await count(namespace, Filter())
    assert namespace.away == []


async def test_tasks_of_a_state(spread: Spread) -> None:
    """Some, and all; without a partition what is left."""
    groups = await spread.fill()
    page = await list_tasks(spread.namespace, "queued", 60)
    rows = page.tasks
    assert [(row.id, row.group) for row in rows[:40]] == [(f"p{n:02}", None) for n in range(40)]
    names = {f"{group}-{n}" for group in groups for n in (1, 2)} | {f"p{n:02}" for n in range(40)}
    assert len({row.id for row in rows} & names) == 60
    search = partial(search_tasks, spread.namespace, "queued", TaskFilter(), limit=60)
    pages = await all_pages(lambda cursor: search(cursor=cursor), page.next)
    assert sorted(row.id for each in pages for row in each.tasks) == sorted(names)
    last = [await list_tasks(spread.namespace, "queued", len(names) - n) for n in (0, 1)]
    assert [each.next is None for each in last] == [True, False]
    found = [row.id async for page in every_task(spread.namespace, "queued") for row in page.tasks]
    assert sorted(found) == sorted(names)
    some = [row.id async for page in every_task(spread.without(0), "queued") for row in page.tasks]
    assert set(some) < names


async def test_a_task_is_found_wherever_it_lies(spread: Spread) -> None:
    names = await spread.fill()
    tasks = Tasks(spread.namespace)
    for name in names:
        task = await found(spread, f"{name}-2")
        assert (task.group, task.state) == (name, "queued")
    assert await tasks.find("unknown") is None
    assert await tasks.drop("p07") is None
    assert (await tasks.find("p07")).state == "dropped"  # type: ignore[union-attr]
    assert await tasks.drop("no task") == "unknown"
    assert await tasks.run_now("p08") == "due"
    await spread.enqueue(arrival("late", "g00", delay=600.0))
    assert (await tasks.delayed_of("g00"))[0] == ["late"]
    assert await tasks.run_now("late") is None


async def test_dead_letters_are_one_list(spread: Spread) -> None:
    ids = await kill_some(spread)
    letters = DeadLetters(spread.namespace)
    assert [letter.id async for letter in letters.each()] == ids
    pages = await all_pages(lambda cursor: letters.page(Filter(), passed=cursor, limit=4))
    assert [letter.id for page in pages for letter in page.letters] == ids
    dead = await letter(spread, ids[0])
    assert dead.partition == spread.place_of(dead.group, ids[0])
    assert await letters.drop(dead)
    assert await letters.find(ids[0]) is None
    letters = DeadLetters(spread.without(0))
    found = [letter.id async for letter in letters.each()]
    assert 0 < len(found) < len(ids) - 1
    page = await letters.page(Filter(), limit=50)
    assert [letter.id for letter in page.letters] == found
    assert {letter.partition for letter in page.letters} == {1, 2, 3}
    assert ([each.partition for each in page.away], page.next) == ([0], None)


async def test_a_letter_that_is_routed_anew_goes_to_its_group(spread: Spread) -> None:
    """It died at the door, so it lies by its id; the rules of now make it a group's task."""
    rule = {"app": "crm", "tenants": "*", "key": "{entity}:{tenant_id}"}
    settings = Settings.model_validate({"groups": [rule]})
    body = {"app_name": "crm", "tenant_id": 7, "type": "t"}
    letters = DeadLetters(spread.namespace)
    for number in range(24):
        id_ = f"door{number}"
        facts = orjson.dumps({**body, "entity": f"e{number}"})
        refused = Arrival(id_, Envelope("t", None, "7", None, {}, facts), dead="no field entity")
        await spread.put(refused)
        dead = await letter(spread, id_)
        assert await Redriver(settings, spread.namespace).redrive(dead)
        assert await letters.find(id_) is None
        group = f"e{number}:7"
        task = await found(spread, id_)
        assert (task.group, task.state) == (group, "queued")
        assert spread.benches[spread.place_of(group)].lane(group) == [id_]
        assert not await Redriver(settings, spread.namespace).redrive(dead), "it is gone"
        await spread.put(refused)  # its ack was lost, and it is refused again
        assert await letters.find(id_) is None
    assert [audit(bench.raw, bench.keys) for bench in spread.benches] == [[], [], [], []]


async def test_everything_is_paused_everywhere(spread: Spread) -> None:
    """Where not all could be reached, the rest is done all the same."""
    await spread.fill()
    with pytest.raises(StoreUnavailable, match=AWAY.format(3)):
        await Groups(spread.without(3)).pause(ALL, "me")
    held = [bool((await bench.status()).everything_paused) for bench in spread.benches]
    assert held == [True, True, True, False]
    groups = Groups(spread.namespace)
    assert await groups.pause(ALL, "you"), "the last one"
    assert not await groups.pause(ALL, "you")
    for daemon in await spread.daemons():
        assert await daemon.claim("grouped", "w1") == []
    hold = (await read_totals(spread.namespace)).everything_paused
    assert (hold and hold.by) == "me"
    assert await groups.resume(ALL)
    assert (await read_totals(spread.namespace)).everything_paused is None


def row(at: int, taken: int, *latencies: int) -> SampleRow:
    return (at, taken, *(0 for _ in range(10)), [*latencies])


def test_where_a_sample_is_missing_totals_stay() -> None:
    """A partition that took no sample has no gap in its sums, and no jump behind it."""
    first = [row(n * 10_000_000, n * 100, 1, 2) for n in (1, 2, 3)]
    second = [row(n * 10_000_000 + 5, 1000 + n, 1) for n in (2, 4)]
    rows = together([first, second, []])
    assert [each[1] for each in rows] == [1102, 1202, 1302, 1304]
    assert [each[12] for each in rows] == [[1, 2], [2, 2], [1, 2], [1]]
    of_day = [[row(n * 240_000_000 + late, 1, 1) for n in (1, 2)] for late in (5, 99_000_000)]
    assert [each[12] for each in together(of_day, 240.0)] == [[2], [2]]


async def test_a_task_that_is_chosen_may_lie_where_nobody_answers(spread: Spread) -> None:
    """Then it isn't unknown; the other one is found all the same."""
    await wait(spread)
    without = spread.without(1)
    tasks, letters = Tasks(without), DeadLetters(without)
    found = await tasks.find(ID, Choice(tenant="1"))
    assert found is not None
    assert found.group == spread.group_in(0)
    with pytest.raises(StoreUnavailable, match=AWAY.format(1)):
        await tasks.drop("unknown")
    for choice in (Choice(tenant="666"), Choice(partition=1)):
        with pytest.raises(StoreUnavailable, match=AWAY.format(1)):
            await tasks.drop(ID, choice)
        with pytest.raises(StoreUnavailable, match=AWAY.format(1)):
            await letters.find(ID, choice)
    assert await tasks.drop(ID, Choice(partition=4)) == "unknown"
    with pytest.raises(AmbiguousId, match=f"2 tasks have the id {ID}: partition 0: queued"):
        await Tasks(spread.namespace).drop(ID)
