"""The publisher of a soak: known ids, known order, every publish repeated until it is confirmed.

A few lanes publish side by side, each the only one for its groups and each with one message in the
air. A message that was not confirmed is published again, under the same id, before its lane goes
on. So the order of the first confirms is, within each group, the order of first acceptance.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass, replace
from itertools import count, cycle, islice

import orjson

from groupflow.broker.publisher import Outgoing, TermPublisher, publishing
from groupflow.core.errors import BrokerUnavailable, PublishFailed, ServerUnreachable
from tests.history.configuration import MAX_BODY, QUEUE, TENANT
from tests.history.events import Journal, published
from tests.verification.pacing import pause

LANES = 6
# Of lanes whose groups have a rule of their own.
_RULES = {LANES - 1: "several", LANES - 2: "runs", LANES - 3: "bursts", LANES - 4: "batches"}
GROUPS = 4  # of a lane, at a time
EPOCH = 200  # messages of a lane, after which it goes on with new groups
CONFIRM_WITHIN = 4.0
LARGE_HEADERS, TOO_LARGE_HEADERS = 60_000, 100_000  # bytes; rabbitmq.max_headers is between

_KINDS = ("work", "slow", "thread", "flaky", "stages", "bad")
_WEIGHTS = (59, 15, 12, 6, 6, 2)
_QUICK = ("work", "thread", "flaky")  # of these, a lane of batches has others
_POISON = ("no json", "no object", "unknown", "no key", "too large", "bad")


@dataclass(frozen=True, slots=True)
class Message:
    """A message and what it is to become.

    Attributes:
        outgoing: what is published.
        group: its group, ``None`` for a plain task and for what can't be routed.
        n: its number, carried in its body.
        tenant: its tenant.
        at_once: whether its lane publishes it without waiting for its turn.
    """

    outgoing: Outgoing
    group: str | None = None
    n: int = 0
    tenant: str | None = TENANT
    at_once: bool = False


class Workload:
    """Publishes at a steady rate until it is told to stop.

    Attributes:
        repeated: how many had to be made again.
        ids: of all tasks that were confirmed.
    """

    def __init__(self, url: str, journal: Journal, seed: int, *, rate: float) -> None:
        """Describe a workload.

        Args:
            url: of RabbitMQ, or a proxy before it.
            journal: where confirmed publishes are written down.
            seed: of what is published.
            rate: messages a second in all.
        """
        self.repeated = 0
        self.ids: set[str] = set()
        self._url = url
        self._journal = journal
        self._lanes = [_Lane(number, seed) for number in range(LANES)]
        self._every = LANES / rate
        self._may_publish = asyncio.Event()
        self._may_publish.set()
        self._confirmed = asyncio.Event()
        self._is_ending = False

    async def run(self) -> None:
        """Publish until `stop`."""
        await asyncio.gather(*(self._run_lane(lane) for lane in self._lanes))

    def stop(self) -> None:
        """Make no new messages; what is in the air is still published until it is confirmed."""
        self._is_ending = True
        self._may_publish.set()

    def inject(self, kind: str, *, grouped: bool = True) -> None:
        """Publish one more task of a type, soon."""
        lane = self._lanes[0]
        lane.extra.append(lane.make(kind, grouped=grouped))

    def inject_poison(self, count: int) -> None:
        """Publish messages that no handler can work on, among the others."""
        for lane in islice(cycle(self._lanes), count):
            lane.extra.append(lane.make_poison())

    def inject_headers(self, count: int) -> None:
        """Publish messages with large headers that aren't UTF-8, as fast as they are confirmed."""
        for number, lane in enumerate(islice(cycle(self._lanes), count)):
            lane.extra.append(lane.make_headers(too_large=number // LANES % 2 == 0))

    def inject_duplicates(self, count: int) -> None:
        """Publish some of the latest messages once more."""
        for lane in self._lanes:
            latest = list(lane.latest)
            lane.extra.extend(latest[-count // LANES :])

    async def pause(self, within: float) -> bool:
        """Publish nothing more for now. True once everything in the air is confirmed."""
        self._may_publish.clear()
        try:
            async with asyncio.timeout(within):
                while any(lane.in_air is not None for lane in self._lanes):
                    self._confirmed.clear()
                    await self._confirmed.wait()
        except TimeoutError:
            return False
        return True

    def resume(self) -> None:
        """Publish again."""
        self._may_publish.set()

    async def _run_lane(self, lane: _Lane) -> None:
        while not (self._is_ending and lane.is_empty):
            try:
                async with publishing(self._url, QUEUE, timeout=CONFIRM_WITHIN) as publisher:
                    await self._publish(lane, publisher)
            except (BrokerUnavailable, PublishFailed, ServerUnreachable):
                await pause(0.1)

    async def _publish(self, lane: _Lane, publisher: TermPublisher) -> None:
        while True:
            if lane.in_air is None:
                if not (lane.extra and lane.extra[0].at_once):
                    await pause(self._every)
                await self._may_publish.wait()
                if self._is_ending and not lane.extra:
                    return
                lane.in_air = lane.extra.popleft() if lane.extra else lane.make_any()
            else:
                self.repeated += 1
            message = lane.in_air
            await publisher.publish(message.outgoing)
            id_ = message.outgoing.message_id
            self._journal.write(published(id_, message.group, message.tenant, message.n))
            self.ids.add(id_)
            lane.latest.append(message)
            lane.in_air = None
            self._confirmed.set()


class _Lane:
    """What one lane publishes, in which order."""

    def __init__(self, number: int, seed: int) -> None:
        self.in_air: Message | None = None
        self.extra: deque[Message] = deque()
        self.latest: deque[Message] = deque(maxlen=100)
        self._number = number
        self._chance = random.Random(f"lane {number} of {seed}")
        self._count = count(1)

    @property
    def is_empty(self) -> bool:
        """Whether everything was confirmed."""
        return self.in_air is None and not self.extra

    def make_any(self) -> Message:
        """The next message of the steady stream."""
        if self.latest and self._chance.random() < 0.02:
            return self._chance.choice(list(self.latest))
        if self._chance.random() < 0.01:
            return self.make_poison()
        kind = self._chance.choices(_KINDS, _WEIGHTS)[0]
        if _RULES.get(self._number) == "batches" and kind in _QUICK:
            kind = "batch"
        return self.make(kind, grouped=self._chance.random() < 0.8)

    def make(self, kind: str, *, grouped: bool) -> Message:
        """A message of a type, in one of the lane's groups or plain."""
        body = self._body(kind, grouped=grouped)
        group = f"{body['entity']}:{TENANT}" if grouped else None
        headers = {} if grouped or self._chance.random() > 0.05 else {"x-delay": 150}
        outgoing = Outgoing(orjson.dumps(body), kind, str(body["id"]), headers)
        return Message(outgoing, group, int(body["n"]))

    def make_poison(self) -> Message:
        """A message that can only end as a dead letter."""
        kind = self._chance.choice(_POISON)
        if kind in ("unknown", "bad"):
            return self.make(kind, grouped=True)
        body = self._body("work", grouped=True)
        id_ = str(body["id"])
        if kind == "no key":
            del body["entity"]
        broken = {"no json": b'{"app_name": "soak", ', "no object": b"[1, 2]"}
        whole = body | {"filler": "x" * MAX_BODY} if kind == "too large" else body
        packed = broken.get(kind) or orjson.dumps(whole)
        return Message(Outgoing(packed, "work", id_), None, int(body["n"]), None)

    def make_headers(self, *, too_large: bool) -> Message:
        """A message with large headers: a task like others, or a dead letter."""
        message = self.make("work", grouped=True)
        size = TOO_LARGE_HEADERS if too_large else LARGE_HEADERS
        headers = {"x": bytearray(b"\xff\xc3" * (size // 2))}
        flood = replace(message, outgoing=replace(message.outgoing, headers=headers), at_once=True)
        return replace(flood, group=None, tenant=None) if too_large else flood

    def _body(self, kind: str, *, grouped: bool) -> dict[str, int | str]:
        n = next(self._count)
        rule = _RULES.get(self._number, "")
        entity = f"{rule or 'e'}-{self._number}-{n // EPOCH}-{self._chance.randrange(GROUPS)}"
        app = f"soak-{rule}" if rule else "soak"
        id_, app = f"{kind.replace(' ', '-')}-{self._number}-{n}", app if grouped else "plain"
        return {"id": id_, "app_name": app, "tenant_id": TENANT, "entity": entity, "n": n}
