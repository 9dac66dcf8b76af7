"""What only RabbitMQ's management API tells: how queues are bound, and which node leads each.

Asked only where `rabbitmq.management` is set. It needs a user with the tag *monitoring*, which
daemons don't need.
"""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import quote, unquote

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from groupflow.broker import partitions as broker
from groupflow.core.checkup import Check
from groupflow.core.masking import mask_place
from groupflow.core.urls import split_url
from groupflow.settings.transport import split_tls

BINDINGS = "rabbitmq.bindings"
LEADERS = "rabbitmq.leaders"

_ANSWER_BYTES = 1024 * 1024  # of an answer, at most
_COLUMNS = "name,type,leader,members,online"
_REBALANCE = (
    "`rabbitmq-queues rebalance quorum` spreads them over the nodes; it is wanted after a restart "
    "of one."
)


_Told = TypeVar("_Told")


class Queue(BaseModel):
    """A queue, as the API tells of it."""

    name: str
    leader: str = ""  # the node; empty where it isn't a quorum queue, or has no leader
    members: list[str] = []
    online: list[str] = []


class _Binding(BaseModel):
    destination: str
    routing_key: str


_QUEUE, _BOUND = TypeAdapter(Queue), TypeAdapter(list[_Binding])


UNTOLD = Check(
    LEADERS,
    "ok",
    "RabbitMQ tells nobody by AMQP how queues are bound, nor who leads them",
    "Set rabbitmq.management, or see `rabbitmqctl list_bindings` and `list_queues name leader`.",
)


class _Unanswered(Exception):
    """Why there is no answer to judge."""


async def examine_management(
    url: str, amqp_url: str, queue: str, partitions: int, timeout: float
) -> list[Check]:
    """Whether all partitions are bound, and are led and held by more than one node.

    Args:
        url: of the API, with a user.
        amqp_url: where daemons connect to: it names the virtual host, and the CA to trust.
        queue: which is consumed.
        partitions: in how many.
        timeout: seconds for each answer.
    """
    amqp_url, tls = split_tls(amqp_url)
    verify = tls or ssl.create_default_context()
    async with httpx.AsyncClient(timeout=timeout, trust_env=False, verify=verify) as client:
        vhost = unquote(split_url(amqp_url).path[1:]) or "/"
        api = _Api(client, url.rstrip("/"), quote(vhost, safe=""))
        try:
            queues = [await api.queue(name) for name in broker.names_of(queue, partitions)]
            there = [each for each in queues if each is not None]
            checks = [judge_leaders(there)] if there else []
            if partitions > 1:
                checks.insert(0, await _bindings(api, queue, partitions))
        except _Unanswered as error:
            remedy = (
                "Is rabbitmq.management right: http(s)://user:password@host:15672, the user with "
                "the tag `monitoring`, the plugin rabbitmq_management enabled?"
            )
            return [Check("rabbitmq.management", "warn", f"{mask_place(url)}: {error}", remedy)]
    return checks


class _Api:
    def __init__(self, client: httpx.AsyncClient, url: str, vhost: str) -> None:
        self._client, self._url, self._vhost = client, url, vhost

    async def queue(self, name: str) -> Queue | None:
        told = await self._get(f"queues/{self._vhost}/{quote(name, safe='')}?columns={_COLUMNS}")
        return None if told is None else _read(_QUEUE, told)

    async def bound_to(self, exchange: str) -> list[_Binding]:
        at = f"exchanges/{self._vhost}/{quote(exchange, safe='')}/bindings/source"
        told = await self._get(at)
        return [] if told is None else _read(_BOUND, told)

    async def _get(self, path: str) -> bytes | None:
        """The body of an answer; ``None`` where there is no such thing."""
        try:
            async with self._client.stream("GET", f"{self._url}/api/{path}") as answer:
                if answer.status_code == httpx.codes.NOT_FOUND:
                    return None
                if answer.status_code != httpx.codes.OK:
                    raise _Unanswered(f"it answered {answer.status_code}")
                body = b""
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > _ANSWER_BYTES:
                        raise _Unanswered("its answer has no end")
                return body
        except (httpx.HTTPError, OSError) as error:
            raise _Unanswered(str(error) or type(error).__name__) from error


def _read(kind: TypeAdapter[_Told], body: bytes) -> _Told:
    try:
        return kind.validate_json(body)
    except ValidationError:
        raise _Unanswered("its answer isn't that of RabbitMQ's management API") from None


async def _bindings(api: _Api, queue: str, partitions: int) -> Check:
    ring = broker.ring_of(queue)
    bound = {each.destination for each in await api.bound_to(ring)}
    names = broker.names_of(queue, partitions)
    missing = [name for name in names if name not in bound]
    foreign = sorted(bound - set(names))
    joined = [each.destination for each in await api.bound_to(queue)]
    problems = [
        *([f"not bound: {', '.join(missing)}"] if missing else []),
        *([f"bound besides: {', '.join(foreign)}"] if foreign else []),
        *([] if joined == [ring] else [f"{queue!r} leads to {joined or 'nothing'}, not {ring!r}"]),
    ]
    if not problems:
        return Check(BINDINGS, "ok", f"all {partitions} queues are bound to {ring!r}")
    remedy = (
        f"Delete the exchange {ring!r} and start a daemon, which declares it anew. Until then "
        "messages are handed back to their publishers, or go to a queue that nobody consumes."
    )
    return Check(BINDINGS, "fail" if foreign else "warn", "; ".join(problems), remedy)


def judge_leaders(queues: Sequence[Queue]) -> Check:
    """Whether each queue has a leader and all its copies, and leaders are spread over the nodes."""
    led = Counter(each.leader for each in queues)
    nodes = {node for each in queues for node in each.members}
    leaderless = [each.name for each in queues if not each.leader]
    if leaderless:
        found = f"nobody leads {', '.join(leaderless)}: too few of its nodes are there"
        return Check(LEADERS, "fail", found, "Start the nodes that are away.")
    away = sorted({node for each in queues for node in each.members if node not in each.online})
    if away:
        found = f"copies are away: on {', '.join(away)}"
        return Check(LEADERS, "warn", found, "Start those nodes: one more may be one too many.")
    told = ", ".join(f"{node} leads {count}" for node, count in sorted(led.items()))
    if len(queues) > 1 and len(nodes) > 1 and len(led) == 1:
        return Check(LEADERS, "warn", f"all on one node: {told}", _REBALANCE)
    return Check(LEADERS, "ok", f"{told} of {len(queues)}")
