"""Where a message goes, from the configuration alone: plain, or grouped under which key.

Pure: no I/O, no clock. A message that can't be routed raises `Unroutable`, whose reason its dead
letter will have. No bytes make it raise anything else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final

import orjson

from groupflow.core.errors import Unroutable
from groupflow.core.json_text import has_over
from groupflow.core.template import MISSING, FieldPath, Template, require_text, show

MAX_TEXT_BYTES = 255
MAX_SECONDS = 31_536_000.0
UNKNOWN = ""  # scope of a message that names neither; all such messages of a queue share their ids
_WRAPPED_NEGATIVE = 2**63
SOONEST = 0.000001  # seconds within which a task may have to start: the grain of Redis's clock
_DIGEST = 4  # bytes of a scope. A collision matters only between two that share a message id too
CANCEL = "x-cancel"  # header: the message is no task, and cancels the one that has this id
NO_HEADERS: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Route:
    type: str  # the task type, which names the handler
    app: str | None  # the application as text, None where the message names none
    tenant: str | None  # the tenant as text, None where the message names none
    group: str | None  # the group key; None for the plain queue
    rule: str | None  # the name of the rule that matched; None for the plain queue
    scope: str  # whose its message id is: of this application and tenant
    priority: float  # seconds by which the task counts as older than it is
    delay: float  # seconds before which it may not run
    pool: str | None = None  # the pool whose workers pull it; None: daemons run it
    expires: float = 0.0  # seconds within which it has to start first, 0 for any time


@dataclass(frozen=True, slots=True)
class Paths:
    """Where routing finds its facts; ``None``: nowhere."""

    app: FieldPath | None
    tenant: FieldPath | None
    type: FieldPath | None
    priority: FieldPath | None
    delay: FieldPath | None


@dataclass(frozen=True, slots=True)
class Rule:
    """Which messages are grouped, and under which key."""

    name: str
    app: str  # "*": any
    tenants: frozenset[str] | None  # None: all
    template: Template
    priority: float  # seconds, where the message names none
    expires: float = 0.0  # seconds within which its tasks have to start, 0 for any time


class Router:
    """Routes messages by the rules of one configuration; the first match wins."""

    def __init__(
        self,
        paths: Paths,
        rules: Sequence[Rule],
        max_values: int,
        pools: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        """Binds the rules, in their order.

        A body that has more than `max_values` JSON values can't become a task. `pools` has the pool
        of a type, for those that have one.
        """
        self._pools = pools
        self._paths = paths
        self._max_values = max_values
        # Indexed by app, so that a message walks past no other application's rules.
        self._by_app: dict[str, tuple[Rule, ...]] = {
            name: tuple(rule for rule in rules if rule.app in ("*", name))
            for name in {rule.app for rule in rules if rule.app != "*"}
        }
        self._for_any_app = tuple(rule for rule in rules if rule.app == "*")

    def route(
        self,
        body: bytes,
        headers: Mapping[str, Any] = NO_HEADERS,
        *,
        type: str | None = None,
        priority: int | None = None,
        expiration: str | None = None,
    ) -> Route:
        """Decide where one message goes, by its body and AMQP properties.

        The ``priority`` property is read as seconds; 0 is the same as none. ``expiration`` counts
        milliseconds, as text.

        Raises:
            Unroutable: it can't become a task; the reason names the field and what it was.
        """
        facts: dict[str, Any] = {}
        try:
            facts = parse_body(body, self._max_values)
            if CANCEL in headers:
                raise Unroutable(f"it has the header {CANCEL}, and so is no task: drop it")
            task_type = self._find_type(facts, headers, type)
            app = _optional_text(self._paths.app, facts, headers)
            tenant = _optional_text(self._paths.tenant, facts, headers)
            rule = self._match(app, tenant)
            return Route(
                type=task_type,
                app=app,
                tenant=tenant,
                group=rule.template.render(facts, headers, rule.name) if rule else None,
                rule=rule.name if rule else None,
                scope=scope_of(app, tenant),
                priority=self._find_priority(facts, headers, priority, rule),
                delay=self._find_delay(facts, headers),
                pool=self._pools.get(task_type),
                expires=_find_expiry(headers, expiration, rule),
            )
        except Unroutable as refusal:
            refusal.scope = self.scope_in(headers, facts)
            raise

    def find_cancelled(self, body: bytes, headers: Mapping[str, Any]) -> tuple[str, str]:
        """Which task a message with the header `CANCEL` cancels: its id, and whose that is.

        Raises:
            Unroutable: the message doesn't say so.
        """
        facts: dict[str, Any] = {}
        try:
            facts = parse_body(body, self._max_values) if body else {}
            id_ = headers[CANCEL]
            if not isinstance(id_, str) or not id_:
                raise Unroutable(f"the header {CANCEL} is {show(id_)}: a task's id is needed")
            _short_text(id_, f"the header {CANCEL}")
            app = _optional_text(self._paths.app, facts, headers)
            tenant = _optional_text(self._paths.tenant, facts, headers)
        except Unroutable as refusal:
            refusal.scope = self.scope_in(headers, facts)
            raise
        return id_, scope_of(app, tenant)

    def scope_in(self, headers: Mapping[str, Any], body: Mapping[str, Any] = NO_HEADERS) -> str:
        """Whose the id of a message is, by what can be read of its application and tenant."""
        paths = self._paths
        return scope_of(
            *(_readable_text(each, body, headers) for each in (paths.app, paths.tenant))
        )

    def owner_of(self, body: Mapping[str, Any]) -> tuple[str | None, str]:
        """Whose a body is, by what can be read of it: its tenant, and the scope of its id."""
        tenant = _readable_text(self._paths.tenant, body, NO_HEADERS)
        return tenant, self.scope_in(NO_HEADERS, body)

    def application_of(self, body: bytes, headers: Mapping[str, Any]) -> str | None:
        """Which application a message names, as far as that can be read."""
        facts: Mapping[str, Any] = NO_HEADERS
        with suppress(Unroutable):
            facts = parse_body(body, self._max_values)
        return _readable_text(self._paths.app, facts, headers)

    @property
    def applications(self) -> list[str]:
        """Those that the rules name."""
        return [*self._by_app]

    def _match(self, app: str | None, tenant: str | None) -> Rule | None:
        """The first rule for this application and tenant."""
        rules = self._for_any_app if app is None else self._by_app.get(app, self._for_any_app)
        for rule in rules:
            if rule.tenants is None:
                return rule
            if tenant is None:
                # Its rule is there to prevent that it runs in parallel.
                where = self._paths.tenant or "[fields].tenant"
                raise Unroutable(
                    f"no tenant: {where} is missing or empty, and rule {rule.name!r} lists tenants"
                )
            if tenant in rule.tenants:
                return rule
        return None

    def _find_type(self, body: dict[str, Any], headers: Mapping[str, Any], type: str | None) -> str:
        if type:
            return _short_text(type, "the AMQP type")
        path = self._paths.type
        value = path.find(body, headers) if path else MISSING
        if value is MISSING:
            where = f" and {path} is missing or empty" if path else ""
            raise Unroutable(f"no type: the AMQP type is not set{where}")
        if not isinstance(value, str):
            raise Unroutable(f"the type field {path} is {show(value)}: text is needed")
        return _short_text(value, f"the type field {path}")

    def _find_priority(
        self,
        body: dict[str, Any],
        headers: Mapping[str, Any],
        property_: int | None,
        rule: Rule | None,
    ) -> float:
        header = headers.get("x-priority")
        if header is not None:
            return _seconds(header, "the header x-priority", from_header=True)
        named = _named_seconds("the priority field", self._paths.priority, body, headers)
        if named is not None:
            return named
        if property_:
            return _seconds(property_, "the AMQP priority")
        return rule.priority if rule else 0.0

    def _find_delay(self, body: dict[str, Any], headers: Mapping[str, Any]) -> float:
        header = headers.get("x-delay")
        if header is not None:
            return _delay_header(header)
        path = self._paths.delay
        delay = _named_seconds("the delay field", path, body, headers) or 0.0
        if path and delay < 0:
            shown = show(path.find(body, headers))
            raise Unroutable(f"the delay field {path} is {shown}: a delay can't be below 0")
        return delay


def parse_body(body: bytes, max_values: int | None = None) -> dict[str, Any]:
    """Parse a body that must be a JSON object.

    Values are counted before any is made.

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


