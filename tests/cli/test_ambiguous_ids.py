"""An id that two tenants' tasks have, each in its partition: no verb takes one for the other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from groupflow.cli.exits import Exit
from groupflow.core.scope import scope_of
from groupflow.servers import RedisServer
from tests.cli.verbs import Verbs, agreed
from tests.operate.namesakes import ID, OWNERS, die, of, states, wait
from tests.operate.spread import Spread

BOTH, FIRST, SECOND = [True, True], [True, False], [False, True]


@pytest.fixture
def groupflow(spread: Spread, redis_server: RedisServer, tmp_path: Path) -> Verbs:
    return Verbs(tmp_path, redis_server.url, spread.name, 4)


def named(spread: Spread, state: str) -> list[str]:
    """What a refusal says of both."""
    return [
        f"partition {n}: {state}, type t, group {spread.group_in(n)}, application {app}, tenant {t}"
        for n, (app, t) in enumerate(OWNERS)
    ]


async def refused(groupflow: Verbs, told: list[str], *verbs: str) -> None:
    """Each fails, and names all that could be meant; there is one JSON value all the same."""
    words = [verb.split() for verb in verbs]
    for said in await asyncio.gather(*(groupflow(*each, ID, "--json") for each in words)):
        assert said.exit == Exit.FAILED
        assert f"2 tasks have the id {ID}" in said.err
        assert [each for each in told if each not in said.err] == []
        assert "by its tenant" in said.err
        acted = said.json or {}
        assert not any(acted.get(past) for past in ("dropped", "redriven", "due"))


async def test_tasks_that_wait(spread: Spread, groupflow: Verbs) -> None:
    await wait(spread, delay=600.0)
    told = named(spread, "delayed")
    async with agreed(spread):
        await refused(groupflow, told, "task", "task drop", "task run-now", "dead drop")
        assert states(spread, "tasks") == BOTH
        shown = await groupflow("task", ID, "--tenant", "666", "--json")
        assert (shown.json["group"], shown.json["tenant"]) == (spread.group_in(1), "666")
        assert shown.json["scope"] == scope_of("crm", "666")
        there = await groupflow("task", ID, "--partition", "0", "--json")
        assert there.json["tenant"] == "1"
        assert (await groupflow("task", ID, "--tenant", "3")).exit == Exit.FAILED
        assert (await groupflow("task", ID, "--partition", "9")).exit == Exit.FAILED
        ran = await groupflow("task", "run-now", ID, "--tenant", "666")
        assert (ran.exit, ran.out) == (Exit.FINE, "due 1\n")
        dropped = await groupflow("task", "drop", ID, "--tenant", "1", "--json")
        assert (dropped.exit, dropped.json) == (Exit.FINE, {"dropped": [ID], "stayed": []})
        assert states(spread, "tasks") == SECOND
        again = await groupflow("task", "drop", ID)
        assert again.exit == Exit.FAILED, "who means the first one must not drop the other"
        assert f"partition 0: dropped, type t, group {spread.group_in(0)}, of app" in again.err
        assert states(spread, "tasks") == SECOND


async def test_dead_letters(spread: Spread, groupflow: Verbs) -> None:
    await die(spread)
    async with agreed(spread):
        told = named(spread, "dead")
        await refused(groupflow, told, "task show", "dead show", "dead redrive", "dead drop")
        assert states(spread, "dead") == BOTH
        shown = await groupflow("dead", "show", ID, "--tenant", "666", "--json")
        assert (shown.exit, shown.json["tenant"]) == (Exit.FINE, "666")
        redriven = await groupflow("dead", "redrive", ID, "--tenant", "1", "--json")
        assert redriven.json == {"redriven": [ID], "unknown": []}
        assert states(spread, "dead") == SECOND
        wrong = await groupflow("dead", "drop", ID, "--tenant", "1", "--json")
        assert (wrong.exit, wrong.json) == (Exit.FAILED, {"dropped": [], "unknown": [ID]})
        assert states(spread, "dead") == SECOND, "the one that was meant is a task again"
        dropped = await groupflow("dead", "drop", ID, "--partition", "1")
        assert (dropped.exit, dropped.out) == (Exit.FINE, "dropped 1\n")
        assert states(spread, "tasks") == FIRST


async def test_others_are_acted_on_beside_it(spread: Spread, groupflow: Verbs) -> None:
    await die(spread)
    async with agreed(spread):
        said = await groupflow("dead", "drop", ID, "nobody", "--json")
        assert (said.exit, said.json) == (Exit.FAILED, {"dropped": [], "unknown": ["nobody"]})
        assert f"{ID} stays: 2 tasks have the id" in said.err
        every = await groupflow("dead", "redrive", "--all", "--json")
        assert every.json["redriven"] == [ID, ID], "a filter names each by where it lies"


async def test_a_group_s_delayed_tasks_are_of_that_group(spread: Spread, groupflow: Verbs) -> None:
    await wait(spread, delay=600.0)
    async with agreed(spread):
        due = await groupflow("task", "run-now", "--delayed", spread.group_in(1))
        assert (due.exit, due.out) == (Exit.FINE, "due 1\n")
        assert (await groupflow("task", ID, "--tenant", "666", "--json")).json["state"] == "queued"
        assert (await groupflow("task", ID, "--tenant", "1", "--json")).json["state"] == "delayed"


async def test_one_tenant_s_own_two(spread: Spread, groupflow: Verbs) -> None:
    """What is over makes way for what waits; of two that wait, the partition tells."""
    owner = ("crm", "1")
    await spread.enqueue(of(spread, 0, *owner))
    for daemon in await spread.daemons():
        await daemon.work_off()
    await spread.enqueue(of(spread, 1, *owner))
    async with agreed(spread):
        assert (await groupflow("task", ID, "--json")).json["group"] == spread.group_in(1)
        await spread.enqueue(of(spread, 2, *owner))
        both = await groupflow("task", "drop", ID, "--tenant", "1")
        assert both.exit == Exit.FAILED
        assert "2 tasks have" in both.err
        assert (await groupflow("task", "drop", ID, "--partition", "2")).out == "dropped 1\n"
        assert (await groupflow("task", ID, "--json")).json["state"] == "queued"
