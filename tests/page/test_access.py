"""Access: who may look, who may act, what a browser can be talked into, and named tokens."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers
from structlog.testing import capture_logs

from groupflow.core.errors import ConfigError
from groupflow.ops.page import access, site, throttle
from groupflow.ops.page.access import Tokens
from groupflow.ops.page.throttle import DELAY, DELAYED, LINES, REMEMBERED, WrongTokens
from groupflow.settings.model import Http
from tests.page.context import client_of
from tests.page.world import TOKEN, World
from tests.store.bench import Bench, arrival
from tests.turns import turns

PAUSE = {"group": "ready-005:8"}
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def _post(world: World, headers: dict[str, str], verb: str = "pause") -> httpx.Response:
    sent: Any = [(name, value.encode("latin-1")) for name, value in headers.items()]
    return world.http.post(f"/api/{verb}", json=PAUSE, headers=sent)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        *(({"Authorization": given}, 401) for given in ("", "Bearer", f"Bearer {TOKEN}x")),
        *(({"Authorization": given}, 401) for given in (f"Basic {TOKEN}", "Bearer \xe4")),
        *(({**BEARER, "Origin": o}, 403) for o in ("https://evil.example", "null", "http://[")),
        *(({**BEARER, "Origin": o}, 403) for o in ("http://[::1", "\\", "//[", "http://][")),
        *(({**BEARER, "Sec-Fetch-Site": site}, 403) for site in ("cross-site", "same-site")),
        ({**BEARER, "Content-Type": "text/plain"}, 415),
    ],
)
def test_an_action_is_refused(world: World, headers: dict[str, str], status: int) -> None:
    """Without the token, and with it from another site or in a form that any site can send."""
    answer = _post(world, headers)
    assert answer.status_code == status
    assert answer.headers.get("www-authenticate", "").startswith("Bearer" if status == 401 else "")
    assert world.get("group", key=PAUSE["group"])["why"]["state"] == "ready"


def test_our_own_page_acts(world: World) -> None:
    """Where the page read no body its answer says that it closes; else a client would go on."""
    refused = _post(world, {})
    assert (refused.status_code, refused.headers.get("connection")) == (401, "close")
    ours = {**BEARER, "Origin": world.url, "Sec-Fetch-Site": "same-origin"}
    done = _post(world, ours, "resume")
    assert (done.status_code, done.headers.get("connection")) == (200, None)


async def test_without_a_configured_token_all_is_shown(bench: Bench) -> None:
    """Each client that reaches such a page sees all that it can show."""
    await bench.enqueue(arrival("gone", dead="no JSON"))
    async with client_of(bench.namespace, {"http": {"listen": "127.0.0.1:9464"}}) as api:
        letter = (await api.get("/letter", params={"id": "gone"})).json()
    assert (letter["is_withheld"], letter["body"]) == (False, '{"id":"gone"}')


class TestWrongTokens:
    def test_they_are_in_the_log(self, world: World) -> None:
        given = "a-guess-of-somebody-0123456789"
        assert _post(world, {"Authorization": f"Bearer {given}"}).status_code == 401
        assert world.daemon.wait_for("http.wrong_token")["peer"] == "127.0.0.1"
        assert given not in world.daemon.log.read_text()

    async def test_so_many_wait_and_no_more(self) -> None:
        """The rest is refused unread, for that address alone; one that is known is always read."""
        began, wrong = monotonic(), WrongTokens()
        assert await wrong.wrong("192.0.2.1")
        assert monotonic() - began >= DELAY, "each is answered late"
        wrong.right("192.0.2.9")
        peers = ("192.0.2.1", "192.0.2.9")
        waiting = [asyncio.create_task(wrong.wrong(p)) for p in peers for _ in range(DELAYED)]
        await turns()
        assert await wrong.wrong("192.0.2.1") is False
        read = [wrong.is_read(f"192.0.2.{n}") for n in (1, 9, 3)]
        assert read == [False, True, True]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert wrong.is_read("192.0.2.1")

    async def test_log_and_memory_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many addresses an attacker has, and however often each tries."""
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


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 421) for host in ("evil.example", "evil.example:80", "localhost.evil", "")),
        *((host, 200) for host in ("localhost:1", "127.0.0.1", "[::1]:9464", "192.0.2.7")),
    ],
)
def test_a_name_that_a_stranger_can_have_is_refused(world: World, host: str, status: int) -> None:
    """One that was pointed at this address, on every path."""
    (script,) = re.findall(r'src="(/static/[0-9a-f]{16}/main.js)"', world.http.get("/").text)
    for path in ("/", "/api/overview", "/livez", script):
        assert world.http.get(path, headers={"Host": host}).status_code == status


