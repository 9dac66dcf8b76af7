"""Handlers behind a URL: the body is posted, the facts are headers, the status is the outcome.

2xx is done, 429 and 503 ask for a retry (after ``Retry-After``, where it is given in seconds), any
other 4xx is a dead letter, anything else has failed. A 2xx with a JSON body
``{"stage": "transcode", "context": {…}}`` names the next stage; with ``result = true`` it may say a
result and follow-up tasks.

The daemon asks for uncompressed answers and never unpacks one: a few bytes of gzip in gzip can be
gigabytes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.parse import quote

import httpx

from groupflow.core.masking import mask_parts, mask_place
from groupflow.core.outcome import Dead, Done, Outcome, Retry
from groupflow.core.task import Task
from groupflow.core.tracing import CARRIED
from groupflow.flow.batches import (
    LONGEST_ANSWER,
    Together,
    end_in,
    lines_of,
    outcomes_in,
    over_long,
)
from groupflow.flow.exec_handlers import variables_of, variables_of_all
from groupflow.flow.handling import Failed
from groupflow.settings.rules import HandlerRule

SHOWN_CHARS = 500  # that a dead letter keeps of a refusal's text
LINES = "application/x-ndjson"
_ASKS_FOR_RETRY = (429, 503)
_AS_IT_IS = ("", "identity")  # encodings of answers that are read
_SAYS = re.compile(rb'\s*{\s*"(?:stage|context|outcome)"')  # begins what is no plain output


def open_client() -> httpx.AsyncClient:
    """Open the daemon's one client. Each worker has one attempt, and so one connection at most."""
    return httpx.AsyncClient(
        timeout=None,  # noqa: S113  the attempt has a limit of its own
        limits=httpx.Limits(),  # none
        trust_env=False,  # proxies aren't meant for the operator's own handlers
        headers={"Accept-Encoding": "identity"},
        # No cookie of one task goes with the next.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
    )


class HttpRunner:
    """Posts each task of a type to one URL."""

    def __init__(self, rule: HandlerRule, url: str, client: httpx.AsyncClient) -> None:
        self._url = url
        self._client = client
        self._scope = rule.scope
        self._has_result = rule.result
        self.size = rule.batch
        self.timeout = rule.timeout
        self.retry = rule.retry()

    async def handle(self, task: Task) -> Outcome | Failed:
        """Post one task; a cancelled attempt drops the connection."""
        answer = await self._post(task.body, _headers_of(variables_of(task), "application/json"))
        if isinstance(answer, Failed):
            return answer
        response, read = answer
        if not response.is_success:
            return self._scoped(_refusal(self._url, response, read))
        if not response.headers.get("content-type", "").lower().startswith("application/json"):
            return Done()
        if failed := _packed(response):
            return failed
        return over_long() if self._loses(read) else end_in(read, has_result=self._has_result)

    def _loses(self, read: bytes) -> bool:
        """Whether more of an answer came than is read, and the rest may say something."""
        says_some = self._has_result or _SAYS.match(read) is not None
        return says_some and len(read) > LONGEST_ANSWER

    async def _post(
        self, content: bytes, headers: dict[str, str]
    ) -> tuple[httpx.Response, bytes] | Failed:
        try:
            async with self._client.stream(
                "POST", self._url, content=content, headers=headers
            ) as response:
                return response, await _read_capped(response)
        except asyncio.CancelledError as error:
            error.__traceback__ = None  # frames of the client's code say nothing
            raise
        except Exception as error:  # noqa: BLE001  the client lets errors of TLS or a pool through
            # Without a traceback: it would be the client's, with the URL in it.
            what = mask_parts(str(error), self._url) or type(error).__name__
            return Failed(type(error).__name__, f"{mask_place(self._url)} did not answer: {what}")

    def _scoped(self, outcome: Outcome | Failed) -> Outcome | Failed:
        return replace(outcome, scope=self._scope) if isinstance(outcome, Retry) else outcome


class HttpBatchRunner(Together, HttpRunner):
    """Posts several tasks of a type to one URL, a line of JSON each; the answer may be lines."""

    async def handle_all(self, tasks: Sequence[Task]) -> list[Outcome | Failed]:
        """Post several tasks; the headers have what all of them share."""
        headers = _headers_of(variables_of_all(tasks), LINES)
        answer = await self._post(lines_of(tasks), headers)
        if isinstance(answer, Failed):
            return [answer]
        response, read = answer
        if not response.is_success:  # then its text is for people
            return [self._scoped(_refusal(self._url, response, read))]
        end: Done | Failed = _packed(response) or Done()
        if self._loses(read):
            end = over_long(len(tasks))
        return outcomes_in(read[:LONGEST_ANSWER], len(tasks), end, has_result=self._has_result)


def _headers_of(variables: Mapping[str, str], content: str) -> dict[str, str]:
    """The facts as ``Groupflow-*`` headers, percent-encoded where HTTP can't carry their text."""
    facts = {name.title().replace("_", "-"): _carried(f) for name, f in variables.items()}
    return {"Content-Type": content, **CARRIED.get(), **facts}


def _carried(fact: str) -> str:
    # HTTP only loses blanks at a value's ends.
    blank = " " if fact == fact.strip() else ""
    return quote(fact, safe=blank + "!#$&'()*+,/:;<=>?@[]^`{|}~\"\\", errors="backslashreplace")


async def _read_capped(response: httpx.Response) -> bytes:
    """The answer as it came, some bytes over the most if it is; nothing where it is packed."""
    read = bytearray()
    if _encoding(response) in _AS_IT_IS:
        async for chunk in response.aiter_raw():
            read += chunk
            if len(read) > LONGEST_ANSWER:
                break
    return bytes(read)


def _encoding(response: httpx.Response) -> str:
    encoding: str = response.headers.get("content-encoding", "")
    return encoding.strip().lower()


def _refusal(url: str, response: httpx.Response, answer: bytes) -> Outcome | Failed:
    status = response.status_code
    said = answer[: SHOWN_CHARS * 4].decode(errors="backslashreplace").strip()
    said = mask_parts(said, url)[:SHOWN_CHARS]  # masked before the cut, which might halve a secret
    reason = f"HTTP {status}: {said}" if said else f"HTTP {status}"
    if status in _ASKS_FOR_RETRY:
        return Retry(after=_retry_after(response), reason=reason)
    if response.is_client_error:
        return Dead(reason)
    return Failed("HTTPStatus", reason)


def _retry_after(response: httpx.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    return float(value) if value.isdecimal() else None


def _packed(response: httpx.Response) -> Failed | None:
    """A failure for an answer that can't be read: taken for done, it would lose what it says."""
    encoding = _encoding(response)
    if encoding in _AS_IT_IS:
        return None
    return Failed(
        "ContentEncoding",
        f"HTTP {response.status_code} came with Content-Encoding {encoding[:80]!a}, though "
        "identity was asked for: have the handler answer without it",
        is_final=True,
    )
