"""Which node serves a namespace now: the only one, a cluster's for its slot, or Sentinel's primary.

All nodes are asked at once which one leads, and most of them are believed: a node that was cut off
may still take itself for the primary, and a frozen one says nothing. Only the names of nodes are
kept of an answer; each new connection asks again.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any, ClassVar, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlunsplit

from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from groupflow.settings.transport import (
    CLUSTER,
    PORT,
    SENTINEL,
    SENTINEL_PORT,
    address_of,
    split_hosts,
    split_url,
)
from groupflow.store.wire import Packed, Wire, Wires, pack

FURTHER_WITHIN = 0.3  # seconds for further answers once there is one
KNOWN = 100  # nodes that are remembered; the configured ones always are


class Topology(ABC):
    """Says where the node is that serves now."""

    moves: ClassVar[bool] = True  # whether it may be another one later
    is_cluster: ClassVar[bool] = False

    @abstractmethod
    async def open(self, timeout: float) -> tuple[str, Wire]:
        """Find the node and connect, within so many seconds for all of it.

        Returns:
            The node's URL, and the connection.

        Raises:
            TimeoutError: it took longer.
            OSError: no server is there, or TLS failed.
            AuthenticationError: the credentials were refused.
            redis.exceptions.RedisError: the connection broke, or no node knows which one serves.
        """

    @abstractmethod
    async def find(self, timeout: float) -> str:
        """The URL of the node that serves now. Raises what `open` does."""


def topology_of(url: str, key: str) -> Topology:
    """How to find the node of a URL.

    Args:
        url: ``redis://``, ``rediss://``, ``unix://``; the first two with ``+cluster`` or
            ``+sentinel``, and several nodes.
        key: one with the slot of all others: in a cluster that decides.
    """
    scheme = split_url(url).scheme
    if scheme.endswith(CLUSTER):
        return InCluster(url, key)
    if scheme.endswith(SENTINEL):
        return BySentinel(url)
    return Fixed(url)


class Fixed(Topology):
    """One server, for good."""

    moves = False

    def __init__(self, url: str) -> None:
        self._url = url
        self._wires = Wires(url)

    async def open(self, timeout: float) -> tuple[str, Wire]:
        """Connect."""
        return self._url, await self._wires.open(timeout)

    async def find(self, timeout: float) -> str:  # noqa: ARG002
        """The server."""
        return self._url


class _Several(Topology):
    """The node that most of those asked name."""

    def __init__(self, asked: Nodes, serving: Nodes, question: Packed) -> None:
        self._asked, self._serving, self._question = asked, serving, question

    async def open(self, timeout: float) -> tuple[str, Wire]:
        """Connect to it."""
        until = monotonic() + timeout
        node = await self.find(timeout)
        return node, await Wires(node).open(until - monotonic())

    async def find(self, timeout: float) -> str:
        """The node that most say it is."""
        said = await most_say(self._asked.all, self._ask, timeout)
        return self._serving.at(*said)

    @abstractmethod
    async def _ask(self, node: str, timeout: float) -> HostAndPort:
        """What one of them says."""


class InCluster(_Several):
    """The node of a Redis Cluster that has the slot of a key. It says so itself once it hasn't.

    Each node is asked for the key, and answers or names the node that has it. So this needs no
    right that a script doesn't need, and nothing has to know how slots are counted.
    """

    is_cluster = True

    def __init__(self, url: str, key: str) -> None:
        nodes = Nodes(url)
        super().__init__(nodes, nodes, pack("EXISTS", key))

    async def told(self, timeout: float) -> dict[str, str]:
        """Where each answering node says the slot is, as host and port by host and port."""
        nodes = self._asked.all
        answers = await asyncio.gather(
            *(self._ask(node, timeout) for node in nodes), return_exceptions=True
        )
        return {
            address_of(node): "{}:{}".format(*said)
            for node, said in zip(nodes, answers, strict=True)
            if not isinstance(said, BaseException)
        }

    async def _ask(self, node: str, timeout: float) -> HostAndPort:
        answer = await _ask(node, self._question, timeout)
        if not isinstance(answer, ResponseError):
            return address_in(node)
        reason, *rest = str(answer).split(" ")
        if reason == "MOVED":
            host, _, port = rest[-1].rpartition(":")
            # A cluster that knows no name of a node leaves it out: it is where this one is.
            return host or address_in(node)[0], int(port)
        if reason == "ASK":  # it is about to give the slot away, and has it until then
            return address_in(node)
        raise answer


class BySentinel(_Several):
    """The primary that Sentinels watch under a name."""

    def __init__(self, url: str) -> None:
        parts = split_url(url)
        name, _, database = parts.path.lstrip("/").partition("/")
        self._name = unquote(name)
        query = dict(parse_qsl(parts.query))
        user, password = query.pop("sentinel_user", ""), query.pop("sentinel_password", "")
        rest = parts._replace(path=f"/{database or 0}", query=urlencode(query))
        sentinels = Nodes(urlunsplit(rest._replace(path="")), (user, password))
        question = pack("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._name)
        super().__init__(sentinels, Nodes(urlunsplit(rest)), question)

    async def open(self, timeout: float) -> tuple[str, Wire]:
        """Connect to the primary, and make sure that it knows that it is."""
        until = monotonic() + timeout
        node, wire = await super().open(timeout)
        try:
            (hello,) = await wire.call([pack("HELLO", 2)], until - monotonic())
            if isinstance(hello, Exception):
                raise hello
            role = dict(zip(hello[::2], hello[1::2], strict=True)).get(b"role")
            if role != b"master":
                raise RedisConnectionError(f"Sentinel names {address_of(node)}, which is a replica")
        except BaseException:
            wire.close()
            raise
        return node, wire

    async def quorum(self, timeout: float) -> list[str]:
        """What each Sentinel says about whether enough of them could replace the primary.

        One that doesn't answer says so too; all is well where each begins with ``OK``.
        """
        question = pack("SENTINEL", "CKQUORUM", self._name)

        async def ask(sentinel: str) -> str:
            try:
                answer = await _ask(sentinel, question, timeout)
            except (RedisError, OSError) as error:
                return f"{address_of(sentinel)}: {error or 'no answer'}"
            if isinstance(answer, bytes):
                return answer.decode(errors="replace")
            return f"{address_of(sentinel)}: {answer}"

        return await asyncio.gather(*map(ask, self._asked.all))

    async def _ask(self, node: str, timeout: float) -> HostAndPort:
        answer = await _ask(node, self._question, timeout)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            raise RedisConnectionError(f"Sentinel knows no primary named {self._name!r}")
        host, port = answer
        return host.decode(), int(port)


class Nodes:
    """The nodes of a URL and those heard of since, each as a URL of its own."""

    def __init__(self, url: str, credentials: tuple[str, str] | None = None) -> None:
        """Reads the URL; `credentials` are a user and a password in place of those in it."""
        self._parts = split_url(url)
        self._scheme = self._parts.scheme.partition("+")[0]
        front, at, hosts = self._parts.netloc.rpartition("@")
        if credentials is not None:
            user, password = (quote(each, safe="") for each in credentials)
            front, at = (f"{user}:{password}", "@") if password else ("", "")
        self._front = front + at
        port = SENTINEL_PORT if self._parts.scheme.endswith(SENTINEL) else PORT
        self._own = [self._url(*each) for each in split_hosts(hosts, port)]
        self._heard: dict[str, None] = {}

    @property
    def all(self) -> list[str]:
        """Those of the URL first, then the others, the last heard of first."""
        return list(dict.fromkeys([*self._own, *reversed(self._heard)]))

    def at(self, host: str, port: int) -> str:
        """The URL of a node, which it remembers."""
        url = self._url(host, port)
        self._heard.pop(url, None)
        self._heard[url] = None
        while len(self._heard) > KNOWN:
            del self._heard[next(iter(self._heard))]
        return url

    def _url(self, host: str, port: int) -> str:
        host = f"[{host}]" if ":" in host else host
        parts = self._parts._replace(scheme=self._scheme, netloc=f"{self._front}{host}:{port}")
        return urlunsplit(parts)


def address_in(url: str) -> tuple[str, int]:
    """Host and port of a node's URL."""
    parts = split_url(url)
    return parts.hostname or "localhost", parts.port or 0


