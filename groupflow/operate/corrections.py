"""Corrected bodies: which body may take a dead letter's place, and what is kept of the old one."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

from groupflow.core.errors import BodyUnfit, Unroutable
from groupflow.core.routing import Route, Router
from groupflow.store.clock import seconds
from groupflow.store.envelope import Envelope
from groupflow.store.keys import SEQUENCE_DIGITS

KEPT = 64 * 1024  # bytes of an old body


@dataclass(frozen=True, slots=True)
class Correction:
    """A body that a task had before."""

    at: float  # when an operator replaced it, Unix seconds by Redis's clock
    by: str  # who that was; empty if unknown
    bytes: int  # how long it was
    sha256: str  # of the whole, in hexadecimal
    body: str | None  # its beginning where that is UTF-8; None where it is withheld, too
    body_base64: str | None  # where it isn't
    is_cut: bool  # whether the beginning isn't all


@dataclass(frozen=True, slots=True)
class NewBody:
    """A body in the place of a dead letter's, and who says so."""

    body: bytes
    by: str


def note_of(old: bytes, by: str) -> bytes:
    """What is kept of an old body, as JSON."""
    head, text, packed = old[:KEPT], None, None
    try:
        old.decode()
        text = head.decode(errors="ignore")  # a character may be cut
    except UnicodeDecodeError:
        packed = base64.b64encode(head).decode()
    facts = {"by": by, "bytes": len(old), "sha256": sha256(old).hexdigest()}
    kept = {"body": text, "body_base64": packed, "is_cut": len(old) > KEPT}
    return orjson.dumps(facts | kept)


def read_corrections(lines: str) -> list[Correction]:
    """What `redrive.lua` wrote, the oldest first."""
    found = []
    for line in filter(None, lines.split("\n")):  # a body has other ends of lines, too
        facts: dict[str, Any] = orjson.loads(line[SEQUENCE_DIGITS:])
        found.append(Correction(at=seconds(line[:SEQUENCE_DIGITS]), **facts))
    return found


def route_corrected(
    router: Router, old: Envelope, body: bytes, *, most: int, was_routed: bool
) -> Route:
    """Check that a body can take a dead letter's place, and route it.

    Args:
        router: of the loaded configuration.
        old: the letter's envelope.
        body: the corrected body.
        most: bytes of the largest.
        was_routed: whether the letter ever had a group or was plain; else it gets its first route.

    Raises:
        BodyUnfit: it is too large, can't be routed, or goes elsewhere than the old one went.
    """
    if len(body) > most:
        raise BodyUnfit(
            f"the corrected body has {len(body)} bytes, over rabbitmq.max_body = {most}: "
            "shorten it, or raise that"
        )
    try:
        route = router.route(body, old.headers, type=old.type or None)
    except Unroutable as refusal:
        raise BodyUnfit(f"the corrected body can't be routed: {refusal}") from None
    same = [("tenant", old.tenant, route.tenant)]
    if was_routed:
        same.append(("group", old.group, route.group))
        if old.scope != route.scope:
            was = router.application_of(old.body, old.headers)
            same.append(("application", was, route.app))
    elif old.tenant is None:
        same.clear()
    for name, was, would_be in same:
        if was != would_be:
            raise BodyUnfit(
                f"with the corrected body its {name} would be {_named(would_be)}, and was "
                f"{_named(was)}: correct that too, or publish the body as a new message and drop "
                "this letter"
            )
    return route


def _named(value: str | None) -> str:
    return "none" if value is None else repr(value)