def _optional_text(
    path: FieldPath | None, body: Mapping[str, Any], headers: Mapping[str, Any]
) -> str | None:
    if path is None:
        return None
    value = path.find(body, headers)
    return None if value is MISSING else _short_text(value, f"the field {path}")


def _readable_text(
    path: FieldPath | None, body: Mapping[str, Any], headers: Mapping[str, Any]
) -> str | None:
    """The same, and ``None`` where it isn't one that routing takes."""
    with suppress(Unroutable):
        return _optional_text(path, body, headers)
    return None


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


def _named_seconds(
    what: str, path: FieldPath | None, body: Mapping[str, Any], headers: Mapping[str, Any]
) -> float | None:
    """The seconds in a field; ``None`` where there are none."""
    value = path.find(body, headers) if path else MISSING
    if path is None or value is MISSING:
        return None
    return _seconds(value, f"{what} {path}", from_header=path.in_headers)


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


def _find_expiry(headers: Mapping[str, Any], expiration: str | None, rule: Rule | None) -> float:
    """The soonest of what the rule, the header and the property say, in seconds; 0 for none."""
    found = [rule.expires] if rule and rule.expires else []
    header = headers.get("x-expires")
    if header is not None:
        seconds = _seconds(header, "the header x-expires", from_header=True)
        if seconds < SOONEST:
            raise Unroutable(f"the header x-expires is {show(header)}: it has to be over 0 s")
        found.append(seconds)
    if expiration:
        milliseconds = _number(expiration, "the AMQP expiration", from_header=True)
        found.append(milliseconds / 1000)
    # An expiration of 0 is over at once, where 0 s would say that there is none.
    return max(SOONEST, min(*found, MAX_SECONDS)) if found else 0.0


@lru_cache(maxsize=4096)
def scope_of(app: str | None, tenant: str | None) -> str:
    """Whose a message id is: a short digest of an application and a tenant, in hexadecimal.

    Ids are known apart for each of them.
    """
    if app is None and tenant is None:
        return UNKNOWN
    digest = blake2b(digest_size=_DIGEST)
    for part in (app, tenant):
        text = b"" if part is None else part.encode(errors="surrogatepass")
        length = -1 if part is None else len(text)
        digest.update(length.to_bytes(4, "big", signed=True) + text)
    return digest.hexdigest()
