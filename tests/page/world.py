"""A daemon with something of everything in it: what the page's tests look at."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
from redis import Redis

from groupflow.operate.groups import Groups
from groupflow.operate.namespace import Namespace
from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.settings.model import Settings
from groupflow.store.client import StoreClient
from tests.deadlines import deadline
from tests.endtoend.process import Process
from tests.endtoend.rig import APP, Job, Rig, run

TOKEN = "a-token-of-the-tests-0123456789"
LOOKER, PUBLISHER = "a-token-that-only-looks", "a-token-that-only-publishes"
SECRET = "T0KEN-of-a-handler"
HANDLERS = f"""
[handlers."hook"]
http = "https://{SECRET}@hooks.example.com/{SECRET}?access_token={SECRET}"
[handlers."command"]
exec = ["/bin/true", "--password={SECRET}"]
[[schedules]]
name = "yearly"
cron = "0 0 1 1 *"
type = "work"
"""
TOKENS = f"""
[http.tokens.looker]
token = "{LOOKER}"
rights = ["look"]
[http.tokens.publisher]
token = "{PUBLISHER}"
rights = ["publish"]
"""
HOSTILE = '<script>document.title="owned"</script>/../"\'&?#%2F \N{SNOWMAN}'
HOSTILE_ID = "<img src=x onerror=alert(1)>/\"'&?#%2F"


class World:
    """One daemon with its page, and what waits, runs, is held and is dead in its store."""

    APP, SECTIONS = APP, HANDLERS + TOKENS

    def __init__(self, folder: Path, rabbitmq: RabbitmqServer, redis: RedisServer) -> None:
        self.rig = Rig(
            folder,
            rabbitmq,
            redis,
            http={"listen": "127.0.0.1:0", "token": TOKEN},
            rabbitmq={"max_body": 100_000},
            workers={"plain": 2, "grouped": 2},
            fields={"delay": "delay_s"},
        )
        with self.rig.config.open("a") as file:
            file.write(self.SECTIONS)
        self.daemon: Process = self.rig.start("d1", app=self.APP)
        self.url: str = self.daemon.wait_for("http.listening")["url"].rstrip("/")
        self.http = httpx.Client(base_url=self.url, timeout=deadline(), trust_env=False)
        self.raw: Redis = self.rig.raw
        self._fill()

    def _fill(self) -> None:
        """Two groups run, one has a long line; some are ready, delayed, paused; some tasks died."""
        rig = self.rig
        held = {"gate": str(rig.gate())}
        rig.publish(Job(f"run-{n}", "contact/1", n=n, facts=held) for n in range(70))
        rig.publish([Job(HOSTILE_ID, HOSTILE, facts={**held, "note": HOSTILE})])
        rig.wait_for_start("run-0")
        rig.wait_for_start(HOSTILE_ID)
        rig.publish(Job(f"ready-{n}", f"ready-{n:03}", tenant=7 + n % 2) for n in range(120))
        rig.publish(Job(f"dead-{n}", None, type="fail", facts={"note": HOSTILE}) for n in range(8))
        rig.publish(Job(f"plain-{n}", None) for n in range(5))
        rig.publish([Job("<b>no type</b>", None, type="", facts={"tenant_id": 1})])
        self.wait(lambda: rig.count("done") == 5 and len(rig.dead()) == 9)
        self.store(lambda groups: groups.pause("ready-001:8", "the tests"))

    def wait(self, condition: Any) -> None:
        self.rig.until(condition, "the world")

    def store(self, work: Any) -> Any:
        """Do something to the store as the verbs would."""

        async def do() -> Any:
            keys = self.rig.keys
            client = StoreClient(self.rig.store.url, keys)
            try:
                return await work(Groups(Namespace([client])))
            finally:
                await client.close()

        return run(do())

    def get(self, path: str, token: str = "", /, **query: Any) -> Any:
        """A GET's answer, with a token or without."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = self.http.get(f"/api/{path}", params=query, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def act(self, path: str, body: Any, **headers: str) -> httpx.Response:
        """An action, with the token."""
        return self.http.post(
            f"/api/{path}", json=body, headers={"Authorization": f"Bearer {TOKEN}", **headers}
        )

    def close(self) -> None:
        """Let everything run to its end, and stop."""
        self.rig.gate().touch()
        self.http.close()
        self.rig.close()


def without_times(text: str) -> str:
    """A text in which no figure changes by itself."""
    return re.sub(r"[0-9.]+ (ms|s|min|h)\b", "T", text)


__all__ = ["HOSTILE", "HOSTILE_ID", "SECRET", "TOKEN", "Settings", "World", "without_times"]
