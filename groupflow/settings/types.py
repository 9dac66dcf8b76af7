"""What settings are made of: numbers that are numbers, texts of a form, rules' lists, sections."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
)

from groupflow.core.limits import Rate, check_pattern
from groupflow.core.masking import mask_command
from groupflow.core.template import FieldPath, Template

YEAR = 31_536_000.0
"""Seconds; the longest delay, and the most that a priority may weigh."""

MOST_EXCHANGE = 127  # characters of an exchange's name, as AMQP has it

_MAX_PORT = 65535
_MAX_NAME = 128
_MIN_TOKEN = 16  # characters


class HandlerCommand(tuple[str, ...]):
    """A handler's command, of which only the name is shown: arguments may be passwords."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(_shown_command(self))


def no_bool(value: object) -> object:
    """Refuse true and false, which pydantic would quietly read as 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("Write a number.")  # noqa: TRY004  pydantic reads this one
    return value


def _fits(value: int) -> int:
    if abs(value) >= 1 << 63:
        raise ValueError("Set it to a whole number within 64 bits.")  # as JSON has them
    return value


def _broker_name(value: str) -> str:
    # All that the client library takes: it would fail at each connection, and daemons try again.
    if not re.fullmatch(r"[a-zA-Z0-9\-_.:@#,/+ ]*", value):
        raise ValueError("Use letters from A to Z, digits, blanks and - _ . : @ # , / + alone.")
    return value


def _not_zero(value: float) -> float:
    if value == 0:
        raise ValueError(
            "Choose a number of seconds other than 0: below 0 retries are evenly spaced, above 0 "
            "they come after 1, 2, 4 … seconds up to it."
        )
    return value


def refused_by(check: Callable[[Any], object]) -> AfterValidator:
    """Refuse a value for which a function raises `ValueError`, with its words."""

    def validate(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(validate)


def refuse_twins(rules: Sequence[Any], what: str) -> None:
    """Refuse rules of one name.

    Raises:
        ValueError: two have it.
    """
    for name, count in Counter(rule.name for rule in rules).items():
        if count > 1:
            raise ValueError(f"Two {what} have the name {name!r}; give one another name.")


def _listen(value: str) -> str:
    if not value:
        return value
    host, colon, port = value.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= _MAX_PORT):
        raise ValueError('Write "address:port", such as "127.0.0.1:9464"; port 0 takes a free one.')
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError('Put an IPv6 address in brackets: "[::1]:9464".')
    return value


def _token(value: SecretStr) -> SecretStr:
    if text := value.get_secret_value():
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


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("Leave out control characters.")
    return value


def _tenants(value: Any) -> tuple[str, ...]:
    if value == "*":
        return ("*",)
    if not isinstance(value, list | tuple | set | frozenset) or not value:
        raise ValueError('Write "*" for all tenants, or a list of them: [42, "acme"].')
    for tenant in value:
        if isinstance(tenant, bool) or not isinstance(tenant, int | str) or tenant == "":
            raise ValueError('List tenants as whole numbers or as text: [42, "acme"].')
    if "*" in value and len(value) > 1:
        raise ValueError('Write tenants = "*" alone, or list the tenants without "*".')
    return tuple(map(str, value))


def _command(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value or not value[0] or any("\0" in word for word in value):
        raise ValueError('List the command and its arguments: ["./import-orders", "--fast"].')
    return HandlerCommand(value)


def _shown_command(value: tuple[str, ...]) -> tuple[str, ...]:
    return (mask_command(value),)


Whole = Annotated[int, BeforeValidator(no_bool), AfterValidator(_fits)]
Seconds = Annotated[float, BeforeValidator(no_bool), Field(allow_inf_nan=False)]
RetryInterval = Annotated[Seconds, AfterValidator(_not_zero)]
DottedPath = Annotated[str, refused_by(lambda text: text and FieldPath.parse(text))]
KeyTemplate = Annotated[str, refused_by(Template.parse)]
RateText = Annotated[str, refused_by(Rate.parse)]
Listen = Annotated[str, AfterValidator(_listen)]
Printable = Annotated[str, AfterValidator(_printable)]
FileName = Printable
TaskType = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_printable)]
TypePattern = Annotated[TaskType, refused_by(check_pattern)]
MaybeTaskType = Annotated[str, Field(max_length=255), AfterValidator(_printable)]
Token = Annotated[SecretStr, AfterValidator(_token)]
TokenName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
PlainName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
BrokerName = Annotated[str, AfterValidator(_broker_name)]
HostNames = tuple[Annotated[str, AfterValidator(_host_name)], ...]
AppName = Annotated[
    str, Field(min_length=1, coerce_numbers_to_str=True), AfterValidator(_printable)
]
Name = Annotated[str, Field(max_length=_MAX_NAME), AfterValidator(_printable)]
TenantNames = Annotated[tuple[str, ...], BeforeValidator(_tenants)]
Command = Annotated[
    tuple[str, ...], AfterValidator(_command), PlainSerializer(_shown_command, return_type=tuple)
]


class Section(BaseModel):
    """One table of the file: frozen, and unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
