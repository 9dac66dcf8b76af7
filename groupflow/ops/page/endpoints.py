"""The endpoints of the API: what each is, who may call it, and how a request is served."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from http import HTTPStatus
from inspect import Signature, isfunction, signature
from typing import Any, Literal, TypeVar

import orjson
import structlog
from pydantic import BaseModel, RootModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from groupflow.core.errors import (
    AmbiguousId,
    GroupflowError,
    ServerUnreachable,
    SessionLost,
    StoreFull,
    StoreUnavailable,
)
from groupflow.operate.limits import TooManyByHand
from groupflow.operate.pages import UnknownCursor
from groupflow.operate.schedules import NoSchedule, StillOpen, TickRefused
from groupflow.ops.page.access import Authorizer
from groupflow.ops.page.connections import LINGERS
from groupflow.ops.page.problems import (
    InputRefused,
    RequestRefused,
    problem_response,
    refused_input,
    refused_response,
)
from groupflow.ops.page.shapes import Nothing
from groupflow.ops.page.throttle import Reads
from groupflow.settings.tokens import Right, TokenHolder

log = structlog.get_logger("groupflow.page")

MAX_INPUT = 2 * 1024 * 1024  # bytes of a request's body
_SHOWN_NAMES = 5  # of those that are unknown
_SHOWN_CHARS = 80  # of one
_STATUSES: dict[type, HTTPStatus] = {
    **dict.fromkeys((UnknownCursor, TooManyByHand, StillOpen, TickRefused), HTTPStatus.BAD_REQUEST),
    NoSchedule: HTTPStatus.NOT_FOUND,
    AmbiguousId: HTTPStatus.CONFLICT,
    **dict.fromkeys(
        (StoreUnavailable, StoreFull, ServerUnreachable, SessionLost),
        HTTPStatus.SERVICE_UNAVAILABLE,
    ),
}
_FAULT = HTTPStatus.INTERNAL_SERVER_ERROR
_SERVED = "__endpoint__"  # the attribute of a method that serves one


@dataclass(frozen=True, slots=True)
class Caller:
    request: Request
    holder: TokenHolder | None  # whose token was shown
    sees_contents: bool
    """Whether bodies, headers and errors' words may be shown: with a token that lets its holder
    look, or where no token is configured."""

    @property
    def peer(self) -> str:
        """The address, for the log."""
        return self.request.client.host if self.request.client else "unknown"

    @property
    def path(self) -> Mapping[str, str]:
        """What stands in the path's braces."""
        return self.request.path_params

    @property
    def shows_token(self) -> bool:
        """Whether its token lets it look or act, and so take more of Redis's time."""
        return self.may("look") or self.may("act")

    def may(self, right: Right) -> bool:
        """Whether its token gives it a right."""
        return self.holder is not None and right in self.holder.rights

    def linger(self) -> None:
        """Let its request take its time: a new connection doesn't displace it."""
        self.request.scope[LINGERS] = True


async def _unserved() -> None: ...


_Handle = TypeVar("_Handle", bound=Callable[..., Awaitable[Any]])


@dataclass(frozen=True)
class Endpoint:
    """One way into the API, as a decorator of the method that serves it.

    The method's annotations say its input, if it takes one, and what it answers; it takes the
    `Caller` where it is to know it. Routes and `/api/openapi.json` are made of this.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]  # a PUT reads its body itself
    path: str  # below /api; {names} in it come with the caller
    summary: str  # what it is for, as a sentence without its full stop
    about: str = ""  # more of that
    right: Right | None = None  # needed to call it, where it does more than show
    or_right: Right | None = None  # will do in its place
    most_bytes: int = MAX_INPUT  # of a request's body
    may_be_empty: bool = False  # a request may come without a body, which says nothing then
    may_be_unfit: bool = False  # it answers 422 for input that can't become, or go on as, a task
    may_miss: bool = False  # it answers 404 for what isn't there
    is_public: bool = False  # it is answered without the token where looking needs one
    reads: bool = False  # each call asks the store, or computes, and so waits for its turn
    handle: Callable[..., Awaitable[Any]] = _unserved  # the method, once `endpoints_of` found it

    def __call__(self, handle: _Handle) -> _Handle:
        setattr(handle, _SERVED, self)
        return handle

    @cached_property
    def _signature(self) -> Signature:
        return signature(self.handle, eval_str=True)

    @cached_property
    def _takes(self) -> list[type]:
        return [each.annotation for each in self._signature.parameters.values()]

    @cached_property
    def asks(self) -> type[BaseModel]:
        """The input: of a POST its JSON body, of others their query."""
        return next((each for each in self._takes if issubclass(each, BaseModel)), Nothing)

    @property
    def has_body(self) -> bool:
        """Whether its input is a JSON body."""
        return self.method == "POST" and self.asks is not Nothing

    @cached_property
    def answers(self) -> Any:
        """The type of its answer."""
        return self._signature.return_annotation

    async def serve(self, asked: BaseModel, caller: Caller) -> Any:
        """Call the method."""
        return await self.handle(*(caller if each is Caller else asked for each in self._takes))


def endpoints_of(owner: object) -> list[Endpoint]:
    """The endpoints among an object's methods, as they are written there."""
    return [
        replace(vars(each)[_SERVED], handle=each.__get__(owner))
        for each in vars(type(owner)).values()
        if isfunction(each) and _SERVED in vars(each)
    ]


