"""archive: which dead letters' bodies are to leave Redis, and their leaving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from groupflow.core.places import Place
from groupflow.store.client import StoreClient
from groupflow.store.envelope import Envelope
from groupflow.store.scripts import Verb


@dataclass(frozen=True, slots=True)
class Body:
    """A dead letter whose body is in Redis.

    Attributes:
        id: the letter.
        died_at: its death, as the store writes it.
        packed: its envelope, headers and body, as it lies there.
        rest: what stays there of it.
    """

    id: str
    died_at: bytes
    packed: bytes
    rest: bytes


async def oldest_bodies(
    client: StoreClient, bound: int, *, most: int, most_bytes: int
) -> list[Body]:
    """Dead letters whose bodies are over a bound, the oldest first.

    Args:
        client: the store.
        bound: bytes that dead letters may hold.
        most: letters at most.
        most_bytes: bytes at most, but for the first letter.

    Raises:
        StoreUnavailable: no answer.
    """
    rows = await client.run(Verb.BODIES, bound, most, most_bytes)
    return [
        Body(id_.decode(), died_at, packed, _rest_of(packed, *known))
        for id_, died_at, packed, known in rows
    ]


async def archive(client: StoreClient, bodies: Sequence[Body], places: Sequence[Place]) -> int:
    """Let go of bodies that lie elsewhere now. Running it again is safe.

    Args:
        client: the store.
        bodies: whose.
        places: where each lies, proven.

    Returns:
        How many left; the others were redriven, dropped, or archived by somebody else.

    Raises:
        StoreUnavailable: no answer; some may have left.
    """
    calls = []
    for body, place in zip(bodies, places, strict=True):
        where = (place.offset, place.message_id)
        calls.append((Verb.ARCHIVE, (body.id, body.died_at, *where, body.rest)))
    return sum(await client.run_all(calls)) if calls else 0


def _rest_of(packed: bytes, *known: bytes | None) -> bytes:
    """An envelope without headers and body; of what isn't ours, what the letter's life tells."""
    try:
        envelope = Envelope.unpack(packed)
    except ValueError:
        type_, group, tenant, scope = [None if fact is None else fact.decode() for fact in known]
        envelope = Envelope(type_ or "", group or None, tenant or None, None, {}, b"", scope)
    return replace(envelope, headers={}, body=b"").pack()
