"""URLs with several hosts."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

import pytest

from groupflow.core.urls import split_url


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
