"""Opens traces where the setting asks for them, and the push of metrics where OpenTelemetry's does.

Both are an extra, and cost no import without it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import structlog

from groupflow.core.errors import ConfigError, Problem
from groupflow.core.tracing import Tracing
from groupflow.settings.model import Settings

if TYPE_CHECKING:
    from groupflow.ops.metrics import StoreMetrics
    from groupflow.ops.otlp import MetricsPush

log = structlog.get_logger("groupflow.tracing")

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def open_tracing(settings: Settings) -> Tracing | None:
    """What the parts tell their steps to; ``None`` where traces are off.

    Raises:
        ConfigError: they are on, and OpenTelemetry isn't installed.
    """
    if not settings.traces.enabled:
        return None
    try:
        from groupflow.ops.traces import OtelTracing  # noqa: PLC0415  an extra
    except ImportError as error:
        remedy = f"Install groupflow[traces] ({error}), or leave traces off."
        raise ConfigError([Problem("traces.enabled", "true", remedy)]) from None
    return OtelTracing(settings.rabbitmq.queue)


def open_push(metrics: StoreMetrics, daemon: str) -> MetricsPush | None:
    """What pushes a daemon's metrics by OTLP; ``None`` where no endpoint is in the environment.

    A daemon that can't push starts all the same, and logs why.
    """
    asked = next((name for name in ENDPOINTS if os.environ.get(name)), "")
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if not asked or is_off or "otlp" not in os.environ.get("OTEL_METRICS_EXPORTER", "otlp"):
        return None
    try:
        from groupflow.ops.otlp import MetricsPush  # noqa: PLC0415  an extra

        return MetricsPush(metrics, daemon)
    except (ImportError, LookupError, ValueError) as error:
        remedy = "Install groupflow[traces], mend OTEL_…, or set OTEL_METRICS_EXPORTER=none."
        log.warning("metrics.not_pushed", asked=asked, error=str(error), remedy=remedy)
        return None
