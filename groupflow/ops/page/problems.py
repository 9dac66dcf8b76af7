"""What the API answers when it can't: a problem (RFC 9457) in words for an operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

import orjson
from pydantic import ValidationError
from starlette.responses import Response

_Thing = TypeVar("_Thing")


@dataclass(frozen=True, slots=True)
class ProblemDetails:
    """Why a request was not served."""

    type: str  # "about:blank": the status says what kind it is
    title: str  # the status in words
    status: int
    detail: str  # what failed, which value, and what to do


class RequestRefused(Exception):
    def __init__(self, status: HTTPStatus, detail: str, retry_after: float | None = None) -> None:
        self.status = status
        self.detail = detail
        self.retry_after = retry_after  # seconds after which the same may be served
        super().__init__(detail)


class InputRefused(RequestRefused):
    """The input can't be used."""

    def __init__(self, detail: str) -> None:
        super().__init__(HTTPStatus.BAD_REQUEST, detail)


class NotThere(RequestRefused):
    """Nothing has the name or the id."""

    def __init__(self) -> None:
        super().__init__(HTTPStatus.NOT_FOUND, "There is no such thing, or not any more.")


def there(found: _Thing | None) -> _Thing:
    """What was found.

    Raises:
        NotThere: nothing was.
    """
    if found is None:
        raise NotThere
    return found


@contextmanager
def known_only() -> Iterator[None]:
    """Answer that it isn't there where the block knows no such name or id (`KeyError`)."""
    try:
        yield
    except KeyError:
        raise NotThere from None


def problem_response(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    found = ProblemDetails("about:blank", HTTPStatus(status).phrase, status, detail)
    return Response(orjson.dumps(found), status, headers, media_type="application/problem+json")


def refused_response(refusal: RequestRefused) -> Response:
    """A refusal as a response; says where a token would have helped."""
    is_token = refusal.status == HTTPStatus.UNAUTHORIZED
    headers = {"www-authenticate": 'Bearer realm="groupflow"'} if is_token else {}
    if refusal.retry_after is not None:
        headers["retry-after"] = f"{refusal.retry_after:g}"
    return problem_response(refusal.status, refusal.detail, headers)


def refused_input(error: ValidationError) -> InputRefused:
    """What is wrong with the input, without repeating it."""
    found = []
    for detail in error.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(str(step) for step in detail["loc"]) or "the input"
        found.append(f"{where}: {detail['msg']}")
    return InputRefused("; ".join(found[:5]))
