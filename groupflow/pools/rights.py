"""Which pools a token is for."""

from __future__ import annotations

from http import HTTPStatus

from groupflow.ops.page.endpoints import Caller
from groupflow.ops.page.problems import Refused


def check_pool(caller: Caller, pool: str) -> None:
    """Make sure that a token is for this pool.

    Raises:
        Refused: it is for other pools.
    """
    if caller.holder is not None and not caller.holder.may_use(pool):
        raise Refused(
            HTTPStatus.FORBIDDEN, f"The token of {caller.holder.name} isn't for pool {pool!r}."
        )
