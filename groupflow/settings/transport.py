"""How the servers may be reached: over verified TLS, or plainly where the network is safe.

The TLS files travel in the query of the URL, so that a URL has all that connecting needs;
`split_tls` takes them out again. There is no way to switch verification off, here or in a URL.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

# A URL up to where its hosts begin, and those; both as RFC 3986 has them (appendix B).
_AUTHORITY = re.compile(r"((?:[^:/?#]+:)?//)([^/?#]*)")
CLUSTER, SENTINEL = "+cluster", "+sentinel"  # how Redis's schemes end where there are many nodes
PORT, SENTINEL_PORT = 6379, 26379
TLS_SCHEMES = frozenset({"amqps", "rediss", f"rediss{CLUSTER}", f"rediss{SENTINEL}"})
TLS_FILES = ("ca_file", "cert_file", "key_file")


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


def address_of(url: str) -> str:
    """Hosts and ports of a server's URL, or its socket: all that may be shown of it."""
    parts = split_url(url)
    return parts.netloc.rpartition("@")[2] or parts.path


def with_tls(url: str, files: Mapping[str, str]) -> str:
    """A URL with TLS files in its query, each by the name of its setting.

    Raises:
        OSError: a file can't be read, or is no certificate or key.
        ValueError: it isn't PEM.
    """
    parts = split_url(url)
    extra = [f"{name}={quote(path)}" for name, path in files.items()]
    query = "&".join(filter(None, [parts.query, *extra]))
    whole = urlunsplit(parts._replace(query=query))
    split_tls(whole)
    return whole


def split_tls(url: str) -> tuple[str, ssl.SSLContext | None]:
    """A URL without TLS files, and how to verify its server; ``None`` where it is plaintext.

    With a CA file, that CA alone is trusted; without one, those of the system.

    Raises:
        OSError: a file can't be read, or is no certificate or key.
    """
    if split_url(url).scheme not in TLS_SCHEMES:
        return url, None
    plain, files = split_files(url)
    context = ssl.create_default_context(cafile=files.get("ca_file"))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if "cert_file" in files:
        # Else an encrypted key would make OpenSSL ask for its password on the terminal.
        context.load_cert_chain(files["cert_file"], files.get("key_file"), password="")
    return plain, context


def split_files(url: str) -> tuple[str, dict[str, str]]:
    """A URL without TLS files, and these by the names of their settings: `with_tls` undone."""
    parts = split_url(url)
    files: dict[str, str] = {}
    rest = []
    for part in parts.query.split("&") if parts.query else ():
        name, _, value = part.partition("=")
        if name in TLS_FILES:
            files[name] = unquote(value)
        else:
            rest.append(part)
    return (urlunsplit(parts._replace(query="&".join(rest))) if files else url), files


def is_loopback(listen: str) -> bool:
    """Whether only this machine can reach an address to listen on."""
    return stays_here(f"http://{listen}")


def stays_here(url: str) -> bool:
    """Whether a connection to this URL, to any of the hosts in it, never leaves the machine."""
    parts = split_url(url)
    if parts.scheme == "unix":
        return True
    hosts = parts.netloc.rpartition("@")[2].split(",")
    return all(_is_here((urlsplit(f"//{host}").hostname or "").rstrip(".")) for host in hosts)


def _is_here(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def split_hosts(hosts: str, port: int) -> list[tuple[str, int]]:
    """Hosts and ports in a list like ``a:6379,b,[::1]:6380``; `port` where one has none.

    Raises:
        ValueError: a host is missing, or a port is no number.
    """
    found = []
    for each in hosts.split(","):
        parts = urlsplit(f"//{each}")
        if not parts.hostname or parts.port == 0:
            raise ValueError(f"no host, or no port, in {each!r}")
        found.append((parts.hostname, parts.port or port))
    return found
