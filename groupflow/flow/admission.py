"""route: what a delivery becomes on its way into the store: a task, or a dead letter with a reason.

Pure, and it never raises: whatever a stranger sends, the batch around it goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from groupflow.broker.consumer import Delivery
from groupflow.core.errors import Unroutable
from groupflow.core.octets import apart, as_text
from groupflow.core.routing import Message, Router
from groupflow.core.template import has_controls
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope

HEAD_BYTES = 4096  # of a body over the limit that its dead letter keeps
HEADER_DEPTH = 16  # of nested tables in AMQP headers; what lies deeper is left out
SHOWN_CHARS = 80  # of a stranger's text in a reason


class Admission:
    """Turns deliveries into arrivals."""

    def __init__(self, router: Router, *, max_body: int, step_aside: frozenset[str]) -> None:
        """Binds the rules.

        Args:
            router: the routing of the loaded configuration.
            max_body: bytes; a larger body becomes a dead letter of its size and head.
            step_aside: names of the rules whose groups go on while a delayed task waits.
        """
        self._router = router
        self._max_body = max_body
        self._step_aside = step_aside

    def admit(self, delivery: Delivery) -> Arrival:
        """What this delivery becomes."""
        headers = json_headers(delivery.headers)
        body = delivery.body
        id_ = delivery.message_id or uuid4().hex
        try:
            if has_controls(id_):
                shown = ascii(id_[:SHOWN_CHARS])
                id_ = uuid4().hex
                raise Unroutable(f"the message id {shown} has control characters")
            if len(body) > self._max_body:
                size, body = len(body), body[:HEAD_BYTES]
                raise Unroutable(
                    f"the body has {size} bytes, over rabbitmq.max_body = {self._max_body}; "
                    f"its first {HEAD_BYTES} are kept"
                )
            route = self._router.route(
                Message(body=body, headers=headers, type=delivery.type, priority=delivery.priority)
            )
        except Unroutable as refusal:
            type_ = delivery.type if delivery.type and not has_controls(delivery.type) else ""
            return Arrival(
                id_, Envelope(type_, None, None, None, headers, body), dead=refusal.reason
            )
        return Arrival(
            id=id_,
            envelope=Envelope(route.type, route.group, route.tenant, route.rule, headers, body),
            priority=route.priority,
            delay=route.delay,
            steps_aside=route.rule in self._step_aside,
        )


def json_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """AMQP headers as JSON can carry them: text for bytes, ISO dates, text for the rest.

    Different headers stay different: bytes that aren't UTF-8 are told in hex (`as_text`).
    """
    return {name: _json_value(value, HEADER_DEPTH) for name, value in headers.items()}


def _json_value(value: Any, depth: int) -> Any:  # noqa: PLR0911  one a kind
    match value:
        case None | bool() | float():
            return value
        case str():
            return apart(value)
        case int():
            return value if -(2**63) <= value < 2**64 else str(value)
        case bytes() | bytearray():
            return as_text(bytes(value))
        case dict() | list() | tuple() if depth == 0:
            return "(nested too deep)"
        case dict():
            return {str(name): _json_value(each, depth - 1) for name, each in value.items()}
        case list() | tuple():
            return [_json_value(each, depth - 1) for each in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
