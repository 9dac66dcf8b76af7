"""An id that two tenants' tasks have, each in its partition: no verb takes one for the other."""

from __future__ import annotations

from typing import Any

from groupflow.cli.exits import Exit
from groupflow.core.routing import scope_of
from tests.cli.verbs import Verbs
from tests.operate.namesakes import ID, OWNERS, die, of, states, wait
from tests.operate.spread import Spread

BOTH, FIRST, SECOND = [True, True], [True, False], [False, True]


async def refused(spread: Spread, groupflow: Verbs, state: str, *verbs: str) -> None:
    """Each fails, and names all that could be meant; there is one JSON value all the same."""
    for verb in verbs:
        said = await groupflow(*verb.split(), ID, "--json")
        assert said.exit == Exit.FAILED
        assert f"2 tasks have the id {ID}" in said.err
        for n, (app, tenant) in enumerate(OWNERS):
            told = f"type t, group {spread.group_in(n)}, application {app}, tenant {tenant}"
            assert f"partition {n}: {state}, {told}" in said.err
        assert "by its tenant" in said.err
        acted: Any = said.json or {}
        assert not any(acted.get(past) for past in ("id", "dropped", "redriven", "due"))


async def test_tasks_that_wait(spread: Spread, groupflow: Verbs) -> None:
    await wait(spread, delay=600.0)
    verbs = ("task", "task cancel", "task drop", "task run-now", "dead drop")
    await refused(spread, groupflow, "delayed", *verbs)
    assert states(spread, "tasks") == BOTH
    shown = (await groupflow("task", ID, "--tenant", "666", "--json")).json
    assert (shown["group"], shown["scope"]) == (spread.group_in(1), scope_of("crm", "666"))
    assert (await groupflow("task", ID, "--partition", "0", "--json")).json["tenant"] == "1"
    for wrong in (("--tenant", "3"), ("--partition", "9")):
        assert (await groupflow("task", ID, *wrong)).exit == Exit.FAILED
    due = await groupflow("task", "run-now", "--delayed", spread.group_in(1))
    assert (due.exit, due.out) == (Exit.FINE, "due 1\n")
    for tenant, state in (("666", "queued"), ("1", "delayed")):
        told = await groupflow("task", ID, "--tenant", tenant, "--json")
        assert told.json["state"] == state
    dropped = await groupflow("task", "drop", ID, "--tenant", "1", "--json")
    assert (dropped.exit, dropped.json) == (Exit.FINE, {"dropped": [ID], "stayed": []})
    again = await groupflow("task", "drop", ID)
    assert again.exit == Exit.FAILED, "who means the first one must not drop the other"
    assert f"partition 0: dropped, type t, group {spread.group_in(0)}, of app" in again.err
    assert states(spread, "tasks") == SECOND


async def test_dead_letters(spread: Spread, groupflow: Verbs) -> None:
    """What is named beside such an id is acted on; a filter names each by where it lies."""
    await die(spread)
    verbs = ("task show", "dead show", "dead redrive", "dead drop")
    await refused(spread, groupflow, "dead", *verbs)
    assert states(spread, "dead") == BOTH
    beside = await groupflow("dead", "drop", ID, "nobody", "--json")
    assert (beside.exit, beside.json) == (Exit.FAILED, {"dropped": [], "unknown": ["nobody"]})
    assert f"{ID} stays: 2 tasks have the id" in beside.err
    shown = await groupflow("dead", "show", ID, "--tenant", "666", "--json")
    assert (shown.exit, shown.json["tenant"]) == (Exit.FINE, "666")
    redriven = await groupflow("dead", "redrive", ID, "--tenant", "1", "--json")
    assert redriven.json == {"redriven": [ID], "unknown": []}
    wrong = await groupflow("dead", "drop", ID, "--tenant", "1", "--json")
    assert (wrong.exit, wrong.json) == (Exit.FAILED, {"dropped": [], "unknown": [ID]})
    assert states(spread, "dead") == SECOND, "the one that was meant is a task again"
    every = await groupflow("dead", "redrive", "--all", "--json")
    assert every.json["redriven"] == [ID]
    assert states(spread, "tasks") == BOTH


async def test_one_tenant_s_own_two(spread: Spread, groupflow: Verbs) -> None:
    """What is over makes way for what waits; of two that wait, the partition tells."""
    owner = ("crm", "1")
    await spread.enqueue(of(spread, 0, *owner))
    for daemon in await spread.daemons():
        await daemon.work_off()
    await spread.enqueue(of(spread, 1, *owner))
    assert (await groupflow("task", ID, "--json")).json["group"] == spread.group_in(1)
    await spread.enqueue(of(spread, 2, *owner))
    both = await groupflow("task", "drop", ID, "--tenant", "1")
    assert (both.exit, "2 tasks have" in both.err) == (Exit.FAILED, True)
    assert (await groupflow("task", "drop", ID, "--partition", "2")).out == "dropped 1\n"
    assert (await groupflow("task", ID, "--json")).json["state"] == "queued"
