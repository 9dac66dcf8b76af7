"""Limits by hand of one store: begin, end, list."""

from __future__ import annotations

from dataclasses import dataclass, field

from groupflow.core.errors import GroupflowError
from groupflow.core.limits import HandLimit, Limited, Rate, SetByHand
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds, seconds

MOST = 1000
"""How many groups and tenants may be limited by hand at once, in a partition."""
_LETTERS: dict[Limited, str] = {"group": "g", "tenant": "t"}
_KINDS: dict[str, Limited] = {letter: kind for kind, letter in _LETTERS.items()}
_AS_CONFIGURED = "-"


class TooManyByHand(GroupflowError):
    """As many groups and tenants are limited by hand as may be."""

    def __init__(self) -> None:
        super().__init__(
            f"{MOST} groups and tenants are limited by hand already: end some (`groupflow limit` "
            "lists them), or write what is to last into the configuration."
        )


@dataclass(frozen=True, slots=True)
class ByHand:
    """Limits by hand."""

    total: int = 0  # how many there are
    limits: list[SetByHand] = field(default_factory=list)  # some of them, the first to end first


async def begin(client: StoreClient, limit: HandLimit, by: str, for_: float) -> None:
    """Let a limit hold for so many seconds; it replaces an earlier one by hand.

    Raises:
        ValueError: it can't hold; see `HandLimit.check`.
        TooManyByHand: as many limits hold as may.
    """
    limit.check(for_)
    answer = await client.run(
        OperatorVerb.LIMIT,
        _LETTERS[limit.kind] + limit.name,
        microseconds(for_),
        by,
        _AS_CONFIGURED if limit.concurrency is None else limit.concurrency,
        *_packed(limit.rate),
        MOST,
    )
    if answer < 0:
        raise TooManyByHand


async def end(client: StoreClient, kind: Limited, name: str, by: str) -> bool:
    """End the limits by hand of a group or a tenant.

    Returns:
        Whether there were any.
    """
    rest = (_AS_CONFIGURED,) * 3
    whose = _LETTERS[kind] + name
    return bool(await client.run(OperatorVerb.LIMIT, whose, "", by, *rest, "", MOST))


async def read_by_hand(client: StoreClient, most: int = MOST) -> ByHand:
    """The limits by hand that hold."""
    _, total, rows = await client.run(OperatorVerb.LIMITS_BY_HAND, most)
    return ByHand(total, [set_by_hand(whose.decode(), text.decode()) for whose, text in rows])


def set_by_hand(whose: str, text: str) -> SetByHand:
    """A limit as a script answers it; see `by_hand.lua`."""
    said, _, by = text.partition("\n")
    until, concurrency, interval, _, since, rate = said.split(" ", 5)
    return SetByHand(
        _KINDS[whose[0]],
        whose[1:],
        None if concurrency == _AS_CONFIGURED else int(concurrency),
        None if interval == _AS_CONFIGURED else rate,
        seconds(since),
        seconds(until),
        by,
    )


def _packed(rate: str | None) -> tuple[str | int, ...]:
    """A rate's interval and tolerance in µs, and its text."""
    if rate is None:
        return _AS_CONFIGURED, _AS_CONFIGURED, ""
    found = Rate.parse(rate)
    if found is None:
        return 0, 0, ""
    return (
        f"{found.interval * 1e6:.3f}",
        f"{found.tolerance * 1e6:.0f}",
        " ".join(found.text.split()),
    )
