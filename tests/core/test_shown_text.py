"""What may be shown of a URL, of a command and of any text; and URLs with several hosts."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable
from urllib.parse import urlsplit, urlunsplit

import orjson
import pytest

from groupflow.core.masking import (
    mask_command,
    mask_parts,
    mask_place,
    mask_secrets,
    mask_url,
    plain_json,
    plain_text,
)
from groupflow.settings.transport import split_url

NAMES = [
    *("token", "access_token", "refresh-token", "key", "api-key", "apikey", "X-Api-Key", "sig"),
    *("signature", "X-Amz-Signature", "X-Amz-Credential", "code", "client_secret", "auth", "pwd"),
    *("password", "passwd", "pass", "authorization", "jwt", "session", "sid", "access%5Ftoken"),
    *("sas", "hmac", "X-Hmac", "pin", "user_pin", "p", "otp", "pw", "bearer"),
]


SHOWN: list[tuple[Callable[[str], str], str, str]] = [
    (mask_url, "https://T0KEN@h/x", "https://***@h/x"),
    (mask_url, "redis://T0KEN@h:6379/0", "redis://***@h:6379/0"),
    (mask_url, "amqp://me:T0KEN@h/", "amqp://me:***@h/"),
    (mask_url, "redis://:T0@K/EN@h/", "redis://:***@h/"),
    (mask_url, "https://h/x?a=1&sig=T0KEN&b=2", "https://h/x?a=1&sig=***&b=2"),
    (mask_url, "https://h/x#access_token=T0KEN", "https://h/x#access_token=***"),
    (mask_url, "T0KEN", "***"),
    (mask_url, "", ""),
    *((mask_secrets, f"no https://h/x?n=1&{name}=T0KEN&page=2, will retry",
       f"no https://h/x?n=1&{name}=***&page=2, will retry") for name in NAMES),
    (mask_secrets, "import: --password=hunter2 is wrong", "import: --password=*** is wrong"),
    (mask_secrets, "PGPASSWORD=hunter2 psql", "PGPASSWORD=*** psql"),
    (mask_secrets, "--api_key='hunter 2', retry", "--api_key=***, retry"),
    (mask_secrets, '--token="hunter2"', "--token=***"),
    (mask_secrets, "--password=***, rows=3", "--password=***, rows=3"),
    (mask_secrets, "rows=3 shipping=4", "rows=3 shipping=4"),
    (mask_secrets, "no postgres://u:p w@h/x, retry", "no postgres://u:***@h/x, retry"),
    (mask_secrets, "no postgres://u:p w x@h/x\nsee me@h", "no postgres://u:***@h/x\nsee me@h"),
    (mask_secrets, "redis://h:6379/0 is down, ask me@h", "redis://h:6379/0 is down, ask me@h"),
    (mask_secrets, "https://h/x?shipping=1&page=2", "https://h/x?shipping=1&page=2"),
    (mask_place, "https://hooks.h/services/T0/B0/T0KEN", "https://hooks.h"),
    (mask_place, "https://T0KEN@h:8443/x?key=T0KEN#T0KEN", "https://h:8443"),
    (mask_place, "http://[::1]:80/T0KEN", "http://[::1]:80"),
    (mask_place, "http://h:T0KEN/", "***"),
    (mask_place, "hooks.h/T0KEN", "***"),
    (lambda words: mask_command(words.split()), "/opt/import-orders --password=T0KEN",
     "import-orders"),
    (lambda words: mask_command(words.split()), "/", "/"),
]  # fmt: skip


@pytest.mark.parametrize(("mask", "text", "shown"), SHOWN)
def test_what_is_shown(mask: Callable[[str], str], text: str, shown: str) -> None:
    assert mask(text) == shown


def test_a_text_is_read_once() -> None:
    """Strangers' text too: no time that grows with the square of its length."""
    for part in ("?key", "?a=b&", "://", "@", "://a@", "&token&", "a", "pass", "://a:b ", "a='"):
        mask_secrets("x://" + part * 50_000)
        mask_secrets(part * 50_000 + "\n=")


def test_what_a_server_repeats() -> None:
    url = "https://me:pa%23ss@h/hooks/T0KEN?code=a%2Fbcd&n=1"
    said = f"Cannot POST /hooks/T0KEN?code=a%2Fbcd&n=1 by me with pa#ss: a/bcd, see {url}"
    assert mask_parts(said, url) == "Cannot POST *** by me with ***: ***, see https://h"


@pytest.fixture(scope="module")
def every() -> str:
    """Each character that a text may have."""
    return "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)


TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def is_unseen(char: str) -> bool:
    is_control = unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")
    return is_control or unicodedata.bidirectional(char) in TURNING


def test_text_is_printable_and_on_one_line(every: str) -> None:
    assert plain_text(every).isprintable()
    assert plain_text("\ud800") == "\\ud800"
    assert plain_text("a\x1b[31m\n\x9b\u202e") == r"a\x1b[31m\n\x9b\u202e"
    assert plain_text("租户 🐘 é") == "租户 🐘 é"


def test_json_has_the_same_value_and_nothing_unseen(every: str) -> None:
    value = {every: [every, {"é 租户 🐘": 1.5}]}
    text = plain_json(orjson.dumps(value).decode())
    assert orjson.loads(text) == value
    assert not any(map(is_unseen, set(text)))
    assert "é 租户 🐘" in text


@pytest.mark.parametrize(
    "url", ["amqp://u:p@[::1]:5/v?a=b#c", "unix:///run/redis.sock?db=1", "", "redis://a", "/x,y"]
)
def test_one_host_is_split_as_ever(url: str) -> None:
    assert split_url(url) == urlsplit(url)


@pytest.mark.parametrize("hosts", ["a,b:2", "a:1,[::1]:2,c", "[::1],[::2]", "u:p%2C@[::1]:1,a"])
def test_several_hosts_stay_together(hosts: str) -> None:
    url = f"rediss+cluster://{hosts}/0?ca_file=x"
    parts = split_url(url)
    assert (parts.scheme, parts.netloc, parts.path) == ("rediss+cluster", hosts, "/0")
    assert parts.query == "ca_file=x"
    assert urlunsplit(parts) == url
