"""The outbox of a partition: what RabbitMQ is still to be told of tasks that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from groupflow.core.errors import TooFewReplicas
from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds
from groupflow.store.scripts import Verb
from groupflow.store.sessions import Session
from groupflow.store.wire import ReplicaWait

HELD_FOR = 5.0  # seconds for which no other daemon relays, while this one's session lives
AT_ONCE = 500  # entries, and
BYTES_AT_ONCE = 4 * 1024 * 1024  # bytes that one call gets; the first entry may have more


@dataclass(frozen=True, slots=True)
class Outbox:
    """What a look at it found."""

    is_ours: bool  # whether this daemon relays
    entries: Sequence[bytes]  # the oldest, in order
    followed: int = 0  # the number up to which follow-up tasks are made, by any daemon
    wire: object = field(default=None, compare=False)  # the connection that told it


async def look(
    client: StoreClient,
    session: Session,
    confirmed: int,
    replica_wait: ReplicaWait | None = None,
    *,
    followed: int = 0,
    lets_others: bool = False,
) -> Outbox:
    """Say up to which number all is confirmed, and get the next entries. May be called again.

    `followed` is the number up to which this daemon has made follow-up tasks in the session's
    epoch. With `replica_wait` the replicas have all that it gets. With `lets_others` any other
    daemon may relay from here on, and it gets the next entry only.

    Raises:
        SessionLost: another daemon relays, or will.
        StoreUnavailable: no answer.
        TooFewReplicas: they have not.
    """
    held_for, most = (0.0, 1) if lets_others else (HELD_FOR, BYTES_AT_ONCE)
    front = (session.daemon, session.shown, microseconds(held_for), confirmed)
    epoch = session.epoch if session.epoch.id else None
    reply, number, wire = await client.run_replicated(
        Verb.RELAY, [*front, AT_ONCE, most, followed], replica_wait, epoch=epoch
    )
    state, is_ours, entries, followed = reply
    session.check(state)
    if entries and replica_wait is not None and number < replica_wait.replicas:
        raise TooFewReplicas(
            f"Redis at {client.address}: {number} replicas have what is to be told, and "
            f"redis.replicas is {replica_wait.replicas}"
        )
    return Outbox(bool(is_ours), entries, followed, wire)
