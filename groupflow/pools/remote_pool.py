"""What a worker that pulls asks of the server: its claims, a longer lease, and to settle tasks.

Each call is logged where an outage begins and ends; whether to call again is the worker's decision.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from time import monotonic
from typing import Any, TypeAlias
from urllib.parse import quote

import httpx
import orjson
import structlog

from groupflow.core.backoff import Outage
from groupflow.core.errors import GroupflowError, Unroutable
from groupflow.core.json_text import detail_of, has_over, read_deeply, write_deeply, write_exactly
from groupflow.core.outcome import Advance, Dead, Done, Outcome, Retry, Untold
from groupflow.core.task import PULLED, Task
from groupflow.flow.handling import text_of

log = structlog.get_logger("groupflow.remote")

Mark: TypeAlias = tuple[int, str]  # fence and id: two partitions may give the same fence

TIMEOUT = 10.0  # seconds for a call and for a connection, beside what a call for tasks may wait
MOST_BYTES = 8 * 1024 * 1024  # of settlements in a call; the server takes twice as many
_MOST_VALUES = 9_999  # JSON values of a settlement; with the list around it the server takes it
_REFUSED = frozenset({400, 401, 403, 404, 405, 413, 421, 422})  # a second try won't help
_OF_PROXIES = frozenset({404, 405})  # these too, while no server is behind them
OF_WHAT_WAS_SAID = frozenset({400, 403, 413, 422})  # the worker itself may be all right
_FIGURES = ("done", "total", "unit")  # of a task's progress
_MOST_WORDS = 2000  # characters of a reason


class Refused(GroupflowError):
    """The server won't have this worker: a token, a pool or a name is wrong."""

    def __init__(self, what: str, status: int) -> None:
        super().__init__(f"{what} ({status})")
        self.status = status  # of HTTP


def is_url(url: str) -> bool:
    """Whether a server may be called there."""
    try:
        found = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return found.scheme in {"http", "https"} and bool(found.host) and (found.port or 0) < 2**16


class RemotePool:
    """A pool as one of its workers reaches it; any call may raise `Refused` or an `HTTPError`."""

    def __init__(self, url: str, pool: str, worker: str, token: str) -> None:
        """Connects on first use."""
        base = f"{url.rstrip('/')}/api/pools/{quote(pool)}/workers/{quote(worker)}"
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.AsyncClient(base_url=base, headers=headers, timeout=TIMEOUT)
        self._outage = Outage(monotonic)

    async def claim(self, limit: int, wait: float, holding: int) -> dict[str, Any]:
        """Ask for tasks: `tasks`, `lease` in seconds, and what is to be `cancelled`.

        Args:
            limit: how many to hold in all.
            wait: seconds to wait where there are none.
            holding: how many are held.
        """
        wanted = orjson.dumps({"limit": limit, "wait": wait, "holding": holding})
        answer = await self._call("POST", "/claims", wanted, TIMEOUT + wait)
        return _checked(answer, "tasks")

    async def renew(self, said: Mapping[Mark, bytes], within: float) -> dict[str, Any]:
        """Push the lease back: the `fences` held, `lease`, and what is to be `cancelled`.

        Args:
            said: how far tasks have got, as `take_progress` gives it.
            within: seconds for the answer: a lease may be shorter than other calls may take.
        """
        progress = [
            {"fence": fence, "id": id_, **dict(zip(_FIGURES, orjson.loads(packed), strict=True))}
            for (fence, id_), packed in said.items()
        ]
        body = orjson.dumps({"progress": progress}) if progress else None
        answer = await self._call("POST", "/renewal", body, min(TIMEOUT, within))
        return _checked(answer, "fences")

    async def settle(self, settlements: Sequence[bytes]) -> list[bool]:
        """Settle tasks; returns whether each was accepted, in that order."""
        packed = b"[" + b",".join(settlements) + b"]"
        answer = await self._call("POST", "/settlements", packed)
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            told = [each["verdict"] == "accepted" for each in read_deeply(answer.content)]
            if len(told) == len(settlements):
                return told
        raise _no_groupflow(answer)

    async def leave(self) -> None:
        """Give back all that is held."""
        await self._call("DELETE", "")

    async def close(self) -> None:
        """Close all connections."""
        await self.http.aclose()

    async def _call(
        self, method: str, path: str, body: bytes | None = None, timeout: float = TIMEOUT
    ) -> httpx.Response:
        headers = {"content-type": "application/json"} if body else {}
        try:
            how: Any = {"content": body, "headers": headers, "timeout": timeout}
            answer = await self.http.request(method, path, **how)
            if not (is_refused := _is_refused(answer)):
                answer.raise_for_status()
        except httpx.HTTPError as error:
            if (news := self._outage.failed()) is not None:
                log.warning("remote.no_answer", error=str(error) or repr(error), **news)
            raise
        if (seconds := self._outage.answered()) is not None:
            log.info("remote.answered_again", away_for=seconds)
        if is_refused:
            where = f"groupflow at {answer.request.url} refuses this worker: "
            raise Refused(where + detail_of(answer.text), answer.status_code)
        return answer


