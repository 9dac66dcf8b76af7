"""What a namespace without limits, tenants and runs has Redis do: so many commands, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from groupflow.store.settlements import Complete
from tests.store.bench import Bench, arrival

_OURS = {"evalsha", "info", "config|resetstat", "config", "client|setinfo"}  # not by a script


async def _commands(bench: Bench, slots: int) -> int:
    """Commands by scripts for one exchange that settles and claims so many, of as many groups."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n:02d}") for n in range(2 * slots)))
    daemon = await bench.daemon()
    workers = [f"w{n}" for n in range(slots)]
    claims = await daemon.claim("grouped", *workers)
    assert len(claims) == slots
    bench.raw.config_resetstat()
    _, following = await daemon.exchange("grouped", [Complete(each) for each in claims], workers)
    stats: Any = bench.raw.info("commandstats")
    assert len(following) == slots
    daemon.drop(*claims)
    return sum(
        each["calls"] for name, each in stats.items() if name.removeprefix("cmdstat_") not in _OURS
    )


@pytest.mark.parametrize(("slots", "most"), [(1, 27), (16, 57)])
async def test_who_has_no_limits_pays_for_none(shop: Bench, slots: int, most: int) -> None:
    """A command more in a claim or a settle is a decision, to be made here."""
    assert await _commands(shop, slots) <= most
