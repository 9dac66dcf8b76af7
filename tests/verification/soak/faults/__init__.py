"""What goes wrong, on purpose: one small class a fault, seeded, each undoing what it did.

A fault *holds* what no other may touch meanwhile: the daemon, server or wire that it breaks. All
else may break at the same time. (Redis killed while its disk is full would prove nothing: it loses
what it had answered, which is no fault of ours.)
"""

from __future__ import annotations

from tests.verification.soak.faults.base import Fault, Skipped
from tests.verification.soak.faults.cluster import (
    FailOverForced,
    FailOverWhole,
    FreezePrimary,
    KillPrimary,
    KillReplica,
    MovePartition,
    PartitionClients,
    PartitionPrimary,
    PartitionReplica,
    TakeOver,
)
from tests.verification.soak.faults.daemons import (
    BlockLoop,
    BlockLoopPast,
    KillOther,
    KillSame,
    Nap,
    Terminate,
    Usurper,
    WrongClock,
    Zombie,
)
from tests.verification.soak.faults.http import HttpFlood
from tests.verification.soak.faults.messages import DeleteQueue, Duplicates, HeaderFlood, Poison
from tests.verification.soak.faults.servers import (
    FreezeLeader,
    FreezeRabbitmq,
    FreezeRedis,
    FullDisk,
    FullMemory,
    KillLeader,
    KillRabbitmq,
    KillRedis,
    RestartLeader,
    RestartRabbitmq,
    RestartRedis,
)
from tests.verification.soak.faults.wires import (
    CutRabbitmq,
    CutRedis,
    HalfOpenRabbitmq,
    HalfOpenRedis,
    HoldRabbitmqReplies,
    HoldRabbitmqRequests,
    HoldRedisReplies,
    HoldRedisRequests,
    LateRabbitmq,
    LateRedis,
)

__all__ = ["CLUSTER_FAULTS", "FAULTS", "SLOW", "Fault", "Skipped"]

FAULTS: tuple[type[Fault], ...] = (
    KillSame, KillOther, Zombie, Nap, Terminate, WrongClock, Usurper,
    BlockLoop, BlockLoopPast,
    RestartRedis, KillRedis, FreezeRedis, FullMemory, FullDisk,
    RestartRabbitmq, KillRabbitmq, FreezeRabbitmq,
    CutRedis, HoldRedisReplies, HoldRedisRequests, LateRedis, HalfOpenRedis,
    CutRabbitmq, HoldRabbitmqReplies, HoldRabbitmqRequests, LateRabbitmq, HalfOpenRabbitmq,
    DeleteQueue, Duplicates, HeaderFlood, Poison, HttpFlood,
)  # fmt: skip
_OF_ONE_REDIS: frozenset[type[Fault]] = frozenset(
    {RestartRedis, KillRedis, FreezeRedis, FullMemory, FullDisk}
    | {CutRedis, HoldRedisReplies, HoldRedisRequests, LateRedis, HalfOpenRedis}
)
_OF_ONE_RABBITMQ: frozenset[type[Fault]] = frozenset(
    {RestartRabbitmq, KillRabbitmq, FreezeRabbitmq}
)
CLUSTER_FAULTS: tuple[type[Fault], ...] = (
    *(kind for kind in FAULTS if kind not in _OF_ONE_REDIS | _OF_ONE_RABBITMQ),
    *(RestartLeader, KillLeader, FreezeLeader),
    *(KillPrimary, FreezePrimary, KillReplica, MovePartition),
    *(PartitionPrimary, PartitionReplica, PartitionClients),
    *(FailOverWhole, FailOverForced, TakeOver),
)
SLOW: frozenset[type[Fault]] = frozenset({RestartRabbitmq, KillRabbitmq})