def _is_refused(answer: httpx.Response) -> bool:
    """Whether groupflow refuses a call; a proxy's own error page passes."""
    if answer.status_code in _OF_PROXIES:
        kind: str = answer.headers.get("content-type", "")
        return kind.startswith("application/problem+json")
    return answer.status_code in _REFUSED


def _checked(answer: httpx.Response, has: str) -> dict[str, Any]:
    """An answer with a lease and that list."""
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        told: dict[str, Any] = read_deeply(answer.content)
        if isinstance(told[has], list) and told["lease"] > 0:
            return told
    raise _no_groupflow(answer)


def _no_groupflow(answer: httpx.Response) -> Refused:
    return Refused(f"{answer.request.url} is no groupflow: {answer.text[:80]!a}", 200)


def task_of(told: Mapping[str, Any]) -> Task:
    """A task for handlers. A JSON body comes as the same value, maybe in other bytes."""
    packed = told.get("body_base64")
    body = write_deeply(told.get("body")) if packed is None else base64.b64decode(packed)
    return Task(body=body, **{name: told[name] for name in PULLED})


def settlement(mark: Mark, outcome: Outcome) -> bytes:
    """A task's settlement.

    It is done without a result that can't be sent; any other such outcome is its handler's failure.
    """
    try:
        packed = write_exactly({"fence": mark[0], "id": mark[1], **_words_of(mark, outcome)})
        if len(packed) > MOST_BYTES:
            why = f"its outcome has {len(packed)} bytes of JSON, and may have {MOST_BYTES}"
        elif not has_over(packed, _MOST_VALUES):
            return packed
        else:
            why = f"its outcome has over {_MOST_VALUES} values of JSON"
            if isinstance(outcome, Done) and not isinstance(outcome.result, Untold | None):
                return settlement(mark, replace(outcome, result=Untold(why)))
    except Unroutable as error:
        return settlement(mark, Dead(error.reason))
    except (TypeError, ValueError, RecursionError) as error:
        why = f"its outcome can't be made JSON: {error}"
    return settlement(mark, Retry(reason=why))


def _words_of(mark: Mark, outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Retry(after, reason, scope):
            words = _words(reason)
            return {"outcome": "retry", "after": after, "scope": scope, "reason": words}
        case Advance(stage, context, after):
            return {"outcome": "advance", "stage": stage, "context": context, "after": after}
        case Dead(reason):
            return {"outcome": "dead", "reason": _words(reason)}
        case Done() if outcome.says_more:
            # Imported late: a worker without such handlers saves the time.
            from groupflow.flow.settling import following_of  # noqa: PLC0415

            then = [asdict(each) for each in following_of(outcome.then)]
            return {"outcome": "done", "then": then, **_result_of(mark, outcome.result)}
        case _:
            return {"outcome": "done"}


def _result_of(mark: Mark, result: Any) -> dict[str, Any]:
    if result is None:
        return {}
    from groupflow.core.events import packed_result  # noqa: PLC0415  as above

    packed, wrong = packed_result(result)
    if not wrong:
        return {"result": orjson.Fragment(packed)}
    log.warning("remote.result_dropped", task=mark[1], fence=mark[0], error=wrong)
    return {"result_error": _words(wrong)}


def _words(said: object) -> str:
    return text_of(said)[:_MOST_WORDS]
