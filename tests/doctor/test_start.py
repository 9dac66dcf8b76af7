"""What a daemon that begins looks at, on real servers."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis
from structlog.testing import capture_logs

from groupflow.core.app import App
from groupflow.core.errors import ConfigError
from groupflow.daemon import Daemon
from groupflow.servers import RedisServer
from groupflow.settings.model import Settings
from groupflow.store.keys import Keys
from tests.ops.daemons import serving
from tests.turns import turns_until


def settings(url: str, namespace: str) -> Settings:
    return Settings(redis={"url": url, "namespace": namespace})


async def findings(url: str, namespace: str) -> list[tuple[str, str]]:
    """What a daemon says while it starts."""
    with capture_logs() as logs:
        async with serving(settings(url, namespace), App(), only="workers"):
            await turns_until(lambda: "daemon.started" in [each["event"] for each in logs])
    told = [entry for entry in logs if entry["event"].startswith("doctor.")]
    return [(entry["event"], entry.get("check", "")) for entry in told]


async def test_a_redis_that_evicts_is_refused(redis_server: RedisServer) -> None:
    redis: Any = Redis.from_url(redis_server.url)
    redis.config_set("maxmemory-policy", "volatile-ttl")
    try:
        with pytest.raises(ConfigError, match="maxmemory-policy noeviction"):
            await Daemon(settings(redis_server.url, "evicted"), App(), "d").run()
    finally:
        redis.config_set("maxmemory-policy", "noeviction")
    assert redis.zcard(Keys("evicted")("daemons")) == 0


async def test_a_redis_that_does_not_tell_is_taken(redis_server: RedisServer) -> None:
    told = await findings(redis_server.url, "told")
    assert told == [("doctor.finding", "redis.memory")]
    admin: Any = Redis.from_url(redis_server.url)
    rights = ("on", ">pw", "~*", "&*", "+@all", "-info", "-config")
    admin.execute_command("ACL", "SETUSER", "silent", *rights)
    url = redis_server.url.replace("//", "//silent:pw@")
    try:
        told = await findings(url, "silent")
    finally:
        admin.execute_command("ACL", "DELUSER", "silent")
    assert "doctor.not_checked" in dict(told)
