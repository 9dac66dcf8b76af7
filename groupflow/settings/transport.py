"""How the servers may be reached: over TLS that is verified, or plainly where nobody listens in.

The TLS files travel in the query of the URL, so that a URL says all of how to connect; `split_tls`
takes them out again. There is no way to switch verification off, here or in a URL.
"""

from __future__ import annotations

import ssl
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from groupflow.core.errors import ConfigError, Problem
from groupflow.core.masking import mask_url

if TYPE_CHECKING:
    from groupflow.settings.section import Server

TLS_SCHEMES = frozenset({"amqps", "rediss"})
TLS_FILES = ("ca_file", "cert_file", "key_file")


def connection_url(section: str, server: Server) -> str:
    """The URL to connect to, with the TLS files in its query.

    Args:
        section: names the section in what is wrong.
        server: the section itself.

    Raises:
        ConfigError: it is plaintext to another machine, or a TLS file can't be used.
    """
    url = server.url.get_secret_value()
    if urlsplit(url).scheme not in TLS_SCHEMES:
        if not (server.allow_plaintext or stays_here(url)):
            raise ConfigError([_plaintext(section, url)])
        return url
    files = {name: path for name in TLS_FILES if (path := getattr(server, name))}
    for name, path in files.items():
        if not Path(path).is_file():
            remedy = "There is no such file: correct the path, or the rights on the way to it."
            raise ConfigError([Problem(f"{section}.{name}", path, remedy)])
    parts = urlsplit(url)
    extra = "&".join(f"{name}={quote(path)}" for name, path in files.items())
    query = "&".join(part for part in (parts.query, extra) if part)
    whole = urlunsplit(parts._replace(query=query))
    try:
        split_tls(whole)
    except (OSError, ValueError) as error:
        remedy = f"They can't be used for TLS ({error}): each must be PEM, without a passphrase."
        settings = ", ".join(f"{section}.{name}" for name in files) or f"{section}.url"
        raise ConfigError([Problem(settings, "", remedy)]) from None
    return whole


def split_tls(url: str) -> tuple[str, ssl.SSLContext | None]:
    """A URL without TLS files, and how to verify its server; ``None`` where it is plaintext.

    With a CA file, that CA alone is trusted; without one, those of the system.

    Raises:
        OSError: a file can't be read, or is no certificate or key.
    """
    parts = urlsplit(url)
    if parts.scheme not in TLS_SCHEMES:
        return url, None
    files: dict[str, str] = {}
    rest = []
    for part in parts.query.split("&") if parts.query else ():
        name, _, value = part.partition("=")
        if name in TLS_FILES:
            files[name] = unquote(value)
        else:
            rest.append(part)
    context = ssl.create_default_context(cafile=files.get("ca_file"))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if "cert_file" in files:
        # An encrypted key would else ask for its password on the terminal.
        context.load_cert_chain(files["cert_file"], files.get("key_file"), password="")
    return urlunsplit(parts._replace(query="&".join(rest))), context


def stays_here(url: str) -> bool:
    """Whether a connection to this URL never leaves the machine."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return True
    host = (parts.hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def _plaintext(section: str, url: str) -> Problem:
    scheme = "amqps" if urlsplit(url).scheme == "amqp" else "rediss"
    return Problem(
        f"{section}.url",
        mask_url(url),
        "It is plaintext to another machine: whoever is on the way can read and change jobs and "
        f"passwords. Use {scheme}://, or set {section}.allow_plaintext = true where the network "
        "itself is safe.",
    )