HostAndPort: TypeAlias = tuple[str, int]
AskNode: TypeAlias = Callable[[str, float], Awaitable[HostAndPort]]


async def most_say(nodes: Sequence[str], ask: AskNode, timeout: float) -> HostAndPort:
    """Ask all nodes at once where to go, and believe most of those that answer.

    More than half of all decide at once. Else those that answer within a moment of the first do,
    and on a tie the first of them.

    Args:
        nodes: which ones.
        ask: asks one, within so many seconds.
        timeout: seconds.

    Raises:
        TimeoutError: no node answered in time.
        redis.exceptions.RedisError: the refusal that says most.
        OSError: no node is there.
    """
    until = monotonic() + timeout
    asking = {asyncio.ensure_future(ask(node, timeout)) for node in nodes}
    votes: Counter[HostAndPort] = Counter()
    refusals: list[BaseException] = []
    try:
        while asking:
            done, asking = await asyncio.wait(
                asking, timeout=max(0.0, until - monotonic()), return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                error = each.exception()
                if error is None:
                    votes[each.result()] += 1
                else:
                    refusals.append(error)
            if not done:
                break
            if votes:
                until = min(until, monotonic() + FURTHER_WITHIN)
                if votes.most_common(1)[0][1] * 2 > len(nodes):
                    break
    finally:
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    if votes:
        return votes.most_common(1)[0][0]
    raise min(refusals, key=_weight, default=TimeoutError())


def _weight(error: BaseException) -> int:
    """The error that says most about why no node could tell sorts first."""
    kinds = (AuthenticationError, ResponseError, RedisError, OSError)
    return next((n for n, kind in enumerate(kinds) if isinstance(error, kind)), len(kinds))


async def _ask(node: str, question: bytes, timeout: float) -> Any:
    wire = await Wires(node).open(timeout)
    try:
        (answer,) = await wire.call([question], timeout)
        return answer
    finally:
        wire.close()