@pytest.mark.parametrize("path", ["/", "/api/overview", "/nothing", "/livez", "/static/no"])
def test_headers(world: World, path: str) -> None:
    headers = world.http.get(path).headers
    policy = headers["content-security-policy"]
    wanted = "default-src 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    assert {*wanted.split("; "), "trusted-types 'none'"} <= {*policy.split("; ")}, policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    assert headers["cache-control"] == ("no-cache" if path == "/" else "no-store")


def test_files_are_kept_under_their_digest(world: World) -> None:
    """A browser asks for the page each time, and for its files once a version; for no others."""
    (script,) = re.findall(r'src="(/static/[0-9a-f]{16}/main.js)"', world.http.get("/").text)
    answer = world.http.get(script)
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "immutable" in answer.headers["cache-control"]
    for path in ("main.js", "../site.py", "%2e%2e/site.py", "..%2fsite.py"):
        assert world.http.get(f"/static/{path}").status_code == 404


def test_a_browser_asks_for_all_modules_at_once(world: World) -> None:
    """Those that the page runs itself are named there anyway."""
    folder = Path(site.__file__).parent / "static"
    modules = {str(each.relative_to(folder)) for each in folder.rglob("*.js")}
    link = r'rel="modulepreload" href="/static/[0-9a-f]{16}/(.*)"'
    named = re.findall(link, world.http.get("/").text)
    assert {*named, "main.js", "theme.js"} == modules
    assert len(named) == len(modules) - 2


def test_where_looking_needs_the_token() -> None:
    for listen in ("127.0.0.1:1", "[::1]:1", "localhost:1"):
        assert Http(listen=listen).is_open
    for listen in ("0.0.0.0:1", "[::]:1", "192.0.2.7:1"):
        assert not Http(listen=listen).is_open
        assert Http(listen=listen, read="open").is_open
    assert not Http(listen="127.0.0.1:1", read="token").is_open


OLD, NEW = "the-old-token-of-the-courier", "the-new-token-of-the-courier"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The couriers', which is looked at each time."""
    monkeypatch.setattr(access, "LOOK", 0.0)
    (tmp_path / "couriers").write_text(OLD)
    return tmp_path / "couriers"


def _couriers(file: Path) -> Tokens:
    named = {"couriers": {"token_file": str(file), "rights": ["publish"]}}
    return Tokens(Http.model_validate({"token": TOKEN, "tokens": named}))


def _names(found: Tokens, *given: str) -> list[str | None]:
    holders = [found.holder(Headers({"authorization": f"Bearer {each}"})) for each in given]
    return [holder.name if holder else None for holder in holders]


def test_one_replaces_the_other(file: Path) -> None:
    found = _couriers(file)
    assert _names(found, OLD, NEW) == ["couriers", None]
    file.write_text(f"{OLD}\n{NEW}\n")
    assert _names(found, OLD, NEW) == ["couriers", "couriers"]
    file.write_text(NEW)
    assert _names(found, OLD, NEW, TOKEN) == [None, "couriers", "operator"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "token"),
        ("short", "at least 16"),
        (f"{OLD} {NEW} {TOKEN}x", "token"),
        (TOKEN, "token"),
        ("no-UTF-8-at-all-\udcff", "signs of ASCII"),
        (None, "can't be read"),
    ],
)
def test_a_file_that_cannot_be_used_changes_nothing(
    file: Path, content: str | None, words: str
) -> None:
    """A daemon that begins with it is refused, as is one whose own token comes from such a file."""
    found = _couriers(file)
    file.unlink()
    if content is not None:
        file.write_bytes(content.encode(errors="surrogateescape"))
    with capture_logs() as lines:
        assert _names(found, OLD) == ["couriers"]
    (line,) = lines
    assert line["event"] == "http.tokens_kept"
    assert OLD not in str(line)
    assert TOKEN not in str(line)
    with pytest.raises(ConfigError, match=words):
        _couriers(file)
    if content in ("short", None):
        with pytest.raises(ConfigError, match=words):
            Http(token_file=str(file)).read_holders()
