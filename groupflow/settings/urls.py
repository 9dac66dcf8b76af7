"""URLs of servers and of handlers, whose secrets are never shown, and the sections of servers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from pydantic import AfterValidator, BeforeValidator, Secret, model_validator

from groupflow.core.errors import ConfigError, Problem
from groupflow.core.masking import mask_place, mask_url
from groupflow.settings.transport import (
    CLUSTER,
    PORT,
    SENTINEL,
    TLS_FILES,
    TLS_SCHEMES,
    split_hosts,
    split_url,
    stays_here,
    with_tls,
)
from groupflow.settings.types import FileName, Section

_TLS_IN_URL = frozenset(
    {"cafile", "capath", "cadata", "certfile", "keyfile", "no_verify_ssl", *TLS_FILES}
)


class SecretUrl(Secret[str]):
    """A URL that may carry a password. Shown, printed or dumped, the password is hidden.

    `get_secret_value` gives the real one.
    """

    def _display(self) -> str:
        return mask_url(self.get_secret_value())


class HandlerUrl(SecretUrl):
    """A handler's URL; only scheme, host and port are shown, as a webhook's path is a secret."""

    def _display(self) -> str:
        return mask_place(self.get_secret_value())


def _is_tls(option: str) -> bool:
    """Whether an option in a URL's query is about TLS, which the clients would obey."""
    name = unquote(option.partition("=")[0]).lower()
    return name.startswith("ssl") or name in _TLS_IN_URL


def _check(
    url: SecretUrl,
    schemes: Sequence[str],
    *,
    is_servers: bool = True,
    is_list: bool = False,
    several: str = "",
) -> SecretUrl:
    """Refuse a URL that can't be used; what it raises never holds the URL itself.

    With `is_list` it may have several hosts, with commas between them. `several` names schemes of
    many nodes, which another validator checks.
    """
    value = url.get_secret_value()
    try:
        parts = split_url(value)
        place = parts.netloc.rpartition("@")[2]
        hosts = [urlsplit(f"//{host}") for host in (place.split(",") if is_list else [place])]
        port_is_wrong = any(host.port == 0 for host in hosts)
    except ValueError:
        raise ValueError(
            f"Write a URL like {schemes[0]}://user:password@host:port/, the port a number, and "
            "percent-encode @ : / # ? in the password."
        ) from None
    if parts.scheme not in schemes:
        wanted = " or ".join(f"{scheme}://" for scheme in schemes)
        raise ValueError(f"Start it with {wanted}{several}.")
    if port_is_wrong or any(character <= " " for character in value):
        raise ValueError("Write a URL without spaces, its port between 1 and 65535.")
    if parts.scheme != "unix" and not all(host.hostname for host in hosts):
        raise ValueError(f"Name the host: {schemes[0]}://host/.")
    if is_servers and any(_is_tls(option) for option in parts.query.split("&")):
        raise ValueError(
            "Set TLS beside it, by ca_file, cert_file and key_file; a server's certificate is "
            "always verified."
        )
    return url


_check_http = partial(_check, schemes=("http", "https"), is_servers=False)
_check_rabbitmq = partial(_check, schemes=("amqp", "amqps"), is_list=True)
_check_redis = partial(
    _check,
    schemes=("redis", "rediss", "unix"),
    several=", or, for several nodes, redis+cluster:// or redis+sentinel:// (TLS: rediss+...)",
)


def _joined(value: object) -> object:
    """A list of a cluster's nodes as one URL: ``amqp://user:password@a:5672,b:5672/vhost``."""
    if isinstance(value, str) and value.lstrip().startswith("["):  # from the environment
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError(
                'Write several nodes as a list: ["amqps://a/", "amqps://b/"].'
            ) from None
    if not isinstance(value, list | tuple):
        return value
    if not value or not all(isinstance(each, str) for each in value):
        raise ValueError('List the URLs of the nodes: ["amqps://a/", "amqps://b/"].')
    first, *others = [
        urlsplit(_check(SecretUrl(each), ("amqp", "amqps")).get_secret_value()) for each in value
    ]
    shared = _without_host(first)
    if any(_without_host(other) != shared for other in others):
        raise ValueError(
            "Give all of them one scheme, user, password, virtual host and options: they have to "
            "be nodes of one cluster."
        )
    user, at, _ = first.netloc.rpartition("@")
    hosts = ",".join(parts.netloc.rpartition("@")[2] for parts in (first, *others))
    return SecretUrl(urlunsplit(first._replace(netloc=f"{user}{at}{hosts}")))


def _without_host(parts: SplitResult) -> SplitResult:
    return parts._replace(netloc=parts.netloc.rpartition("@")[0], path=parts.path or "/")


