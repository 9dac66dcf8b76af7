"""All tasks of a group, or of a type, are cancelled by bounded steps.

What becomes of each of them, wherever it waits: `tests/store/test_cancel.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from groupflow.operate import cancelling as module
from groupflow.operate.cancelling import Several, cancel_step, count_step
from groupflow.operate.pages import UnknownCursor
from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.tasks import Tasks
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.settlements import Release
from tests.deadlines import deadline
from tests.operate.spread import Spread, all_pages
from tests.store.bench import Bench

MEANT = Several(type="import.*")


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: Any) -> None:
    """Each script, page and step is as small as can be."""
    for name, number in {"LOOKED_AT": 12, "AT_ONCE": 2, "CHUNK": 3, "STEP": 0.0}.items():
        monkeypatch.setattr(module, name, number)


def of(id_: str, group: str | None, type_: str) -> Arrival:
    return Arrival(id_, Envelope(type_, group, "42", "rule", {}, b"{}"))


def mixed(number: int, group: str | None, front: str) -> list[Arrival]:
    """Tasks of which every third is of another type."""
    return [of(f"{front}{n}", group, "other" if n % 3 else "import.rows") for n in range(number)]


async def cancel_all(spread: Spread | Bench, meant: Several) -> tuple[int, list[str]]:
    steps = await all_pages(lambda at: cancel_step(spread.namespace, meant, "ops", "", at))
    return sum(each.waiting for each in steps), [id_ for each in steps for id_ in each.running]


async def test_a_type_is_cancelled_in_all_partitions_and_nothing_else_is(spread: Spread) -> None:
    tasks = [*mixed(30, None, "p"), *(t for n in range(8) for t in mixed(9, f"g{n}", f"g{n}-"))]
    await spread.enqueue(*tasks)
    ids = {each.id for each in tasks if each.envelope.type == "import.rows"}
    pages = await all_pages(lambda at: count_step(spread.namespace, MEANT, at))
    assert sum(each.waiting for each in pages) == len(ids)
    assert await cancel_all(spread, MEANT) == (len(ids), [])
    found = {each.id: await Tasks(spread.namespace).find(each.id) for each in tasks}
    assert {id_ for id_, task in found.items() if task and task.state == "cancelled"} == ids
    assert {id_ for id_, task in found.items() if task and task.state == "queued"} == (
        {each.id for each in tasks} - ids
    )


@pytest.mark.parametrize("group", ["g", None])
async def test_what_comes_and_is_claimed_meanwhile_hides_none(
    bench: Bench, group: str | None
) -> None:
    await bench.enqueue(*mixed(30, group, "t"))
    daemon, come, claimed = await bench.daemon(), iter(mixed(9000, group, "new")), list[Any]()

    async def more() -> None:
        await bench.enqueue(next(come))
        if len(claimed) < 3:
            claimed.extend(await daemon.claim("grouped" if group else "plain", f"w{len(claimed)}"))

    with between_scripts(bench, more):
        ended, running = await cancel_all(bench, MEANT)
    assert ended + len(running) >= 10
    states = [await Tasks(bench.namespace).find(f"t{n}") for n in range(0, 30, 3)]
    assert {task.state for task in states if task} <= {"cancelled", "running"}


async def test_a_walk_ends_over_what_two_daemons_handed_back(bench: Bench) -> None:
    """In whichever order: the plain tasks stay in order of arrival, and are claimed so."""
    await bench.enqueue(*mixed(17, None, "p"))
    held = [
        (daemon, await daemon.claim("plain", *(f"w{n}" for n in range(most))))
        for daemon, most in ((await bench.daemon("d1"), 8), (await bench.daemon("d2"), 9))
    ]
    for daemon, claims in held:
        await daemon.settle(*map(Release, claims))
    async with asyncio.timeout(deadline()):
        assert await cancel_all(bench, Several(type="none")) == (0, [])
    assert await Tasks(bench.namespace).drop("p4") is None
    assert await daemon.work_off(["w1"]) == [f"p{n}" for n in range(17) if n != 4]


@contextmanager
def between_scripts(bench: Bench, work: Callable[[], Awaitable[None]]) -> Iterator[None]:
    """Do something behind each script that cancels."""
    run = bench.client.run

    async def run_and_work(verb: Any, *arguments: Any) -> Any:
        reply = await run(verb, *arguments)
        if verb in {OperatorVerb.CANCEL_LINES, OperatorVerb.CANCEL_EACH}:
            with patch.object(bench.client, "run", run):
                await work()
        return reply

    with patch.object(bench.client, "run", run_and_work):
        yield


@pytest.mark.parametrize("cursor", ["7", "0.9.1.0.0", "0.0.0.1.0", "x"])
async def test_a_cursor_that_no_step_gave(bench: Bench, cursor: str) -> None:
    with pytest.raises(UnknownCursor):
        await cancel_step(bench.namespace, MEANT, "ops", cursor=cursor)


async def test_a_group_is_cancelled_in_steps(bench: Bench) -> None:
    await bench.enqueue(*mixed(40, "g", "t"), *mixed(3, "h", "h"))
    assert await cancel_all(bench, Several(group="g")) == (40, [])
    assert bench.lane("h") == ["h0", "h1", "h2"]
