"""Where a message goes, from the configuration alone: plain, or grouped under which key.

Pure: no I/O, no clock. A message that can't be routed raises `Unroutable`, whose reason is what its
dead letter will say; nothing else is ever raised, whatever the bytes are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import orjson

from groupflow.core.errors import Unroutable
from groupflow.core.json_size import has_over
from groupflow.core.scope import scope_of
from groupflow.core.template import MISSING, FieldPath, Template, require_text, show

if TYPE_CHECKING:
    from groupflow.settings.model import Settings
    from groupflow.settings.rules import GroupRule

MAX_TEXT_BYTES = 255
MAX_SECONDS = 31_536_000.0
_WRAPPED_NEGATIVE = 2**63
_EVERYONE = frozenset({"*"})


@dataclass(frozen=True, slots=True)
class Message:
    """What routing needs of a delivery.

    Attributes:
        body: the bytes as published.
        headers: the AMQP headers.
        type: the AMQP ``type`` property.
        priority: the AMQP ``priority`` property, read as seconds; 0 is the same as none.
    """

    body: bytes
    headers: Mapping[str, Any] = field(default_factory=dict)
    type: str | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """Where a message goes.

    Attributes:
        type: the task type, which names the handler.
        app: the application as text, ``None`` where the message names none.
        tenant: the tenant as text, ``None`` where the message names none.
        group: the group key; ``None`` for the plain queue.
        rule: the name of the rule that matched; ``None`` for the plain queue.
        scope: whose its message id is: of this application and tenant.
        priority: seconds by which the task counts as older than it is.
        delay: seconds before which it may not run.
    """

    type: str
    app: str | None
    tenant: str | None
    group: str | None
    rule: str | None
    scope: str
    priority: float
    delay: float


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule, compiled."""

    name: str
    tenants: frozenset[str] | None
    template: Template
    priority: float


class Router:
    """Routes messages by the rules of one configuration; the first match wins."""

    def __init__(self, settings: Settings) -> None:
        """Compile the rules; `Settings` has checked their templates and paths already."""
        fields = settings.fields
        self._max_values = settings.rabbitmq.max_values
        self._app = _path(fields.app)
        self._tenant = _path(fields.tenant)
        self._type = _path(fields.type)
        self._priority = _path(fields.priority)
        self._delay = _path(fields.delay)
        rules = [(rule.app, _compile(rule)) for rule in settings.groups]
        # Indexed by app, so that a message walks past no other application's rules.
        self._by_app: dict[str, tuple[_Rule, ...]] = {
            name: tuple(rule for app, rule in rules if app in ("*", name))
            for name in {app for app, _ in rules if app != "*"}
        }
        self._for_any_app = tuple(rule for app, rule in rules if app == "*")

    def route(self, message: Message) -> Route:
        """Decide where one message goes.

        Raises:
            Unroutable: it can't become a task; the reason names the field and what it was.
        """
        body: dict[str, Any] = {}
        try:
            body = parse_body(message.body, self._max_values)
            return self._route(message, body)
        except Unroutable as refusal:
            refusal.scope = self.scope_in(message.headers, body)
            raise

    def scope_in(
        self, headers: Mapping[str, Any], body: Mapping[str, Any] = MappingProxyType({})
    ) -> str:
        """Whose the id of a message is, by what can be read of its application and tenant."""
        owners: list[str | None] = []
        for path in (self._app, self._tenant):
            owner = None
            with suppress(Unroutable):
                owner = _optional_text(path, body, headers)
            owners.append(owner)
        return scope_of(*owners)

    def _route(self, message: Message, body: dict[str, Any]) -> Route:
        headers = message.headers
        task_type = self._find_type(message, body)
        app = _optional_text(self._app, body, headers)
        tenant = _optional_text(self._tenant, body, headers)
        rule = self._match(app, tenant)
        group = rule.template.render(body, headers, rule.name) if rule else None
        return Route(
            type=task_type,
            app=app,
            tenant=tenant,
            group=group,
            rule=rule.name if rule else None,
            scope=scope_of(app, tenant),
            priority=self._find_priority(message, body, rule),
            delay=self._find_delay(body, headers),
        )

    def _match(self, app: str | None, tenant: str | None) -> _Rule | None:
        """The first rule for this application and tenant."""
        rules = self._for_any_app if app is None else self._by_app.get(app, self._for_any_app)
        for rule in rules:
            if rule.tenants is None:
                return rule
            if tenant is None:
                # To run it in parallel instead would be the one thing its rule is there to prevent.
                raise Unroutable(
                    f"no tenant: {self._tenant or '[fields].tenant'} is missing or empty, and rule "
                    f"{rule.name!r} lists tenants"
                )
            if tenant in rule.tenants:
                return rule
        return None

    def _find_type(self, message: Message, body: dict[str, Any]) -> str:
        if message.type:
            value: Any = message.type
            what = "the AMQP type"
        else:
            value = self._type.find(body, message.headers) if self._type else MISSING
            what = f"the type field {self._type}"
            if value is MISSING:
                where = f" and {self._type} is missing or empty" if self._type else ""
                raise Unroutable(f"no type: the AMQP type is not set{where}")
            if not isinstance(value, str):
                raise Unroutable(f"{what} is {show(value)}: text is needed")
        return _short_text(value, what)

    def _find_priority(self, message: Message, body: dict[str, Any], rule: _Rule | None) -> float:
        header = message.headers.get("x-priority")
        if header is not None:
            return _seconds(header, "the header x-priority", from_header=True)
        if self._priority:
            value = self._priority.find(body, message.headers)
            if value is not MISSING:
                what = f"the priority field {self._priority}"
                return _seconds(value, what, from_header=self._priority.in_headers)
        if message.priority:
            return _seconds(message.priority, "the AMQP priority")
        return rule.priority if rule else 0.0

    def _find_delay(self, body: dict[str, Any], headers: Mapping[str, Any]) -> float:
        header = headers.get("x-delay")
        if header is not None:
            return _delay_header(header)
        if self._delay:
            value = self._delay.find(body, headers)
            if value is not MISSING:
                what = f"the delay field {self._delay}"
                delay = _seconds(value, what, from_header=self._delay.in_headers)
                if delay < 0:
                    raise Unroutable(f"{what} is {show(value)}: a delay can't be below 0")
                return delay
        return 0.0