def _redis_nodes(url: SecretUrl) -> SecretUrl:
    """Check a URL of several nodes; others are checked by `_check`."""
    value = url.get_secret_value()
    scheme = value.partition("://")[0]
    if not scheme.endswith((CLUSTER, SENTINEL)):
        parts = split_url(_check_redis(url).get_secret_value())
        path = parts.path.strip("/")
        if scheme == "unix" and not path:
            raise ValueError("Name the socket: unix:///run/redis.sock.")
        if scheme != "unix" and not (path or "0").isdecimal():  # the client would take 0
            raise ValueError(f"Name the database by its number: {scheme}://host:6379/0.")
        _check_options(parts.query, ("username", "password", "db"))
        return url
    try:
        parts = split_url(value)
        split_hosts(parts.netloc.rpartition("@")[2], PORT)
    except ValueError:
        raise ValueError(
            f"Write the nodes as {scheme}://user:password@host:port,host:port, each port between 1 "
            "and 65535, and percent-encode @ : / # ? , in the password."
        ) from None
    plain = urlunsplit(parts._replace(scheme=scheme.partition("+")[0], netloc="host"))
    _check_redis(SecretUrl(plain))
    _check_options(parts.query, ("username", "password"))
    path = parts.path.strip("/")
    if scheme.endswith(CLUSTER) and path not in ("", "0"):
        raise ValueError("Leave the database out: a cluster has only 0.")
    name, _, database = path.partition("/")
    if scheme.endswith(SENTINEL) and not (name and (database or "0").isdecimal()):
        raise ValueError(
            f"Name the primary as Sentinel does, and a database: {scheme}://host:26379/mymaster/0."
        )
    return url


def _check_options(query: str, known: Sequence[str]) -> None:
    """Refuse options that no client of ours obeys; what it raises says nothing of them."""
    for option in filter(None, query.split("&")):
        name, _, value = option.partition("=")
        if name not in known or (name == "db" and not value.isdecimal()):
            may_be = ", ".join("db, a number" if each == "db" else each for each in known)
            raise ValueError(f"Leave all options out but these: {may_be}.")


def _api(url: SecretUrl) -> SecretUrl:
    return _check_http(url) if url.get_secret_value() else url


AmqpUrl = Annotated[
    SecretUrl,
    BeforeValidator(_joined, json_schema_input_type=str | list[str]),
    AfterValidator(_check_rabbitmq),
]
RedisUrl = Annotated[SecretUrl, AfterValidator(_redis_nodes)]
ApiUrl = Annotated[SecretUrl, AfterValidator(_api)]
HttpUrl = Annotated[HandlerUrl, AfterValidator(_check_http)]


class Server(Section):
    """What both servers' sections share: where it is, and how the way there is secured."""

    url: SecretUrl
    ca_file: FileName = ""
    """PEM file of the CA to trust alone; empty: those of the system. SECURITY.md says what it
    needs."""
    cert_file: FileName = ""
    """PEM file of our own certificate, where the server asks for one."""
    key_file: FileName = ""
    """PEM file of its key; empty: it is in cert_file."""
    allow_plaintext: bool = False
    """Whether a connection to another machine may go without TLS."""

    @model_validator(mode="after")
    def _files_are_used(self) -> Self:
        if self.key_file and not self.cert_file:
            raise ValueError("Give key_file its cert_file.")
        files = (self.ca_file, self.cert_file, self.key_file)
        scheme = self.url.get_secret_value().partition("://")[0]
        if scheme not in TLS_SCHEMES and any(files):
            raise ValueError(
                f"ca_file, cert_file and key_file are for TLS, and url is {scheme}://: change the "
                "one or leave out the others."
            )
        return self

    def connection_url(self, section: str) -> str:
        """Where and how to connect, with the TLS files in the URL's query.

        Raises:
            ConfigError: it is plaintext to another machine, or a TLS file can't be used; `section`
                is named in it.
        """
        url = self.url.get_secret_value()
        scheme = split_url(url).scheme
        if scheme not in TLS_SCHEMES:
            if self.allow_plaintext or stays_here(url):
                return url
            secure = scheme.replace("amqp", "amqps").replace("redis", "rediss")
            remedy = (
                "It is plaintext to another machine: anyone on the way can read and change "
                f"jobs and passwords. Use {secure}://, or set {section}.allow_plaintext = true "
                "where the network itself is safe."
            )
            raise ConfigError([Problem(f"{section}.url", mask_url(url), remedy)])
        files = {name: path for name in TLS_FILES if (path := getattr(self, name))}
        for name, path in files.items():
            try:
                is_there = Path(path).is_file()
            except PermissionError:
                is_there = False
            if not is_there:
                remedy = "There is no such file: correct the path, or the rights on the way to it."
                raise ConfigError([Problem(f"{section}.{name}", path, remedy)])
        try:
            return with_tls(url, files)
        except (OSError, ValueError) as error:
            remedy = (
                f"They can't be used for TLS ({error}): each must be PEM, without a passphrase."
            )
            settings = ", ".join(f"{section}.{name}" for name in files) or f"{section}.url"
            raise ConfigError([Problem(settings, "", remedy)]) from None
