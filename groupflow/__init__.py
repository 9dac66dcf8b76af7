"""groupflow: queued jobs in order within a group, in parallel across groups, never losing one."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupflow.broker.application import Publisher
    from groupflow.broker.blocking import SyncPublisher
    from groupflow.broker.publisher import Message
    from groupflow.core.app import App, CallNext
    from groupflow.core.errors import (
        BrokerUnavailable,
        ConfigError,
        ConfirmTimeout,
        GroupflowError,
        PublishFailed,
        PublishRefused,
        QueueMissing,
        ResultRefused,
        ServerUnreachable,
        TaskCancelled,
        TaskDead,
        TaskDropped,
        TaskExpired,
        TaskNotDone,
        TaskSuperseded,
        Unroutable,
    )
    from groupflow.core.outcome import Advance, Dead, Done, Retry
    from groupflow.core.task import Task
    from groupflow.scans.scan import Scan, Shard
    from groupflow.scans.sql import SqlScan as SqlScan
    from groupflow.scans.sql import SqlShard as SqlShard

__all__ = [
    "Advance",
    "App",
    "BrokerUnavailable",
    "CallNext",
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
    "ResultRefused",
    "Retry",
    "Scan",
    "ServerUnreachable",
    "Shard",
    "SyncPublisher",
    "Task",
    "TaskCancelled",
    "TaskDead",
    "TaskDropped",
    "TaskExpired",
    "TaskNotDone",
    "TaskSuperseded",
    "Unroutable",
]
__version__ = "0.1.0"


_HOMES = {
    **dict.fromkeys(("App", "CallNext"), "groupflow.core.app"),
    "Task": "groupflow.core.task",
    "Message": "groupflow.broker.publisher",
    "Publisher": "groupflow.broker.application",
    "SyncPublisher": "groupflow.broker.blocking",
    **dict.fromkeys(("Scan", "Shard"), "groupflow.scans.scan"),
    # Not in `__all__`: they take groupflow[sql].
    **dict.fromkeys(("SqlScan", "SqlShard"), "groupflow.scans.sql"),
    **dict.fromkeys(("Advance", "Dead", "Done", "Retry"), "groupflow.core.outcome"),
}


def __dir__() -> list[str]:
    """What `dir` and `help` show: all of it, before anything is imported."""
    return sorted([*__all__, "__all__", "__doc__", "__name__", "__version__"])


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for: a handler needs no AMQP, `--help` nothing."""
    if name not in __all__ and name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "groupflow.core.errors")), name)
