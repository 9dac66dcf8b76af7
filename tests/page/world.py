"""A daemon with something of everything in it: what the page's tests look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from groupflow.operate.groups import Groups
from groupflow.operate.namespace import Namespace
from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.store.client import StoreClient
from tests.endtoend.rig import Job
from tests.page.served import TOKEN, Served, Tables, as_
from tests.running import run

LOOKER, PUBLISHER = "a-token-that-only-looks", "a-token-that-only-publishes"
SECRET = "T0KEN-of-a-handler"
TABLES: Tables = [
    (
        '[handlers."hook"]',
        {"http": f"https://{SECRET}@hooks.example.com/{SECRET}?access_token={SECRET}"},
    ),
    ('[handlers."command"]', {"exec": ["/bin/true", f"--password={SECRET}"]}),
    ("[http.tokens.looker]", {"token": LOOKER, "rights": ["look"]}),
    ("[http.tokens.publisher]", {"token": PUBLISHER, "rights": ["publish"]}),
    (
        "[[schedules]]",
        {"name": "yearly", "cron": "0 0 1 1 *", "type": "work", "overlap": "skip"},
    ),
]
HOSTILE = '<script>document.title="owned"</script>/../"\'&?#%2F \N{SNOWMAN}'
NO_TYPE = "<b>no type</b>"
HOSTILE_ID = "<img src=x onerror=alert(1)>/\"'&?#%2F"


class World(Served):
    """One daemon with its page, and what waits, runs, is held and is dead in its store."""

    tables = TABLES
    group, id, note = HOSTILE, HOSTILE_ID, HOSTILE  # of strangers

    def __init__(self, folder: Path, rabbitmq: RabbitmqServer, redis: RedisServer) -> None:
        super().__init__(
            folder,
            rabbitmq,
            redis,
            self.tables,
            rabbitmq={"max_body": 100_000},
            workers={"plain": 2, "grouped": 2},
            fields={"delay": "delay_s"},
        )
        self._fill()

    def _fill(self) -> None:
        """Two groups run, one has a long line; some are ready, delayed, paused; some tasks died."""
        rig = self.rig
        held, gives = {"gate": str(rig.gate())}, {"do": {"": [f"gives {self.note}"]}}
        rig.publish([Job("gave-0", "report", type="scripted", facts=gives)])
        self.wait(lambda: rig.count("done") >= 1)
        rig.publish(Job(f"run-{n}", "contact/1", n=n, facts=held) for n in range(70))
        facts = {**held, "note": self.note, "progress": [29, 100, "<i>rows"]}
        rig.publish([Job(self.id, self.group, facts=facts)])
        rig.wait_for_start("run-0")
        rig.wait_for_start(self.id)
        rig.publish(Job(f"ready-{n}", f"ready-{n:03}", tenant=7 + n % 2) for n in range(120))
        facts = {"note": self.note}
        rig.publish(Job(f"dead-{n}", None, type="fail", facts=facts) for n in range(8))
        rig.publish(Job(f"plain-{n}", None) for n in range(5))
        rig.publish([Job(NO_TYPE, None, type="", facts={"tenant_id": 1})])
        self.wait(lambda: rig.count("done") >= 6 and len(rig.dead()) == 9)
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
        answer = self.http.get(f"/api/{path}", params=query, headers=as_(token) if token else {})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def act(self, path: str, body: Any, **headers: str) -> httpx.Response:
        """An action, with the token."""
        return self.http.post(f"/api/{path}", json=body, headers={**as_(TOKEN), **headers})

    def close(self) -> None:
        """Let everything run to its end, and stop."""
        self.rig.gate().touch()
        super().close()


__all__ = ["HOSTILE", "HOSTILE_ID", "NO_TYPE", "SECRET", "TOKEN", "World"]
