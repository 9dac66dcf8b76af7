"""groupflow: queued jobs in order within a group, in parallel across groups, never losing one."""

from typing import TYPE_CHECKING, Any

from groupflow.core.app import App
from groupflow.core.errors import (
    BrokerUnavailable,
    ConfigError,
    ConfirmTimeout,
    GroupflowError,
    PublishFailed,
    PublishRefused,
    QueueMissing,
    ServerUnreachable,
    Unroutable,
)
from groupflow.core.outcome import Advance, Dead, Done, Retry
from groupflow.core.task import Task

if TYPE_CHECKING:
    from groupflow.broker.application import Publisher
    from groupflow.broker.messages import Message

__all__ = [
    "Advance",
    "App",
    "BrokerUnavailable",
    "ConfigError",
    "ConfirmTimeout",
    "Dead",
    "Done",
    "GroupflowError",
    "Message",
    "PublishFailed",
    "PublishRefused",
    "Publisher",
    "QueueMissing",
    "Retry",
    "ServerUnreachable",
    "Task",
    "Unroutable",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import the publishing side when it is first asked for: AMQP takes its time to import."""
    if name == "Publisher":
        from groupflow.broker.application import Publisher  # noqa: PLC0415

        return Publisher
    if name == "Message":
        from groupflow.broker.messages import Message  # noqa: PLC0415

        return Message
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
