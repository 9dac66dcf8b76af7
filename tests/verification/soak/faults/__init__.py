"""What goes wrong, on purpose: one small class a fault, seeded, each undoing what it did.

A fault *holds* what no other may touch meanwhile: the daemon, server or wire that it breaks. All
else may break at the same time. (Redis killed while its disk is full would prove nothing: it loses
what it had answered, which is no fault of ours.)
"""

from __future__ import annotations

from tests.verification.soak.faults import cluster, daemons, http, messages
from tests.verification.soak.faults.base import Aimed, Fault, Skipped, aimed
from tests.verification.soak.faults.servers import Freeze, FullDisk, FullMemory, Kill, Restart
from tests.verification.soak.faults.wires import Cut, HalfOpen, HoldReplies, HoldRequests, Late

__all__ = ["CLUSTER_FAULTS", "FAULTS", "SLOW", "Fault", "Skipped"]

# How often each is chosen, at Redis and at RabbitMQ.
_SERVERS: dict[type[Aimed], tuple[float, float]] = {
    Restart: (3.0, 0.6), Kill: (3.0, 0.4), Freeze: (3.0, 2.0)
}  # fmt: skip
_WIRES: dict[type[Aimed], tuple[float, float]] = {
    Cut: (3.0, 3.0), HoldReplies: (5.0, 3.0), HoldRequests: (3.0, 3.0), Late: (3.0, 2.0),
    HalfOpen: (2.0, 2.0),
}  # fmt: skip
_OF_DAEMONS: tuple[type[Fault], ...] = (
    daemons.KillSame, daemons.KillOther, daemons.Zombie, daemons.Nap, daemons.Terminate,
    daemons.WrongClock, daemons.Usurper, daemons.BlockLoop, daemons.BlockLoopPast,
    messages.DeleteQueue, messages.Duplicates, messages.HeaderFlood, messages.Poison,
    http.HttpFlood,
    *(aimed(kind, "rabbitmq", weight) for kind, (_, weight) in _WIRES.items()),
)  # fmt: skip
_OF_ONE_REDIS = (
    *(aimed(kind, "redis", weight) for kind, (weight, _) in {**_SERVERS, **_WIRES}.items()),
    aimed(FullMemory, "redis"),
    aimed(FullDisk, "redis", 2.0),
)
_OF_ONE_RABBITMQ = tuple(aimed(kind, "rabbitmq", weight) for kind, (_, weight) in _SERVERS.items())
FAULTS: tuple[type[Fault], ...] = (*_OF_DAEMONS, *_OF_ONE_REDIS, *_OF_ONE_RABBITMQ)
CLUSTER_FAULTS: tuple[type[Fault], ...] = (
    *_OF_DAEMONS,
    # Others have the queue meanwhile; a leader that wakes leads no more, or still does.
    aimed(Restart, "rabbitmq", 2.0, what="leader restarted"),
    aimed(Kill, "rabbitmq", 6.0, what="leader kill-9"),
    aimed(Freeze, "rabbitmq", 6.0, what="leader frozen", longest=12.0),
    cluster.KillPrimary, cluster.FreezePrimary, cluster.KillReplica, cluster.MovePartition,
    cluster.PartitionPrimary, cluster.PartitionReplica, cluster.PartitionClients,
    cluster.FailOverWhole, cluster.FailOverForced, cluster.TakeOver,
)  # fmt: skip
SLOW = frozenset(each for each in _OF_ONE_RABBITMQ if not issubclass(each, Freeze))
