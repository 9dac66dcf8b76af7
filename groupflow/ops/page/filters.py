"""What a caller of the API asks of dead letters, as the store takes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from groupflow.operate.dead import Filter
from groupflow.ops.page.endpoints import Caller
from groupflow.ops.page.problems import RequestRefused
from groupflow.ops.page.shapes import Letters, ReasonsQuery


@contextmanager
def known_cursor() -> Iterator[None]:
    """Refuses a cursor that no page has given."""
    try:
        yield
    except ValueError as error:
        raise RequestRefused(HTTPStatus.BAD_REQUEST, f"{error}: begin with 0.") from None


def filter_of(asked: ReasonsQuery | Letters, caller: Caller) -> Filter:
    """A caller that isn't shown the words must not find them by trying parts of them."""
    sought = asked.reason or None
    # In a query an empty tenant is any; in an order it is none, as where it chooses among ids.
    tenant = asked.tenant if isinstance(asked, Letters) else asked.tenant or None
    return Filter(
        reason=sought if caller.sees_contents else None,
        kind=None if caller.sees_contents else sought,
        type=asked.type or None,
        group=asked.group or None,
        tenant=tenant,
        since=asked.since,
    )
