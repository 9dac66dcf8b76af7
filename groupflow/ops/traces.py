"""Traces: OpenTelemetry's spans for publish, enqueue and process, by its messaging conventions.

Only the API is used. Exporters and sampling are set up outside, with ``opentelemetry-instrument``
or by the application: see docs/tracing.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from groupflow.core.task import Task
from groupflow.core.tracing import CARRIED

log = structlog.get_logger("groupflow.traces")

LINKS = 128  # of a batch to its messages; an SDK keeps no more by default
SHOWN_CHARS = 256  # of a stranger's text in an attribute

# Strangers' headers are taken only in the form of W3C Trace Context.
_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_MEMBER = r"[a-z0-9][a-z0-9_\-*/@]{0,240}=[\x21-\x2b\x2d-\x3c\x3e-\x7e]{1,256}"
_STATE = re.compile(rf"{_MEMBER}(?:,{_MEMBER}){{0,31}}")
_STATE_CHARS = 512

_W3C = TraceContextTextMapPropagator()


class OtelTracing:
    """Spans of one queue's messages."""

    def __init__(self, queue: str) -> None:
        """Binds the queue that spans name; warns that they go nowhere without a tracer provider."""
        self._queue = queue
        self._tracer = trace.get_tracer("groupflow", version("groupflow"))
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            log.warning(
                "traces.nowhere",
                remedy="Run under opentelemetry-instrument, or let --app set a tracer provider.",
            )

    @contextmanager
    def publishing(self, message_id: str, size: int) -> Iterator[Mapping[str, str]]:
        """A PRODUCER span, and the headers that carry its context."""
        facts = {"messaging.message.id": _cut(message_id), "messaging.message.body.size": size}
        span = self._span("publish", "send", SpanKind.PRODUCER, None, facts)
        with span as publishing, _error_named(publishing):
            yield _carried()

    @contextmanager
    def enqueueing(self, headers: Sequence[Mapping[str, Any]]) -> Iterator[None]:
        """A CLIENT span of a batch, linked to the spans that published its messages."""
        links: list[Link] = []
        for each in headers:
            publisher = trace.get_current_span(_context_in(each)).get_span_context()
            if publisher.is_valid and len(links) < LINKS:
                links.append(Link(publisher))
        facts = {"messaging.batch.message_count": len(headers)}
        span = self._span("enqueue", "receive", SpanKind.CLIENT, Context(), facts, links)
        with span as enqueueing, _error_named(enqueueing):
            yield

    @contextmanager
    def processing(self, task: Task) -> Iterator[_Attempt]:
        """A CONSUMER span of an attempt, the child of the span that published the message."""
        facts: dict[str, Any] = {
            "messaging.message.id": _cut(task.id),
            "messaging.message.body.size": len(task.body),
            "groupflow.task.type": _cut(task.type),
            "groupflow.task.attempt": task.attempt,
            "groupflow.task.crashes": task.crashes,
        }
        if task.group is not None:
            facts["groupflow.group"] = _cut(task.group)
        if task.stage is not None:
            facts["groupflow.task.stage"] = _cut(task.stage)
        context = _context_in(task.headers)
        with self._span("process", "process", SpanKind.CONSUMER, context, facts) as span:
            token = CARRIED.set(_carried())
            try:
                yield _Attempt(span)
            finally:
                CARRIED.reset(token)

    @contextmanager
    def _span(  # noqa: PLR0917  private
        self,
        name: str,
        kind_of_operation: str,
        kind: SpanKind,
        context: Context | None,
        facts: Mapping[str, Any],
        links: Sequence[Link] = (),
    ) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            f"{name} {self._queue}",
            context=context,
            kind=kind,
            attributes={
                "messaging.system": "rabbitmq",
                "messaging.operation.name": name,
                "messaging.operation.type": kind_of_operation,
                "messaging.destination.name": self._queue,
                **facts,
            },
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield span


class _Attempt:
    def __init__(self, span: Span) -> None:
        self._span = span

    def ended(self, outcome: str, error: str = "") -> None:
        self._span.set_attribute("groupflow.outcome", outcome)
        if error:
            _fail(self._span, error)


@contextmanager
def _error_named(span: Span) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        _fail(span, type(error).__name__)
        raise


def _fail(span: Span, error: str) -> None:
    span.set_attribute("error.type", _cut(error))
    span.set_status(Status(StatusCode.ERROR))


def _carried() -> Mapping[str, str]:
    """The current span as headers."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return carrier


def _context_in(headers: Mapping[str, Any]) -> Context:
    """The publisher's context in a message's headers; an empty one where they have no valid one."""
    parent, state = headers.get("traceparent"), headers.get("tracestate")
    if not isinstance(parent, str) or not _PARENT.fullmatch(parent):
        return Context()
    carrier = {"traceparent": parent}
    if isinstance(state, str) and len(state) <= _STATE_CHARS and _STATE.fullmatch(state):
        carrier["tracestate"] = state
    return _W3C.extract(carrier, Context())


def _cut(text: str) -> str:
    """A stranger's text as an exporter can encode it, capped."""
    return text[:SHOWN_CHARS].encode(errors="backslashreplace").decode()
