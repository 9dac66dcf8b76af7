"""URLs of one host or of several: ``amqp://user:password@a:5672,[::1]:5673/vhost``."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

# A URL up to where its hosts begin, and those; both as RFC 3986 has them (appendix B).
_AUTHORITY = re.compile(r"((?:[^:/?#]+:)?//)([^/?#]*)")


def split_url(url: str) -> SplitResult:
    """The parts of a URL; `netloc` has all of its hosts.

    The standard library's own, which takes one host: newer versions refuse a second one that is an
    IPv6 address. The `hostname` and `port` of several say nothing.

    Raises:
        ValueError: it can't be read as a URL.
    """
    found = _AUTHORITY.match(url)
    if found is None or "," not in (hosts := found[2]):
        return urlsplit(url)
    return urlsplit(f"{found[1]}hosts{url[found.end() :]}")._replace(netloc=hosts)
