"""Who may look and who may act, and what a browser can be talked into: nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import httpx
import pytest
from structlog.testing import capture_logs

from groupflow.core.errors import ConfigError
from groupflow.ops.page import throttle
from groupflow.ops.page.throttle import DELAY, DELAYED, LINES, REMEMBERED, WrongTokens
from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.settings.model import Http
from groupflow.settings.transport import is_loopback
from tests.deadlines import deadline
from tests.endtoend.rig import Job, Rig
from tests.page.world import TOKEN, World

PAUSE = {"group": "ready-005:8"}


@pytest.fixture(scope="module")
def tokenless(
    tmp_path_factory: pytest.TempPathFactory,
    rabbitmq_server: RabbitmqServer,
    redis_server: RedisServer,
) -> Iterator[str]:
    """The page of a daemon that has no token; one message could not be routed there."""
    folder = tmp_path_factory.mktemp("tokenless")
    rig = Rig(folder, rabbitmq_server, redis_server, http={"listen": "127.0.0.1:0"})
    try:
        daemon = rig.start()
        rig.publish([Raw("gone")])
        rig.wait_for_all()
        yield daemon.wait_for("http.listening")["url"].rstrip("/")
    finally:
        rig.close()


class Raw(Job):
    """A message that is no JSON."""

    @property
    def body(self) -> bytes:
        return b"not routed"


def _post(world: World, **headers: str) -> httpx.Response:
    return world.http.post("/api/pause", json=PAUSE, headers=headers)


class TestActions:
    @pytest.mark.parametrize(
        "given", ["", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer \xe4"]
    )
    def test_without_the_token(self, world: World, given: str) -> None:
        answer = world.http.post(
            "/api/pause", json=PAUSE, headers=[(b"authorization", given.encode("latin-1"))]
        )
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert world.get("group", key=PAUSE["group"])["why"]["state"] == "ready"

    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://["},
            {"Origin": "http://[::1"},
            {"Origin": "\\"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ],
    )
    def test_from_another_site(self, world: World, headers: dict[str, str]) -> None:
        """Refused even with the token."""
        answer = _post(world, Authorization=f"Bearer {TOKEN}", **headers)
        assert answer.status_code == 403

    def test_where_nobody_read_the_body_the_answer_says_that_it_closes(self, world: World) -> None:
        """Else a client sends its next request on a connection that is going."""
        refused = world.http.post("/api/pause", json=PAUSE)
        assert (refused.status_code, refused.headers.get("connection")) == (401, "close")
        done = world.act("resume", PAUSE)
        assert (done.status_code, done.headers.get("connection")) == (200, None)

    def test_only_as_json(self, world: World) -> None:
        answer = world.http.post(
            "/api/pause",
            content=b'{"group": "ready-005:8"}',
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "text/plain"},
        )
        assert answer.status_code == 415

    def test_a_body_without_end(self, world: World) -> None:
        answer = world.act("route", {"body": "x" * 3_000_000})
        assert answer.status_code == 413

    def test_from_our_own_page(self, world: World) -> None:
        headers = {"Origin": world.url, "Sec-Fetch-Site": "same-origin"}
        assert world.act("resume", PAUSE, **headers).status_code == 200


class TestContents:
    """Where there is a token, what a tenant sent is for those who have it."""

    def test_a_letter_without_the_token(self, world: World) -> None:
        letter = world.get("letter", id="dead-2")
        assert letter["is_withheld"]
        assert (letter["body"], letter["body_base64"], letter["headers"]) == (None, None, {})
        assert letter["body_bytes"] > 0
        assert {error["message"] for error in letter["errors"]} == {"(shown with the token)"}

    def test_it_with_the_token(self, world: World) -> None:
        letter = world.get("letter", TOKEN, id="dead-2")
        assert not letter["is_withheld"]
        assert "on purpose" in letter["errors"][0]["message"]
        assert "note" in letter["body"]

    def test_a_failed_attempts_words_nowhere_else(self, world: World) -> None:
        open_, shown = world.get("task", id="dead-2"), world.get("task", TOKEN, id="dead-2")
        assert "(shown with the token)" in str(open_)
        assert "(shown with the token)" not in str(shown)
        for letter in world.get("dead", TOKEN, type="fail", limit=3)["letters"]:
            assert "errors" not in letter, "a list has none of them for anybody"

    def test_where_there_is_no_token(self, tokenless: str) -> None:
        """Whoever reaches a page without a token sees all that it can show."""
        letter = httpx.get(f"{tokenless}/api/letter?id=gone", trust_env=False, timeout=deadline())
        assert letter.json()["is_withheld"] is False
        assert letter.json()["body"] == "not routed"


class TestWrongTokens:
    def test_they_are_in_the_log(self, world: World) -> None:
        given = "a-guess-of-somebody-0123456789"
        assert _post(world, Authorization=f"Bearer {given}").status_code == 401
        said = world.daemon.wait_for("http.wrong_token")
        assert said["peer"] == "127.0.0.1"
        assert given not in world.daemon.log.read_text()

    async def test_each_waits(self) -> None:
        began = monotonic()
        assert await WrongTokens().wrong("192.0.2.1")
        assert monotonic() - began >= DELAY

    async def test_so_many_wait_and_no_more(self) -> None:
        """The rest is refused unread, for that address alone; one that is known is always read."""
        wrong = WrongTokens()
        wrong.right("192.0.2.9")
        peers = ("192.0.2.1", "192.0.2.9")
        waiting = [asyncio.create_task(wrong.wrong(p)) for p in peers for _ in range(DELAYED)]
        await asyncio.sleep(0)
        assert await wrong.wrong("192.0.2.1") is False
        assert not wrong.is_read("192.0.2.1")
        assert wrong.is_read("192.0.2.9")
        assert wrong.is_read("192.0.2.3")
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert wrong.is_read("192.0.2.1")

    async def test_log_and_memory_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many addresses somebody has, and however often each tries."""
        monkeypatch.setattr(throttle, "DELAYED_IN_ALL", 0)
        wrong = WrongTokens()
        with capture_logs() as said:
            for number in range(3 * REMEMBERED):
                for _ in range(2):
                    await wrong.wrong(str(number))
                    wrong.right(f"{number} too")
        assert len(said) == LINES
        assert {each["tries"] for each in said} == {1}
        assert len(wrong) == 2 * REMEMBERED


