"""Traces of a real daemon's work, as an SDK's exporter gets them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from structlog.testing import capture_logs

from groupflow import App, Dead, Task
from groupflow.broker.publisher import Outgoing
from groupflow.core.errors import ConfigError
from groupflow.core.tracing import CARRIED
from groupflow.ops.traces import OtelTracing
from groupflow.ops.tracing import open_tracing
from groupflow.settings.model import Settings
from tests.deadlines import until
from tests.ops.daemons import publish, serving, settings_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """An SDK that keeps its spans, as the provider of this test alone."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
def settings(redis_server: Any, rabbitmq_server: Any, tmp_path: Path) -> Settings:
    show = f"import os; open({str(tmp_path / 'env')!r}, 'w').write(os.environ['TRACEPARENT'])"
    command = {"exec": [sys.executable, "-c", show]}
    traced = {"traces": {"enabled": True}, "handlers": {"command": command}}
    return settings_of(redis_server, rabbitmq_server, **traced)


async def spans(exporter: InMemorySpanExporter, kind: SpanKind, number: int) -> list[ReadableSpan]:
    """Wait until so many spans of a kind have ended."""

    def found() -> list[ReadableSpan]:
        return [span for span in exporter.get_finished_spans() if span.kind == kind]

    await until(lambda: len(found()) >= number)
    return found()


def of_message(found: Sequence[ReadableSpan], id_: str) -> list[ReadableSpan]:
    return [span for span in found if facts(span).get("messaging.message.id") == id_]


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def identity(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


async def test_a_trace_goes_from_publish_to_handler(
    exporter: InMemorySpanExporter, settings: Settings, tmp_path: Path
) -> None:
    app, seen = App(), []

    @app.handler("async")
    async def runs(task: Task) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    @app.handler("thread")
    def blocks(task: Task) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)
        if task.attempt == 1:
            raise LookupError("a secret of the tenant")

    app.handler("dies")(lambda _: Dead("never"))

    async with serving(settings, app):
        ids = {"dies": "4", "async": "1", "thread": "2", "command": "3"}
        await publish(settings, *(Outgoing(b"{}", type_, id_) for type_, id_ in ids.items()))
        processed = await spans(exporter, SpanKind.CONSUMER, 5)
        enqueued = await spans(exporter, SpanKind.CLIENT, 1)
    published = await spans(exporter, SpanKind.PRODUCER, 4)
    queue = settings.rabbitmq.queue
    for id_, attempts in (("1", 1), ("2", 2), ("3", 1)):
        [origin] = of_message(published, id_)
        runs_of = of_message(processed, id_)
        assert len(runs_of) == attempts
        for number, span in enumerate(runs_of, 1):
            assert span.parent is not None
            assert (span.parent.trace_id, span.parent.span_id) == identity(origin)
            assert span.name == f"process {queue}"
            told = {
                "messaging.system": "rabbitmq", "messaging.operation.name": "process",
                "messaging.operation.type": "process", "messaging.destination.name": queue,
                "groupflow.task.attempt": number,
            }  # fmt: skip
            assert facts(span).items() >= told.items()
        kinds = [facts(origin)[f"messaging.operation.{each}"] for each in ("name", "type")]
        assert kinds == ["publish", "send"]
    [failed, done] = of_message(processed, "2")
    codes = [each.status.status_code for each in (failed, done)]
    assert codes == [StatusCode.ERROR, StatusCode.UNSET]
    outcomes = [facts(each)["groupflow.outcome"] for each in (failed, done)]
    assert (facts(failed)["error.type"], outcomes) == ("LookupError", ["retry", "complete"])
    [died] = of_message(processed, "4")
    assert (facts(died)["groupflow.outcome"], facts(died)["error.type"]) == ("bury", "Dead")
    assert "secret" not in "".join(span.to_json() for span in processed)
    own = {identity(span)[1] for id_ in ("1", "2") for span in of_message(processed, id_)}
    assert set(seen) == own
    [command] = of_message(processed, "3")
    trace_id, span_id = identity(command)
    assert (tmp_path / "env").read_text()[:53] == f"00-{trace_id:032x}-{span_id:016x}-"
    linked = {(link.context.trace_id, link.context.span_id) for e in enqueued for link in e.links}
    assert linked == {identity(span) for span in published}
    assert sum(facts(span)["messaging.batch.message_count"] for span in enqueued) == 4


HOSTILE: list[Any] = [
    *(7, [1], {"a": [None]}, None, "0" * 20_000, f"00-{'0' * 32}-{SPAN}-01"),
    *(PARENT + "\n", "ff" + PARENT[2:], PARENT + "-extra", PARENT.upper()),
]


PARENTS: list[Any] = [
    (PARENT, "vendor=1", "vendor=1"),
    (PARENT, "a=1\r\nX-Evil: 1", None),
    *((value, value, None) for value in HOSTILE),
]


@pytest.mark.parametrize(("parent", "state", "carried_on"), PARENTS)
def test_a_publisher_s_own_headers_are_followed_where_they_are_well_formed(
    exporter: InMemorySpanExporter, parent: Any, state: Any, carried_on: str | None
) -> None:
    task = Task("1", "t", headers={"traceparent": parent, "tracestate": state})
    with OtelTracing("q").processing(task):
        carried = dict(CARRIED.get())
    [span] = exporter.get_finished_spans()
    is_followed = parent is PARENT
    assert carried["traceparent"].startswith(f"00-{TRACE}-") is is_followed
    assert (span.parent is not None) is is_followed
    if span.parent:
        assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, SPAN)
    assert carried.get("tracestate") == carried_on


def test_a_cut_attempt_ends_its_span(exporter: InMemorySpanExporter) -> None:
    def cut() -> None:
        with OtelTracing("q").processing(Task("1", "t")):
            assert CARRIED.get()
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        cut()
    assert not CARRIED.get()
    assert [span.name for span in exporter.get_finished_spans()] == ["process q"]


def test_what_is_missing_is_said(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    off = settings.traces.model_copy(update={"enabled": False})
    assert open_tracing(settings.model_copy(update={"traces": off})) is None
    with capture_logs() as logs:
        assert open_tracing(settings) is not None
    assert [entry["event"] for entry in logs] == ["traces.nowhere"]
    monkeypatch.setitem(sys.modules, "groupflow.ops.traces", None)
    with pytest.raises(ConfigError, match=r"traces\.enabled.*groupflow\[traces\]"):
        open_tracing(settings)
