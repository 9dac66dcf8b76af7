"""What the log is told of Redis by all clients and threads of a daemon."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Thread

import pytest
from structlog.testing import capture_logs

from groupflow.core.errors import StoreUnavailable
from groupflow.flow import hearing as module
from groupflow.flow.hearing import StoreHearing
from groupflow.operate.scripts import OperatorVerb
from groupflow.servers import RedisServer
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys


def test_many_threads_tell_of_it_once() -> None:
    hearing = StoreHearing()
    with capture_logs() as logs:
        threads = [Thread(target=hearing.failed, args=("a", "no answer")) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [log["event"] for log in logs] == ["store.unavailable"]
    assert hearing.is_away


async def test_clients_tell_of_a_server_that_goes_and_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SETTLES", 0.0)
    hearing = StoreHearing()
    async with RedisServer(tmp_path / "redis") as server:
        clients = [StoreClient(server.url, Keys(f"n{n}"), hearing=hearing) for n in range(3)]

        async def ask(client: StoreClient) -> bool:
            try:
                await client.run(OperatorVerb.NUMBER)
            except StoreUnavailable:
                return False
            return True

        with capture_logs() as logs:
            assert all([await ask(client) for client in clients])
            await server.kill()
            for _ in range(5):
                assert not any(await asyncio.gather(*map(ask, clients)))
            await server.start()
            for client in clients:
                while not await ask(client):  # the first call after it may meet an old connection
                    pass
        for client in clients:
            await client.close()
    assert [log["event"] for log in logs] == ["store.unavailable", "store.back"]
    assert str(server.port) in logs[0]["error"]
    assert logs[1]["away_for"] >= 0
    assert not hearing.is_away
