"""Opens traces where the setting asks for them."""

from __future__ import annotations

from groupflow.core.errors import ConfigError, Problem
from groupflow.core.tracing import Tracing
from groupflow.settings.model import Settings


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
