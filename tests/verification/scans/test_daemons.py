"""Scans in a real daemon on a real PostgreSQL, as operators see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests.databases import Postgres
from tests.endtoend.conftest import MakeRig, make_rig
from tests.scans.test_sql import _orders

__all__ = ["make_rig"]


async def test_the_verbs(
    make_rig: MakeRig, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a message, which ends the sleep too."""
    rig = make_rig()
    config = ("--config", str(rig.config))

    def say(*words: str) -> str:
        done = rig.call("scans", *words, *config)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def ask(*words: str) -> Any:
        return orjson.loads(rig.call(*words, *config, "--json").stdout)

    def until_it(is_so: Callable[[dict[str, Any]], bool]) -> None:
        rig.until(lambda: any(map(is_so, ask("scans"))), "the scan's story")

    async for orders in _orders(postgres.url, "postgres"):
        monkeypatch.setenv("SCAN_URL", orders.url)
        monkeypatch.setenv("SCAN_TABLE", orders.name)
        assert "no daemon has had a scan" in say()
        assert rig.call("scans", "wake", "orders", *config).returncode == 1
        daemon = rig.spawn("d1", app="tests.scans.application:app")
        until_it(lambda story: bool(story["idle"] == 4))
        await orders.fill(21, 22)
        assert ask("why", "scan:orders:1")["state"] == "delayed"
        status = ask("status")["grouped"]
        assert (status["queued"], status["asleep"]) == (4, 4)
        say("wake", "orders")
        until_it(lambda story: (story["rows_done"], story["idle"]) == (2, 4))
        await orders.fill(23)
        publish = ("publish", *config, "--type", "scan:orders")
        assert rig.call(*publish, stdin=b"{}").returncode == 0
        until_it(lambda story: bool(story["rows_done"] == 3))
        shown = say("show", "orders")
        assert (shown.count("scan:orders:"), "asleep for another" in shown) == (4, True)
        assert "orders" in say()
        assert sorted(await orders.shipped()) == [21, 22, 23]
        assert daemon.stop() == 0
        say("drop", "orders")
        assert ask("scans") == []
