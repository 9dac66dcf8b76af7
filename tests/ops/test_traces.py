"""Traces and metrics of a real daemon's work, as exporters and a collector get them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from groupflow import App, Dead, Done, Message, Task
from groupflow.broker.publisher import Outgoing
from groupflow.core.errors import ConfigError
from groupflow.core.tracing import CARRIED
from groupflow.operate.namespace import Namespace
from groupflow.ops.metrics import StoreMetrics
from groupflow.ops.otlp import INTERVAL
from groupflow.ops.traces import OtelTracing
from groupflow.ops.tracing import ENDPOINTS, open_push, open_tracing
from groupflow.settings.model import Settings
from tests.broker.wires import connected
from tests.deadlines import deadline, until
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


async def test_an_event_and_a_follow_up_task_name_the_attempt_they_come_of(
    exporter: InMemorySpanExporter, settings: Settings
) -> None:
    app, told = App(), f"{settings.rabbitmq.queue}.told"
    app.handler("first")(lambda _: Done(then=[Message({}, type="second")]))
    app.handler("second")(lambda _: None)
    events = settings.events.model_copy(update={"exchange": told})
    async with connected(settings.rabbitmq_url()) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await channel.declare_exchange(told, "topic", durable=True)
        await queue.bind(told, "done.#")
        async with serving(settings.model_copy(update={"events": events}), app):
            await publish(settings, Outgoing(b"{}", "first", "1"))
            processed = await spans(exporter, SpanKind.CONSUMER, 2)
            heard: dict[Any, Any] = {}
            async with queue.iterator(no_ack=True, timeout=deadline()) as messages:
                async for message in messages:
                    heard[message.message_id] = message.headers
                    if len(heard) == 2:
                        break
    for id_ in ("1", "1/then/1"):
        [attempt] = of_message(processed, id_)
        trace_id, span_id = identity(attempt)
        assert heard[f"{id_}/done"]["traceparent"][:53] == f"00-{trace_id:032x}-{span_id:016x}-"
    [first], [second] = (of_message(processed, id_) for id_ in ("1", "1/then/1"))
    assert second.parent is not None
    assert (second.parent.trace_id, second.parent.span_id) == identity(first)


class Collector(ThreadingHTTPServer):
    """Keeps what is pushed to it by OTLP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.pushed = list[dict[str, Any]]()  # metrics of each push, by name
        self.resource: dict[str, str] = {}


class _Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        collector: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        [found] = ExportMetricsServiceRequest.FromString(body).resource_metrics
        collector.resource = {a.key: a.value.string_value for a in found.resource.attributes}
        collector.pushed.append({m.name: m for m in found.scope_metrics[0].metrics})
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


async def test_metrics_are_pushed_as_they_are_scraped(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App()
    app.handler("async")(lambda _: None)
    with Collector() as collector:
        Thread(target=collector.serve_forever, daemon=True).start()
        monkeypatch.setenv(ENDPOINTS[1], f"http://127.0.0.1:{collector.server_port}")
        monkeypatch.setenv(INTERVAL, "50")

        def handled(pushed: dict[str, Any]) -> dict[str, Any]:
            points = pushed["groupflow_task_handling_seconds"].histogram.data_points
            return {p.attributes[0].value.string_value: p for p in points}

        async with serving(settings, app) as daemon:
            await publish(settings, Outgoing(b"{}", "async", "1"), Outgoing(b"{}", "async", "2"))
            await until(lambda: any(handled(p)["async"].count == 2 for p in collector.pushed))
            scrape = await daemon.metrics.render()
        collector.shutdown()
    pushed, resource = collector.pushed[-1], collector.resource
    assert (resource["service.name"], resource["service.instance.id"]) == ("groupflow", "d1")
    families = [*text_string_to_metric_families(scrape.decode())]
    names = {f.name if f.type == "histogram" else s.name for f in families for s in f.samples}
    assert names == pushed.keys()
    [buckets] = [f.samples for f in families if f.name == "groupflow_task_handling_seconds"]
    scraped = [s.value for s in buckets if s.labels == {"type": "async", "le": s.labels.get("le")}]
    point = handled(pushed)["async"]
    assert [*accumulate(point.bucket_counts)] == scraped
    assert len(point.explicit_bounds) == len(scraped) - 1
    assert not point.HasField("min")
    enqueued = pushed["groupflow_tasks_enqueued_total"].sum
    assert (enqueued.is_monotonic, enqueued.data_points[0].as_double) == (True, 2.0)
    assert enqueued.data_points[0].start_time_unix_nano > 0
    assert pushed["groupflow_store_up"].gauge.data_points[0].as_double == 1


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({}, ""),
        ({ENDPOINTS[0]: "http://h", "OTEL_METRICS_EXPORTER": "none"}, ""),
        ({ENDPOINTS[0]: "http://h", "OTEL_SDK_DISABLED": "true"}, ""),
        ({ENDPOINTS[1]: "http://h", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "no exporter for grpc"),
        ({ENDPOINTS[1]: "http://h", INTERVAL: "1m"}, "could not convert"),
        ({ENDPOINTS[1]: "http://h", INTERVAL: "0"}, f"{INTERVAL} = 0: milliseconds above 0"),
        ({ENDPOINTS[1]: "http://h", INTERVAL: "nan"}, f"{INTERVAL} = nan: milliseconds above 0"),
    ],
)
def test_metrics_that_are_not_pushed(
    variables: dict[str, str], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with capture_logs() as logs:
        assert open_push(StoreMetrics(Namespace([])), "d1") is None
    assert [entry["error"][: len(error)] for entry in logs] == [error] * bool(error)


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
