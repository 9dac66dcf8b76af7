"""Dead letters by the API: which go first."""

from __future__ import annotations

from dataclasses import replace

from tests.page.context import client_of, configured
from tests.store.bench import Bench, arrival

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
