"""Pushes a daemon's metrics by OTLP: the families of a scrape, under the same names.

They go to the exporter as they are, since none of OpenTelemetry's instruments takes a histogram
that is counted already. The exporter is set up by the standard ``OTEL_EXPORTER_OTLP_*``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from importlib.metadata import entry_points, version
from itertools import pairwise
from time import time_ns
from typing import Any, Final

import structlog
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family

from groupflow.ops.metrics import StoreMetrics

log = structlog.get_logger("groupflow.otlp")

INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"  # milliseconds
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_CUMULATIVE = AggregationTemporality.CUMULATIVE


class MetricsPush:
    """Hands metrics to an exporter, again and again."""

    def __init__(
        self, metrics: StoreMetrics, daemon: str, exporter: MetricExporter | None = None
    ) -> None:
        """Binds the metrics of a daemon; the exporter is the environment's unless it is given.

        Raises:
            LookupError: no exporter is installed for the protocol that the environment names.
            ValueError: the environment has a value that is none.
        """
        self._metrics = metrics
        self._interval = float(said := os.environ.get(INTERVAL) or 60_000) / 1000
        if not self._interval > 0:  # which NaN isn't either
            raise ValueError(f"{INTERVAL} = {said}: milliseconds above 0")
        self._exporter = exporter or _exporter_by_environment()
        self._began = time_ns()
        own = {"service.name": "groupflow", "service.instance.id": daemon}
        self._resource = Resource(own).merge(OTELResourceDetector().detect())
        self._scope = InstrumentationScope("groupflow", version("groupflow"))

    async def run(self) -> None:
        """Push for ever. The exporter logs what it can't send, and the next push has it too."""
        try:
            while True:
                await asyncio.sleep(self._interval)
                try:
                    await self.run_once()
                except Exception as error:  # noqa: BLE001  an exporter ends no daemon
                    log.warning("metrics.not_pushed", error=str(error), kind=type(error).__name__)
        finally:
            self._exporter.shutdown()  # ends the tries of a push that goes on in its thread

    async def run_once(self) -> None:
        """One push."""
        families = await self._metrics.families()
        await asyncio.to_thread(self._exporter.export, self._packed(families))

    def _packed(self, families: list[Family]) -> MetricsData:
        metrics = [self._metric(family) for family in families if family.samples]
        scope = ScopeMetrics(self._scope, metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _metric(self, family: Family) -> Metric:
        times: Any = {"start_time_unix_nano": self._began, "time_unix_nano": time_ns()}
        if family.type == "histogram":
            data: Any = Histogram(_histograms(family, times), _CUMULATIVE)
            return Metric(family.name, family.documentation, "", data)
        points = [
            NumberDataPoint(attributes=dict(each.labels), value=float(each.value), **times)
            for each in family.samples
        ]
        is_counter = family.type == "counter"
        data = Sum(points, _CUMULATIVE, is_monotonic=True) if is_counter else Gauge(points)
        return Metric(family.samples[0].name, family.documentation, "", data)


def _histograms(family: Family, times: Mapping[str, Any]) -> list[HistogramDataPoint]:
    """Of samples, in which Prometheus has each histogram with cumulated buckets."""
    unknown: Any = None
    points: list[HistogramDataPoint] = []
    buckets: list[tuple[float, int]] = []
    for sample in family.samples:
        if sample.name.endswith("_bucket"):
            buckets.append((float(sample.labels["le"]), int(sample.value)))
        elif sample.name.endswith("_sum"):  # the last one of a histogram
            bounds, cumulated = zip(*buckets, strict=True)
            counts = [after - before for before, after in pairwise((0, *cumulated))]
            points.append(
                HistogramDataPoint(
                    attributes=dict(sample.labels),
                    count=cumulated[-1],
                    sum=sample.value,
                    bucket_counts=counts,
                    explicit_bounds=bounds[:-1],  # the last one is infinite
                    min=unknown,
                    max=unknown,
                    **times,
                )
            )
            buckets.clear()
    return points


def _exporter_by_environment() -> MetricExporter:
    protocol = next((os.environ[name] for name in _PROTOCOLS if os.environ.get(name)), "")
    name = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    for found in entry_points(group="opentelemetry_metrics_exporter", name=name):
        exporter: MetricExporter = found.load()()
        return exporter
    raise LookupError(f"no exporter for {protocol or 'http/protobuf'}")