class TestBrowser:
    @pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil", ""])
    def test_names_that_are_not_ours(self, world: World, host: str) -> None:
        """A stranger's name that was pointed at this address is refused, on every path."""
        for path in ("/", "/api/overview", "/livez", "/static/main.js"):
            assert world.http.get(path, headers={"Host": host}).status_code == 421

    @pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:9464", "192.0.2.7"])
    def test_names_that_nobody_else_can_have(self, world: World, host: str) -> None:
        assert world.http.get("/livez", headers={"Host": host}).status_code == 200

    @pytest.mark.parametrize("path", ["/", "/api/overview", "/nothing", "/livez", "/static/no"])
    def test_headers(self, world: World, path: str) -> None:
        headers = world.http.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers
        assert headers["cache-control"] == ("no-cache" if path == "/" else "no-store")

    def test_files_are_kept_under_their_digest(self, world: World) -> None:
        """A browser asks for the page each time, and for what it is made of once a version."""
        start = world.http.get("/").text
        (script,) = re.findall(r'src="(/static/[0-9a-f]{16}/main.js)"', start)
        answer = world.http.get(script)
        assert answer.headers["content-type"].startswith("text/javascript")
        assert "immutable" in answer.headers["cache-control"]
        assert world.http.get("/static/main.js").status_code == 404

    def test_no_file_but_the_pages(self, world: World) -> None:
        for path in ("/static/../site.py", "/static/%2e%2e/site.py", "/static/..%2fsite.py"):
            assert world.http.get(path).status_code == 404


class TestSettings:
    @pytest.mark.parametrize(
        ("listen", "read", "is_open"),
        [
            ("127.0.0.1:1", "auto", True),
            ("[::1]:1", "auto", True),
            ("localhost:1", "auto", True),
            ("0.0.0.0:1", "auto", False),
            ("[::]:1", "auto", False),
            ("192.0.2.7:1", "auto", False),
            ("0.0.0.0:1", "open", True),
            ("127.0.0.1:1", "token", False),
        ],
    )
    def test_reading(self, listen: str, read: str, is_open: bool) -> None:
        http = Http(listen=listen, read=read)
        assert http.is_open is is_open
        assert is_loopback(listen) is (not listen.startswith(("0", "[::]", "192")))

    def test_token_from_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text(f"{TOKEN}\n")
        assert list(Http(token_file=str(file)).read_holders()) == [TOKEN]
        file.write_text("short")
        with pytest.raises(ConfigError, match="at least 16"):
            Http(token_file=str(file)).read_holders()
        with pytest.raises(ConfigError, match="can't be read"):
            Http(token_file=str(tmp_path / "none")).read_holders()
