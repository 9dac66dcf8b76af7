"""What settings are made of: masked URLs, numbers that are numbers, rules' lists, sections."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    SecretStr,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from groupflow.core.errors import ConfigError, Problem
from groupflow.core.limits import Rate
from groupflow.core.masking import mask_command, mask_place, mask_url
from groupflow.core.template import FieldPath, Template
from groupflow.core.urls import split_url
from groupflow.settings.transport import (
    CLUSTER,
    PORT,
    SENTINEL,
    TLS_FILES,
    TLS_SCHEMES,
    split_hosts,
    stays_here,
    with_tls,
)

YEAR = 31_536_000.0
"""Seconds; the longest delay, and the most that a priority may weigh."""

_MAX_PORT = 65535
_MAX_NAME = 128
_MIN_TOKEN = 16  # characters
_TLS_IN_URL = frozenset(
    {"cafile", "capath", "cadata", "certfile", "keyfile", "no_verify_ssl", *TLS_FILES}
)


class SecretUrl(SecretStr):
    """A URL that may carry a password. Shown, printed or dumped, the password is hidden.

    `get_secret_value` gives the real one.
    """

    @classmethod
    def __get_pydantic_core_schema__(
        cls,
        source: type[Any],
        handler: GetCoreSchemaHandler,
    ) -> CoreSchema:
        """Accept a string or a `SecretUrl`; JSON dumps hold the masked text."""
        return core_schema.no_info_plain_validator_function(
            cls._accept,
            json_schema_input_schema=core_schema.str_schema(),
            serialization=core_schema.plain_serializer_function_ser_schema(
                str, return_schema=core_schema.str_schema(), when_used="json"
            ),
        )

    @classmethod
    def _accept(cls, value: object) -> SecretUrl:
        if isinstance(value, SecretUrl):
            return cls(value.get_secret_value())
        if not isinstance(value, str):
            raise ValueError("Write it as a URL in quotes.")  # noqa: TRY004  pydantic reads this one
        return cls(value)

    def _display(self) -> str:
        return mask_url(self.get_secret_value())


class HandlerUrl(SecretUrl):
    """A handler's URL; only scheme, host and port are shown, as a webhook's path is a secret."""

    def _display(self) -> str:
        return mask_place(self.get_secret_value())


class HandlerCommand(tuple[str, ...]):
    """A handler's command, of which only the name is shown: arguments may be passwords."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(self.display())

    def display(self) -> tuple[str, ...]:
        """The part that may be shown, as a command."""
        return (mask_command(self),)


def _is_tls(option: str) -> bool:
    """Whether an option in a URL's query is about TLS, which the clients would obey."""
    name = unquote(option.partition("=")[0]).lower()
    return name.startswith("ssl") or name in _TLS_IN_URL


def _url_check(*schemes: str, server: bool, several: str = "") -> Callable[[SecretUrl], SecretUrl]:
    """A validator for URLs of these schemes; its messages never hold the URL itself.

    `several` names schemes of many nodes, which another validator checks.
    """
    wanted = " or ".join(f"{scheme}://" for scheme in schemes)

    def check(url: SecretUrl) -> SecretUrl:
        value = url.get_secret_value()
        try:
            parts = urlsplit(value)
            port_is_wrong = parts.port == 0
        except ValueError:
            raise ValueError(
                f"Write a URL like {schemes[0]}://user:password@host:port/, the port a number, and "
                "percent-encode @ : / # ? in the password."
            ) from None
        if parts.scheme not in schemes:
            raise ValueError(f"Start it with {wanted}{several}.")
        if port_is_wrong or any(ord(character) <= 0x20 for character in value):  # noqa: PLR2004
            raise ValueError("Write a URL without spaces, its port between 1 and 65535.")
        if parts.scheme != "unix" and not parts.hostname:
            raise ValueError(f"Name the host: {schemes[0]}://host/.")
        if server and any(_is_tls(option) for option in parts.query.split("&")):
            raise ValueError(
                "Set TLS beside it, by ca_file, cert_file and key_file; a server's certificate is "
                "always verified."
            )
        return url

    return check


_one_redis = _url_check(
    *("redis", "rediss", "unix"),
    server=True,
    several=", or, for several nodes, redis+cluster:// or redis+sentinel:// (TLS: rediss+...)",
)
_one_rabbitmq = _url_check("amqp", "amqps", server=True)


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
    first, *others = [urlsplit(_one_rabbitmq(SecretUrl(each)).get_secret_value()) for each in value]
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


def _rabbitmq_nodes(url: SecretUrl) -> SecretUrl:
    """Check a URL of one node, or of several with commas between their hosts."""
    try:
        parts = split_url(url.get_secret_value())
    except ValueError:
        return _one_rabbitmq(url)  # which says what is wrong
    user, at, hosts = parts.netloc.rpartition("@")
    for host in hosts.split(","):
        _one_rabbitmq(SecretUrl(urlunsplit(parts._replace(netloc=f"{user}{at}{host}"))))
    return url