def routes_of(endpoints: Iterable[Endpoint], authorizer: Authorizer, reads: Reads) -> list[Route]:
    """A route a path, of all its methods: so a refusal of another method names those allowed."""
    paths: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [_route(path, methods, authorizer, reads) for path, methods in paths.items()]


def _route(path: str, methods: dict[str, Endpoint], authorizer: Authorizer, reads: Reads) -> Route:
    async def serve(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await _served(methods[method], authorizer, reads, request)

    return Route(f"/api{path}", serve, methods=list(methods))


def caller_of(request: Request, authorizer: Authorizer) -> Caller:
    holder = authorizer.tokens.holder(request.headers)
    may_look = "look" in holder.rights if holder else not authorizer.tokens
    return Caller(request, holder, may_look)


async def _served(
    endpoint: Endpoint, authorizer: Authorizer, reads: Reads, request: Request
) -> Response:
    """The response to a request, errors included."""
    try:
        if endpoint.method != "GET":
            authorizer.check_origin(request)
        if endpoint.right:
            authorizer.check(request, endpoint.right, endpoint.or_right)
        elif not endpoint.is_public:
            authorizer.check_reading(request)
        caller = caller_of(request, authorizer)
        answer = await _answered(endpoint, reads, request, caller)
        return Response(orjson.dumps(answer), media_type="application/json")
    except RequestRefused as refusal:
        return refused_response(refusal)
    except GroupflowError as error:
        status = next((_STATUSES[kind] for kind in type(error).mro() if kind in _STATUSES), _FAULT)
        if status is _FAULT:
            log.error("page.failed", path=endpoint.path, error=str(error))
        return problem_response(status, str(error))
    except ClientDisconnect:
        return Response(status_code=HTTPStatus.BAD_REQUEST)
    except Exception as error:
        log.error("page.failed", path=endpoint.path, error=repr(error), exc_info=error)
        detail = "This is a fault of groupflow's; the daemon's log has more of it."
        return problem_response(_FAULT, detail)


async def _answered(endpoint: Endpoint, reads: Reads, request: Request, caller: Caller) -> Any:
    """Read the input, wait for a turn where one is due, and handle it."""
    query = await _read(endpoint, request)
    if not endpoint.reads:
        return await endpoint.serve(query, caller)
    async with reads.turn(is_trusted=caller.shows_token):
        if await request.is_disconnected():  # the next caller gets its turn
            raise ClientDisconnect
        return await endpoint.serve(query, caller)


async def _read(endpoint: Endpoint, request: Request) -> BaseModel:
    """The input, checked.

    Raises:
        RequestRefused: it can't be used.
    """
    if endpoint.method == "PUT":
        return Nothing()
    try:
        if endpoint.method != "POST":
            return endpoint.asks.model_validate(dict(request.query_params))
        size = int(request.headers.get("content-length", "0"))
        if size == 0 and (endpoint.may_be_empty or not endpoint.asks.model_fields):
            return endpoint.asks()
        _check_announced(endpoint, request, size)
        return endpoint.asks.model_validate(_sound(await request.body(), endpoint.asks))
    except ValidationError as error:
        raise refused_input(error) from None
    except orjson.JSONDecodeError as error:
        raise InputRefused(f"The body is not JSON: {error}") from None


def _sound(body: bytes, asks: type[BaseModel]) -> Any:
    """A JSON object without unknown names; the model would make an error of each of them.

    Or a JSON array, where one is asked for.

    Raises:
        RequestRefused: it is none.
    """
    value = orjson.loads(body)
    if issubclass(asks, RootModel):
        return value
    if not isinstance(value, dict):
        raise InputRefused("Send a JSON object.")
    unknown = sorted(value.keys() - asks.model_fields.keys())
    if unknown:
        first = ", ".join(f"{name[:_SHOWN_CHARS]!a}" for name in unknown[:_SHOWN_NAMES])
        more = len(unknown) - _SHOWN_NAMES
        named = f"{first} and {more} more" if more > 0 else first
        raise InputRefused(f"The body has unknown names: {named}.")
    return value


def _check_announced(endpoint: Endpoint, request: Request, size: int) -> None:
    """Check what a request says of its body, before any of it is read.

    Raises:
        RequestRefused: it is too long, or not declared as what it has to be.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # Another site's form can't send this type without a preflight.
        raise RequestRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Send it as application/json.")
    if size > endpoint.most_bytes:
        raise RequestRefused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body is over {endpoint.most_bytes} bytes."
        )
