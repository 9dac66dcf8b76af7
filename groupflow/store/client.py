"""A client of one Redis: runs scripts over a wire of its own, and leaves the rest to redis-py.

Nothing here retries what may have run. A call whose reply was lost may have run. So each script may
run again with the same arguments, and the callers retry, who know how long to try. A call that a
node refused, since another node has the keys now, didn't run, and goes there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from time import monotonic, perf_counter
from typing import Any, TypeAlias

from redis.exceptions import RedisError

from groupflow.core.errors import GroupflowError, StoreUnavailable
from groupflow.core.measures import EXCHANGE, ScriptMeasures
from groupflow.store.epochs import Epoch, ask_epoch
from groupflow.store.hearing import StoreHearing
from groupflow.store.keys import Keys
from groupflow.store.layout import REFUSED, compare
from groupflow.store.node import NodeClient
from groupflow.store.refusals import has_moved, is_unknown_script, translated
from groupflow.store.scripts import UNTOLD, AnyVerb, Order, Scripts, Telling
from groupflow.store.wire import Packed, ReplicaWait, Wire, pack

Argument: TypeAlias = str | bytes | int
Call: TypeAlias = tuple[AnyVerb, Sequence[Argument]]

LOOK = 0.5  # seconds between two looks whether a node that doesn't answer still leads


class _NotYet(StoreUnavailable):
    """Redis answers, but this daemon's session can't go on there yet."""


class StoreClient(NodeClient):
    """Runs scripts on one Redis, several in one round trip where wanted."""

    def __init__(
        self,
        url: str,
        keys: Keys,
        order: Order = "oldest",
        *,
        timeout: float = 5.0,
        measures: ScriptMeasures | None = None,
        partitions: int = 0,
        hearing: StoreHearing | None = None,
        telling: Telling = UNTOLD,
    ) -> None:
        """Connects on first use.

        The timeout (seconds) is for a connection; for a script, without a byte of an answer. If
        the namespace has another number of `partitions`, scripts bring nothing in, unless that is
        0.
        """
        super().__init__(url, keys, timeout)
        self._hearing = hearing
        self._order, self._partitions, self._told = order, partitions, telling
        self._front = keys.front
        self._measures = measures or ScriptMeasures()
        in_cluster = self._topology.is_cluster
        self.scripts = Scripts(order, in_cluster=in_cluster, partitions=partitions, telling=telling)
        self._wire: Wire | None = None
        self._watch: asyncio.Task[None] | None = None
        self._preparing = asyncio.Lock()  # calls made meanwhile wait their turn

    @property
    def extended(self) -> float:
        """When scripts were last given more time, as their answer was coming (monotonic), or 0.

        From any thread.
        """
        wire = self._wire
        return 0.0 if wire is None else wire.extended

    def beside(self, keys: Keys) -> StoreClient:
        """Another client of the same Redis, for other keys."""
        return StoreClient(self._url, keys, self._order, timeout=self._timeout, telling=self._told)

    async def run(self, verb: AnyVerb, *arguments: Argument) -> Any:
        """Run one script.

        Raises:
            StoreUnavailable: no answer; the script may have run.
            StoreFull: Redis is out of memory; nothing was written.
            OtherLayout: the namespace was moved meanwhile; nothing was written.
            ServerUnreachable: Redis refused the credentials.
        """
        return (await self.run_all([(verb, arguments)]))[0]

    async def run_all(self, calls: Sequence[Call], epoch: Epoch | None = None) -> list[Any]:
        """Run scripts in the order given, in one round trip; each is atomic, the whole is not.

        Redis runs this client's calls in the order in which they were made, as long as it answers:
        no call overtakes another, even if a connection must be opened or a script loaded first.

        Args:
            calls: which scripts, with what.
            epoch: runs them in it or nowhere.

        Raises:
            StoreUnavailable: no answer to at least one; any of them may have run.
            StoreFull: Redis is out of memory; those before the refused one may have run.
        """
        verb = calls[0][0] if len(calls) == 1 else EXCHANGE
        rooms = {type(each) for each, _ in calls}
        packed = [self._packed(*call) for call in calls]
        replies, _ = await self._measured(verb, packed, rooms, epoch)
        return replies

    async def run_replicated(
        self,
        verb: AnyVerb,
        arguments: Sequence[Argument],
        replica_wait: ReplicaWait | None,
        *laid: Argument,
        epoch: Epoch | None = None,
    ) -> tuple[Any, int, Wire]:
        """Run one script, and wait until replicas have what it wrote.

        Args:
            verb: which script.
            arguments: with what.
            replica_wait: how many replicas; ``None`` waits for none.
            laid: a kind of key, a field and a value which is too large for a script. Redis puts it
                there, unless the field has a value, right in front of the script: no other command
                runs between, and neither runs without the other.
            epoch: runs it in that one or nowhere.

        Returns:
            Its answer, how many have it, and the connection: a caller that waits on it again
            (`ReplicaWait.wait`) waits for the same.

        Raises:
            StoreUnavailable: no answer; the script may have run.
            StoreFull: Redis is out of memory; nothing was written.
        """
        packed = [self._packed(verb, arguments)]
        if laid:
            kind, *value = laid
            # If Redis didn't know the script, the value would stay behind: so it is loaded there.
            packed = [
                pack("MULTI"),
                pack("SCRIPT", "LOAD", self.scripts[verb].text),
                pack("HSETNX", self.keys(str(kind)), *value),
                *packed,
                pack("EXEC"),
            ]
        number = len(packed)
        if replica_wait is not None:
            packed.append(replica_wait.command)
        replies, wire = await self._measured(verb, packed, {type(verb)}, epoch)
        reply = replies[number - 1]
        if laid:
            reply = reply[-1]
            self._refuse(reply)
        return reply, replies[-1] if replica_wait else 0, wire

    async def read_apart(self, id_: str) -> tuple[bytes | None, bytes | None]:
        """A task's envelope and its context, which may be too large for a script.

        Raises:
            StoreUnavailable: no answer.
        """
        packed = [
            pack("HGET", self.keys("tasks"), id_),
            pack("HGET", self.keys("task_state", id_), "context"),
        ]
        (envelope, context), _ = await self._measured("values", packed, set())
        return envelope, context

    def _packed(self, verb: AnyVerb, arguments: Sequence[Argument]) -> Packed:
        return pack("EVALSHA", self.scripts[verb].sha, 1, self._front, *arguments)

    async def _measured(
        self,
        verb: str,
        packed: list[Packed],
        rooms: Set[type[AnyVerb]],
        epoch: Epoch | None = None,
    ) -> tuple[list[Any], Wire]:
        began = perf_counter()
        try:
            replies, wire = await self._answers(packed, rooms, epoch)
        except GroupflowError as error:
            self._measures.fail(verb)
            is_silent = isinstance(error, StoreUnavailable) and not isinstance(error, _NotYet)
            if is_silent and self._hearing is not None:
                self._hearing.failed(self._front, str(error))
            raise
        if self._hearing is not None and self._hearing.is_away:
            self._hearing.answered(self._front)
        self._measures.observe(verb, perf_counter() - began)
        return replies, wire

    async def _answers(
        self, packed: list[Packed], rooms: Set[type[AnyVerb]], epoch: Epoch | None
    ) -> tuple[list[Any], Wire]:
        may_load, may_move = True, self._topology.moves
        while True:
            replies, wire = await self._send(packed, epoch)
            if not [reply for reply in replies if isinstance(reply, Exception)]:
                return replies, wire
            if may_load and any(is_unknown_script(reply) for reply in replies):
                # Redis was restarted. What ran already runs again, as after a lost reply.
                may_load = False
                await self._load(rooms)
                continue
            if any(has_moved(reply) for reply in replies):
                if wire is self._wire:  # else another call was told the same, and has left
                    self._leave()
                if may_move:
                    may_move, may_load = False, True  # the other node may know no script
                    continue
            for reply in replies:
                self._refuse(reply)

    def _refuse(self, reply: Any) -> None:
        if isinstance(reply, Exception):
            word, *noted = str(reply).split(" ")
            if word == REFUSED:
                compare(self.keys.namespace, self._partitions, *map(int, noted))
            raise translated(reply, self.address) from reply

    async def _send(self, packed: list[Packed], epoch: Epoch | None) -> tuple[list[Any], Wire]:
        """Write all calls at once and read their replies; an error reply is a value here.

        Returns:
            The replies, and where they came from.
        """
        until = monotonic() + self._timeout
        try:
            wire = self._wire
            if wire is None or not wire.is_open or self._preparing.locked():
                wire = await self._open(until)
            if epoch is not None and wire.epoch != epoch.id:
                wire = await self._open(until, epoch)
            return await wire.call(packed, _left(until)), wire
        except TimeoutError as error:
            what = f"no answer within {self._timeout} s"
            raise StoreUnavailable(f"Redis at {self.address} does not answer: {what}") from error
        except (RedisError, OSError) as error:
            raise translated(error, self.address) from error

    async def _open(self, until: float, epoch: Epoch | None = None) -> Wire:
        async with self._preparing:
            wire = await self._connected(until)
            if epoch is not None:
                await self._enter(wire, epoch, until)
            return wire

    async def _connected(self, until: float) -> Wire:
        """The open connection, or a new one; to be called while `_preparing` is held."""
        if self._wire is None or not self._wire.is_open:
            self._leave()
            self._node, self._wire = await self._topology.open(_left(until))
            if self._topology.moves:
                self._watch = asyncio.create_task(self._look_after(self._wire))
        return self._wire

    async def _enter(self, wire: Wire, epoch: Epoch, until: float) -> None:
        """Make sure that a connection is of an epoch."""
        if wire.epoch is None:
            wire.epoch = await ask_epoch(wire, _left(until))
        if wire.epoch != epoch.id:
            if wire.opened < epoch.since:  # the daemon has gone on to another server meanwhile
                self._leave()
            raise _NotYet(
                f"Redis at {self.address} restarted, or another server leads: this daemon's "
                "session isn't known to go on there yet"
            )

    def _leave(self) -> None:
        """The node doesn't serve any more, or is gone: the next call asks where to go."""
        self._node = ""
        if self._wire is not None:
            self._wire.close()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def _look_after(self, wire: Wire) -> None:
        """Give a connection up once another node serves, and don't wait for its answer."""
        node, seen = self._node, None
        while wire.is_open:
            await asyncio.sleep(LOOK)
            waits = wire.oldest
            if waits is not None and waits is seen:
                with suppress(RedisError, OSError):  # no answer says nothing
                    if await self._topology.find(LOOK) != node:
                        wire.close()
            seen = waits

    async def _load(self, rooms: Iterable[type[AnyVerb]]) -> None:
        """Load all scripts of a room at once: of several calls, none is then run before another."""
        loads = [pack("SCRIPT", "LOAD", self.scripts[verb].text) for room in rooms for verb in room]
        until = monotonic() + self._timeout
        with self._telling():
            async with self._preparing:
                wire = await self._connected(until)
                replies = await wire.call(loads, _left(until))
        for reply in replies:
            self._refuse(reply)

    async def close(self) -> None:
        self._leave()
        await super().close()


def _left(until: float) -> float:
    """Seconds until then. A call that waited that long for a connection sends nothing on it.

    Raises:
        TimeoutError: the time is over.
    """
    left = until - monotonic()
    if left <= 0:
        raise TimeoutError
    return left