def _many_nodes(url: SecretUrl) -> SecretUrl:
    """Check a URL of several nodes; others are checked by `_url_check`."""
    value = url.get_secret_value()
    scheme = value.partition("://")[0]
    if not scheme.endswith((CLUSTER, SENTINEL)):
        return _one_redis(url)
    try:
        parts = split_url(value)
        split_hosts(parts.netloc.rpartition("@")[2], PORT)
    except ValueError:
        raise ValueError(
            f"Write the nodes as {scheme}://user:password@host:port,host:port, each port between 1 "
            "and 65535, and percent-encode @ : / # ? , in the password."
        ) from None
    plain = urlunsplit(parts._replace(scheme=scheme.partition("+")[0], netloc="host"))
    _one_redis(SecretUrl(plain))
    path = parts.path.strip("/")
    if scheme.endswith(CLUSTER) and path not in ("", "0"):
        raise ValueError("Leave the database out: a cluster has only 0.")
    name, _, database = path.partition("/")
    if scheme.endswith(SENTINEL) and not (name and (database or "0").isdecimal()):
        raise ValueError(
            f"Name the primary as Sentinel does, and a database: {scheme}://host:26379/mymaster/0."
        )
    return url


def no_bool(value: object) -> object:
    """Refuse true and false, which pydantic would quietly read as 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("Write a number.")  # noqa: TRY004  pydantic reads this one
    return value


def _not_zero(value: float) -> float:
    if value == 0:
        raise ValueError(
            "Choose a number of seconds other than 0: below 0 retries are evenly spaced, above 0 "
            "they come after 1, 2, 4 … seconds up to it."
        )
    return value


def _field_path(value: str) -> str:
    if value:
        FieldPath.parse(value)
    return value


def _template(value: str) -> str:
    Template.parse(value)
    return value


def _rate(value: str) -> str:
    Rate.parse(value)
    return value


def _listen(value: str) -> str:
    if not value:
        return value
    host, colon, port = value.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= _MAX_PORT):
        raise ValueError('Write "address:port", such as "127.0.0.1:9464"; port 0 takes a free one.')
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError('Put an IPv6 address in brackets: "[::1]:9464".')
    return value


def _secret(value: SecretStr) -> SecretStr:
    """A token that a header can carry, and too long to guess."""
    text = value.get_secret_value()
    if text:
        check_token(text)
    return value


def check_token(text: str) -> None:
    """Refuse a token that is too short, or that a header can't carry.

    Raises:
        ValueError: what to write instead; the token itself is not in it.
    """
    if len(text) < _MIN_TOKEN or not (text.isascii() and text.isprintable() and " " not in text):
        raise ValueError(
            f"Use at least {_MIN_TOKEN} letters, digits and signs of ASCII without spaces, such as "
            "`openssl rand -hex 24` gives."
        )


def _host_name(value: str) -> str:
    name = value.lower().rstrip(".")
    if not re.fullmatch(r"[a-z0-9_]([a-z0-9_.-]{0,252})", name):
        raise ValueError('List names of hosts, without scheme or port: ["groupflow.example.com"].')
    return name


def _plain_text(value: object) -> object:
    """A rule's name: text or a whole number, compared as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("Leave out control characters.")
    return value


def _tenants(value: object) -> tuple[str, ...]:
    if value == "*":
        return ("*",)
    if isinstance(value, set | frozenset | tuple):
        value = list(value)
    if not isinstance(value, list) or not value:
        raise ValueError('Write "*" for all tenants, or a list of them: [42, "acme"].')
    tenants = []
    for tenant in value:
        if isinstance(tenant, bool) or not isinstance(tenant, int | str) or tenant == "":
            raise ValueError('List tenants as whole numbers or as text: [42, "acme"].')
        tenants.append(str(tenant))
    if "*" in tenants and tenants != ["*"]:
        raise ValueError('Write tenants = "*" alone, or list the tenants without "*".')
    return tuple(tenants)


def _command(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value or not value[0] or any("\0" in word for word in value):
        raise ValueError('List the command and its arguments: ["./import-orders", "--fast"].')
    return HandlerCommand(value)


_one_api = _url_check("http", "https", server=False)


def _api(url: SecretUrl) -> SecretUrl:
    return _one_api(url) if url.get_secret_value() else url


def _display_command(value: tuple[str, ...]) -> tuple[str, ...]:
    return HandlerCommand(value).display()


AmqpUrl = Annotated[
    SecretUrl,
    BeforeValidator(_joined, json_schema_input_type=str | list[str]),
    AfterValidator(_rabbitmq_nodes),
]
RedisUrl = Annotated[SecretUrl, AfterValidator(_many_nodes)]
ApiUrl = Annotated[SecretUrl, AfterValidator(_api)]
HttpUrl = Annotated[HandlerUrl, AfterValidator(_url_check("http", "https", server=False))]
Whole = Annotated[int, BeforeValidator(no_bool)]
Seconds = Annotated[float, BeforeValidator(no_bool), Field(allow_inf_nan=False)]
RetryInterval = Annotated[Seconds, AfterValidator(_not_zero)]
DottedPath = Annotated[str, AfterValidator(_field_path)]
KeyTemplate = Annotated[str, AfterValidator(_template)]
RateText = Annotated[str, AfterValidator(_rate)]
Listen = Annotated[str, AfterValidator(_listen)]
Printable = Annotated[str, AfterValidator(_printable)]
FileName = Printable
TaskType = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_printable)]
Secret = Annotated[SecretStr, AfterValidator(_secret)]
TokenName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
HostNames = tuple[Annotated[str, AfterValidator(_host_name)], ...]
AppName = Annotated[
    str, BeforeValidator(_plain_text), Field(min_length=1), AfterValidator(_printable)
]
Name = Annotated[str, Field(max_length=_MAX_NAME), AfterValidator(_printable)]
TenantNames = Annotated[tuple[str, ...], BeforeValidator(_tenants)]
Command = Annotated[
    tuple[str, ...], AfterValidator(_command), PlainSerializer(_display_command, return_type=tuple)
]


class Section(BaseModel):
    """One table of the file: frozen, and unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


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
            if not Path(path).is_file():
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
