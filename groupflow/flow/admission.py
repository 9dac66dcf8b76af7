"""route: turns each delivery into a task, or into a dead letter with a reason.

Pure. It never raises, so that no message stops the batch around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Self
from uuid import uuid4

from groupflow.broker.consumer import Delivery
from groupflow.core.errors import Unroutable
from groupflow.core.headers import MAX_HEADERS, headers_over, json_headers
from groupflow.core.limits import Debounce
from groupflow.core.routing import CANCEL, Router
from groupflow.core.template import has_controls
from groupflow.settings.model import Settings
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope

HEAD_BYTES = 4096  # that a dead letter keeps of a body over the limit, and of headers
HEADER_CHARS = 256  # longest text that is kept of headers over the limit
SHOWN_CHARS = 80  # of a message's own text in a reason
_NONE: Final[Mapping[str, Debounce]] = MappingProxyType({})
_UNBOUNDED: Final[Mapping[str, int]] = MappingProxyType({})


class Admission:
    """Turns deliveries into arrivals."""

    def __init__(
        self,
        router: Router,
        *,
        max_body: int,
        max_headers: int = MAX_HEADERS,
        step_aside: frozenset[str],
        debounces: Mapping[str, Debounce] = _NONE,
        max_queued: Mapping[str, int] = _UNBOUNDED,
        tells: bool = False,
        may_answer: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Binds a configuration's rules.

        `step_aside` names the rules whose groups go on during a delay; `debounces` has the rules
        that debounce, and `max_queued` those that bound how many tasks wait in a group. A message
        over a limit (bytes) becomes a dead letter with the body's head, or with short headers.
        `tells` says whether all are told of ends, and `may_answer` whether a queue may be.
        """
        self._router = router
        self._max_body = max_body
        self._max_headers = max_headers
        self._step_aside = step_aside
        self._debounces = debounces
        self._max_queued = max_queued
        self._tells = tells
        self._may_answer = may_answer

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """By the rules and limits of a configuration."""
        return cls(
            settings.router(),
            max_body=settings.rabbitmq.max_body,
            max_headers=settings.rabbitmq.max_headers,
            step_aside=frozenset(r.name for r in settings.groups if r.on_delay == "step-aside"),
            debounces=settings.debounces(),
            max_queued=settings.max_queued(),
            tells=bool(settings.events.told),
            may_answer=partial(settings.events.may_answer, own=settings.rabbitmq.queue),
        )

    def admit(self, delivery: Delivery) -> Arrival:
        """Turn a delivery into an arrival."""
        id_ = delivery.message_id or uuid4().hex
        body, headers = delivery.body, delivery.headers
        reasons = []
        if has_controls(id_):
            reasons.append(f"the message id {id_[:SHOWN_CHARS]!a} has control characters")
            id_ = uuid4().hex
        if len(body) > self._max_body:
            reasons.append(
                f"the body has {len(body)} bytes, over rabbitmq.max_body = {self._max_body}; "
                f"its first {HEAD_BYTES} are kept"
            )
            body = body[:HEAD_BYTES]
        size, values, is_cut = delivery.header_bytes, delivery.header_values, delivery.headers_cut
        if over := headers_over(size, values, is_cut=is_cut, most=self._max_headers):
            reasons.append(f"{over}; only some short ones are kept")
            headers = _short_headers(headers)
        shown = json_headers(headers)
        try:
            if reasons:
                raise self._refusal("; ".join(reasons), shown)
            if CANCEL in shown:
                cancels, scope = self._router.find_cancelled(body, shown)
                envelope = Envelope("", None, None, None, {}, b"", scope)
                return Arrival(id_, envelope, cancels=cancels)
            route = self._router.route(
                body,
                shown,
                type=delivery.type,
                priority=delivery.priority,
                expiration=delivery.expiration,
            )
        except Unroutable as refusal:
            type_ = delivery.type if delivery.type and not has_controls(delivery.type) else ""
            origin = self._origin_of(delivery, None)
            scope = refusal.scope
            envelope = Envelope(type_, None, None, None, shown, body, scope, None, origin)
            return Arrival(id_, envelope, dead=refusal.reason)
        return Arrival(
            id=id_,
            envelope=Envelope.of(route, shown, body, self._origin_of(delivery, route.app)),
            priority=route.priority,
            delay=route.delay,
            steps_aside=route.rule in self._step_aside,
            debounce=self._debounces.get(route.rule or ""),
            max_queued=self._max_queued.get(route.rule or "", 0),
            expires=route.expires,
        )

    def _origin_of(self, delivery: Delivery, app: str | None) -> Mapping[str, str] | None:
        """What the end of a task is told with, as far as it is told."""
        queue = delivery.reply_to
        is_answered = queue is not None and not has_controls(queue) and self._may_answer(queue)
        if not (self._tells or is_answered):
            return None
        known = {
            "app": app,
            "correlation_id": _text_of(delivery.correlation_id),
            "reply_to": queue if is_answered else None,
        }
        return {name: text for name, text in known.items() if text} or None

    def _refusal(self, reason: str, headers: Mapping[str, Any]) -> Unroutable:
        """The refusal of a message whose body isn't read."""
        refusal = Unroutable(reason)
        refusal.scope = self._router.scope_in(headers)
        return refusal


def _text_of(text: str | None) -> str | None:
    return None if text is None or has_controls(text) else text


def _short_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """The first headers that are no tables, lists or long texts."""
    kept: dict[str, Any] = {}
    left = HEAD_BYTES
    for name, value in headers.items():
        is_text = isinstance(value, str | bytes | bytearray)
        if isinstance(value, dict | list | tuple) or (is_text and len(value) > HEADER_CHARS):
            continue
        left -= len(name) + (len(value) if is_text else 8)
        if left < 0:
            break
        kept[name] = value
    return kept