def parse_body(body: bytes, max_values: int | None = None) -> dict[str, Any]:
    """Parse a body that must be a JSON object.

    Args:
        body: the bytes.
        max_values: how many values it may have; they are counted before any is made.

    Raises:
        Unroutable: it is empty, not UTF-8, not JSON, nested too deep, not an object, or has too
            many values.
    """
    if not body:
        raise Unroutable("empty body")
    if max_values is not None and has_over(body, max_values):
        raise Unroutable(f"the body has more JSON values than rabbitmq.max_values = {max_values}")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Unroutable(_not_json(body, error)) from None
    except RecursionError:
        raise Unroutable("not JSON that can be read: nested too deep") from None
    if not isinstance(value, dict):
        raise Unroutable(f"the body is not a JSON object but {_shape(value)}")
    return value


def _not_json(body: bytes, error: orjson.JSONDecodeError) -> str:
    """Why a body can't be parsed, with the position; orjson gives none for bad UTF-8."""
    try:
        body.decode()
    except UnicodeDecodeError as wrong:
        return f"not UTF-8: byte 0x{body[wrong.start]:02x} at {wrong.start} ({wrong.reason})"
    return f"not JSON: {error}"


def _shape(value: object) -> str:
    return f"a list of {len(value)}" if isinstance(value, list) else show(value)


def _path(text: str) -> FieldPath | None:
    return FieldPath.parse(text) if text else None


def _compile(rule: GroupRule) -> _Rule:
    tenants = frozenset(rule.tenants)
    return _Rule(
        name=rule.name,
        tenants=None if tenants == _EVERYONE else tenants,
        template=Template.parse(rule.key),
        priority=rule.priority,
    )


def _optional_text(
    path: FieldPath | None, body: Mapping[str, Any], headers: Mapping[str, Any]
) -> str | None:
    if path is None:
        return None
    value = path.find(body, headers)
    return None if value is MISSING else _short_text(value, f"the field {path}")


def _short_text(value: object, what: str) -> str:
    text = require_text(value, what)
    if len(text) * 4 > MAX_TEXT_BYTES and len(text.encode()) > MAX_TEXT_BYTES:
        raise Unroutable(f"{what} is over {MAX_TEXT_BYTES} bytes: {show(text)}")
    return text


def _number(value: object, what: str, *, from_header: bool = False) -> float:
    """A number, finite; headers may carry it as text, since some clients send nothing else.

    Raises:
        Unroutable: it is none.
    """
    if from_header and isinstance(value, str | bytes):
        with suppress(ValueError):
            value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise Unroutable(f"{what} is {show(value)}: a number is needed")
    try:
        number = float(value)
    except (OverflowError, ValueError):
        number = math.inf
    if not math.isfinite(number):
        raise Unroutable(f"{what} is {show(value)}: a finite number is needed")
    return number


def _seconds(value: object, what: str, *, from_header: bool = False) -> float:
    """A number of seconds within a year, either way."""
    number = _number(value, what, from_header=from_header)
    if abs(number) > MAX_SECONDS:
        raise Unroutable(f"{what} is {show(value)}: it can't be over a year (31536000 s)")
    return number


def _delay_header(value: object) -> float:
    """`x-delay` in seconds; it counts milliseconds, as for RabbitMQ's delayed exchange.

    That exchange negates the header once it has waited, and some clients read the negative number
    as an unsigned one: either means that the delay is over.
    """
    milliseconds = _number(value, "the header x-delay", from_header=True)
    if milliseconds < 0 or milliseconds >= _WRAPPED_NEGATIVE:
        return 0.0
    if milliseconds > MAX_SECONDS * 1000:
        raise Unroutable(
            f"the header x-delay is {show(value)} ms: it can't be over a year (31536000000 ms)"
        )
    return milliseconds / 1000
