"""archive: which dead letters' bodies leave Redis, how they leave, and what comes back.

The stream holds the envelope as it was, with one more fact at the end of its first line: the
letter's reason, errors, context and corrections. A reader that doesn't know that fact can read the
rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from groupflow.core.task import Place
from groupflow.operate.reasons import REASON_SHOWN
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import Argument, Call, StoreClient
from groupflow.store.clock import microseconds
from groupflow.store.envelope import Envelope
from groupflow.store.sessions import Session

_PIECE, _PIECES = 60, 4  # of that: Redis keeps a hash small if its values have 64 bytes at most

HELD_FOR = 60.0  # seconds after its last call for which a daemon remains the archiving one
_BESIDE = 7  # where in the facts of an envelope the letter's own stand


@dataclass(frozen=True, slots=True)
class LetterBody:
    """A dead letter that is in Redis whole."""

    id: str  # the letter
    died_at: bytes  # its death, as the store writes it
    packed: bytes  # what to archive: envelope, headers and body, and what goes along
    rest: bytes  # what stays of the envelope in Redis
    reason: tuple[str, ...]  # what stays of the reason, in pieces
    goes_along: bool  # whether errors, context and corrections are in `packed`


@dataclass(frozen=True, slots=True)
class Beside:
    """What a letter's task state held, and the stream holds with its body."""

    reason: str  # why it died, whole
    errors: str  # of its attempts, as JSON; empty if it has none
    context: str  # of its stage, as JSON; empty if it has none
    corrections: str = ""  # of its body, as `redrive.lua` has them; empty if there were none


@dataclass(frozen=True, slots=True)
class WholeLetter:
    """All of a dead letter."""

    envelope: Envelope  # with its headers and its body
    place: Place | None = None  # where it was read in RabbitMQ's stream; None if it is in Redis
    size: int = 0  # bytes that were read there
    beside: Beside | None = None  # what lay there with it; None if that is in Redis


async def oldest_bodies(
    client: StoreClient, session: Session, bound: int, *, most: int, most_bytes: int
) -> list[LetterBody]:
    """Dead letters whose bodies exceed a bound, the oldest first; this daemon then archives.

    Args:
        client: the store.
        session: of the calling daemon. Others get none for `HELD_FOR`, while that session lives.
        bound: bytes that dead letters may hold.
        most: letters at most; 0 lets other daemons archive.
        most_bytes: bytes at most; the first letter may have more.

    Returns:
        None while another daemon archives.
    """
    me = (session.daemon, session.number, microseconds(HELD_FOR))
    rows = await client.run(OperatorVerb.BODIES, bound, most, most_bytes, *me)
    return [_body_of(*row) for row in rows]


async def archive(
    client: StoreClient, bodies: Sequence[LetterBody], places: Sequence[Place]
) -> int:
    """Remove bodies that now lie elsewhere, at proven places. Running it again is safe.

    Returns how many left; the others were redriven, dropped, or archived by another daemon.

    Raises:
        StoreUnavailable: no answer; some may have left.
    """
    calls: list[Call] = []
    for body, place in zip(bodies, places, strict=True):
        goes_along = "1" if body.goes_along else ""
        call: list[Argument] = [body.id, body.died_at, place.offset, place.message_id, body.rest]
        calls.append((OperatorVerb.ARCHIVE, [*call, goes_along, *body.reason]))
    return sum(await client.run_all(calls)) if calls else 0


async def stay(client: StoreClient, body: LetterBody) -> bool:
    """Note that a body can't leave: RabbitMQ refuses it. Running it again is safe.

    Returns:
        Whether that is new; its letter may have ended meanwhile.
    """
    return bool(await client.run(OperatorVerb.STAY, body.id, body.died_at))


def beside_of(packed: bytes) -> Beside | None:
    """What went along with a body; ``None`` if nothing did."""
    try:
        facts = orjson.loads(packed.partition(b"\n")[0])
        return Beside(*facts[_BESIDE]) if len(facts) > _BESIDE else None
    except (ValueError, TypeError):
        return None


def _body_of(  # noqa: PLR0917  the row that the script answers, in its order
    id_: bytes,
    died_at: bytes,
    packed: bytes,
    known: Sequence[bytes | None],
    reason: bytes,
    errors: bytes,
    context: bytes,
    corrections: bytes,
) -> LetterBody:
    whole, goes_along = _with_beside(packed, reason, errors, context, corrections)
    rest = _rest_of(packed, *known)
    return LetterBody(id_.decode(), died_at, whole, rest, _pieces_of(reason), goes_along)


def _with_beside(packed: bytes, *beside: bytes) -> tuple[bytes, bool]:
    """An envelope with the letter's own texts among its facts, and whether that was possible.

    Its own facts stay as they were written, to the byte. One that isn't ours stays as it is.
    """
    head, line_feed, body = packed.partition(b"\n")
    try:
        facts = orjson.loads(head)
        along = orjson.dumps([each.decode() for each in beside])
        Envelope.unpack(head)
    except (ValueError, TypeError):
        return packed, False
    if not head.endswith(b"]") or len(facts) not in (_BESIDE - 1, _BESIDE):
        return packed, False
    no_origin = b",null" if len(facts) < _BESIDE else b""
    return head[:-1] + no_origin + b"," + along + b"]" + line_feed + body, True


def _pieces_of(reason: bytes) -> tuple[str, ...]:
    """What lists show of a reason, in short pieces of whole characters."""
    left = reason
    if len(reason) > REASON_SHOWN:
        left = f"{reason[:REASON_SHOWN].decode(errors='ignore')} …".encode()
    pieces: list[str] = []
    while left and len(pieces) < _PIECES:
        piece = left[:_PIECE].decode(errors="ignore") or "\N{REPLACEMENT CHARACTER}"
        pieces.append(piece)
        left = left[len(piece.encode()) :]
    return tuple(pieces)


def _rest_of(packed: bytes, *known: bytes | None) -> bytes:
    """An envelope without headers and body; if it isn't ours, made of what the task state holds."""
    try:
        envelope = Envelope.unpack(packed)
    except ValueError:
        type_, group, tenant, scope = [None if fact is None else fact.decode() for fact in known]
        envelope = Envelope(type_ or "", group or None, tenant or None, None, {}, b"", scope or "")
    return replace(envelope, headers={}, body=b"").pack()
