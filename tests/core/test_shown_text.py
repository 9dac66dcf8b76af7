"""What may be shown of a URL, of a command and of any text; and URLs with several hosts."""

from __future__ import annotations

import sys
import unicodedata
from urllib.parse import urlsplit, urlunsplit

import orjson
import pytest

from groupflow.core.escaping import plain_json, plain_text
from groupflow.core.masking import mask_command, mask_parts, mask_place, mask_secrets, mask_url
from groupflow.core.urls import split_url

NAMES = [
    *("token", "access_token", "refresh-token", "key", "api-key", "apikey", "X-Api-Key", "sig"),
    *("signature", "X-Amz-Signature", "X-Amz-Credential", "code", "client_secret", "auth", "pwd"),
    *("password", "passwd", "pass", "authorization", "jwt", "session", "sid", "access%5Ftoken"),
    *("sas", "hmac", "X-Hmac", "pin", "user_pin", "p", "otp", "pw", "bearer"),
]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://T0KEN@h/x", "https://***@h/x"),
        ("redis://T0KEN@h:6379/0", "redis://***@h:6379/0"),
        ("amqp://me:T0KEN@h/", "amqp://me:***@h/"),
        ("redis://:T0KEN@h/", "redis://:***@h/"),
        ("redis://:T0@K/EN@h/", "redis://:***@h/"),
        ("https://h/x?a=1&sig=T0KEN&b=2", "https://h/x?a=1&sig=***&b=2"),
        ("https://h/x#access_token=T0KEN", "https://h/x#access_token=***"),
        ("T0KEN", "***"),
        ("", ""),
    ],
)
def test_urls(url: str, shown: str) -> None:
    assert mask_url(url) == shown


@pytest.mark.parametrize("name", NAMES)
def test_parameters_that_are_secret_by_their_name(name: str) -> None:
    text = f"can't get https://h/x?n=1&{name}=T0KEN&page=2, will retry"
    assert mask_secrets(text) == f"can't get https://h/x?n=1&{name}=***&page=2, will retry"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("import: --password=hunter2 is wrong", "import: --password=*** is wrong"),
        ("PGPASSWORD=hunter2 psql", "PGPASSWORD=*** psql"),
        ("--api_key='hunter 2', retry", "--api_key=***, retry"),
        ('--token="hunter2"', "--token=***"),
        ("--password=***, rows=3", "--password=***, rows=3"),
        ("rows=3 shipping=4", "rows=3 shipping=4"),
        ("no postgres://u:p w@h/x, retry", "no postgres://u:***@h/x, retry"),
        ("no postgres://u:p w x@h/x\nsee me@h", "no postgres://u:***@h/x\nsee me@h"),
        ("redis://h:6379/0 is down, ask me@h", "redis://h:6379/0 is down, ask me@h"),
        ("https://h/x?shipping=1&page=2", "https://h/x?shipping=1&page=2"),
    ],
)
def test_texts(text: str, shown: str) -> None:
    assert mask_secrets(text) == shown


def test_a_text_is_read_once() -> None:
    """Strangers' text too: no time that grows with the square of its length."""
    for part in ("?key", "?a=b&", "://", "@", "://a@", "&token&", "a", "pass", "://a:b ", "a='"):
        mask_secrets("x://" + part * 50_000)
        mask_secrets(part * 50_000 + "\n=")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.h/services/T0/B0/T0KEN", "https://hooks.h"),
        ("https://T0KEN@h:8443/x?key=T0KEN#T0KEN", "https://h:8443"),
        ("http://[::1]:80/T0KEN", "http://[::1]:80"),
        ("http://h:T0KEN/", "***"),
        ("hooks.h/T0KEN", "***"),
    ],
)
def test_places(url: str, shown: str) -> None:
    assert mask_place(url) == shown


def test_commands() -> None:
    assert mask_command(["/opt/in/import-orders", "--password=T0KEN"]) == "import-orders"
    assert mask_command(["/"]) == "/"


def test_what_a_server_repeats() -> None:
    url = "https://me:pa%23ss@h/hooks/T0KEN?code=a%2Fbcd&n=1"
    said = f"Cannot POST /hooks/T0KEN?code=a%2Fbcd&n=1 by me with pa#ss: a/bcd, see {url}"
    assert mask_parts(said, url) == "Cannot POST *** by me with ***: ***, see https://h"


EVERY = "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
UNSEEN = {
    char
    for char in EVERY
    if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")
    or unicodedata.bidirectional(char) in TURNING
} | {"\u061c", "\u200e", "\u200f"}


def test_text_is_printable_and_on_one_line() -> None:
    assert plain_text(EVERY).isprintable()
    assert plain_text("\ud800") == "\\ud800"
    assert plain_text("a\x1b[31m\n\x9b\u202e") == r"a\x1b[31m\n\x9b\u202e"
    assert plain_text("租户 🐘 é") == "租户 🐘 é"


def test_json_has_the_same_value_and_nothing_unseen() -> None:
    value = {EVERY: [EVERY, {"é 租户 🐘": 1.5}]}
    text = plain_json(orjson.dumps(value).decode())
    assert orjson.loads(text) == value
    assert not set(text) & UNSEEN
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
