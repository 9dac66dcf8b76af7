"""`groupflow limit`: set, listed, ended, over several partitions; and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import orjson
import pytest
from typer.testing import CliRunner, Result

from groupflow.cli import app
from groupflow.core.errors import StoreUnavailable
from groupflow.core.limits import HandLimit
from groupflow.operate.limits import LimitsByHand
from groupflow.servers import RedisServer
from tests.cli.verbs import agreed
from tests.operate.spread import Spread
from tests.store.bench import arrival

Say: TypeAlias = Callable[..., Any]


@pytest.fixture
def say(spread: Spread, redis_server: RedisServer, tmp_path: Path) -> Say:
    """The verb, in this process, with a configuration of its own."""
    file = tmp_path / "groupflow.toml"
    file.write_text(
        f'[redis]\nurl = "{redis_server.url}"\nnamespace = "{spread.name}"\n'
        f"partitions = {len(spread.benches)}\n"
    )

    async def said(*words: str) -> Result:
        given = [*words, "--config", str(file)]
        return await asyncio.to_thread(lambda: CliRunner().invoke(app, given))

    return said


async def test_it_holds_is_listed_and_ends(spread: Spread, say: Say) -> None:
    await spread.enqueue(*(arrival(f"a{n}", "a") for n in range(2)))
    async with agreed(spread):
        told = await say("limit", "tenant", "42", "--rate", "5/s", "--for", "10m", "--json")
        facts = {"kind": "tenant", "name": "42", "limited": True, "changed": True}
        assert orjson.loads(told.stdout) == facts
        told = await say("limit", "group", "a", "--concurrency", "2")
        assert (told.exit_code, "2 at once, for 1h" in told.stdout) == (0, True)
        listed = orjson.loads((await say("limit", "list", "--json")).stdout)
        rows = [(e["kind"], e["name"], e["concurrency"], e["rate"]) for e in listed]
        assert rows == [("tenant", "42", None, "5/s"), ("group", "a", 2, None)]
        assert [round(each["until"] - each["since"]) for each in listed] == [600, 3600]
        assert "limits are by hand until" in (await say("why", "a")).stdout
        told = await say("limit", "tenant", "42", "--off", "--json")
        assert orjson.loads(told.stdout)["changed"] is True
        told = await say("limit", "tenant", "42", "--off")
        assert (told.exit_code, told.stdout) == (0, "tenant 42 was not limited by hand\n")
        assert (await say("limit")).stdout.startswith("group a: 2 at once, until 2")


async def test_without_a_partition(spread: Spread) -> None:
    """Nobody may believe that a tenant is limited everywhere; a group lies in one."""
    lost = LimitsByHand(spread.without(1))
    with pytest.raises(StoreUnavailable):
        await lost.begin(HandLimit("tenant", "42", rate="5/s"), "ada", 60.0)
    here = next(name for name in "abcdefgh" if spread.namespace.place_of(name) != 1)
    await lost.begin(HandLimit("group", here, 2), "ada", 60.0)
    assert {each.name for each in (await lost.every()).limits} == {"42", here}
