"""A worker that pulls, and messages for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from groupflow.store.enqueue import Arrival
from groupflow.store.given import Claim
from groupflow.store.pulling import Poll, Puller, Pulling
from groupflow.store.settlements import Complete, Settlement
from tests.store.bench import LEASE, Bench, arrival, ids

POOL = "couriers"


def pooled(id_: str, group: str | None = None, pool: str = POOL, **facts: Any) -> Arrival:
    """A message of a type that a pool has."""
    plain = arrival(id_, group, **facts)
    return replace(plain, envelope=replace(plain.envelope, named_pool=pool))


class Worker:
    """A worker that pulls, with a process of its own for each call."""

    def __init__(self, bench: Bench, name: str = "anna", pool: str = POOL, most: int = 0) -> None:
        self.bench = bench
        self.puller = Puller(pool, name, LEASE, most)
        self.store = Pulling(bench.client, 8.0)

    async def poll(self, limit: int = 0, *, opens: bool = True) -> Poll:
        """What it holds, and what it may claim."""
        return await self.store.poll(self.puller, limit, opens=opens)

    async def claim(self, limit: int) -> list[Claim]:
        """Top up to a limit, in one round."""
        poll = await self.poll(limit)
        groups = sum(head.is_group for head in poll.heads)
        return await self.store.claim(poll, groups=groups, plain=len(poll.heads) - groups)

    async def settle(self, *settlements: Settlement) -> list[Settlement]:
        """Settle claims; those that were refused."""
        return await self.store.settle(await self.poll(), settlements)

    async def complete(self, *claims: Claim) -> list[Settlement]:
        """The same, as done."""
        return await self.settle(*(Complete(claim) for claim in claims))

    async def held(self) -> list[str]:
        """The tasks that it holds."""
        found = await self.store.holdings(self.puller.daemon)
        return ids([claim for claim, _ in found.claims])

    def expire(self) -> None:
        """Let its lease have run out."""
        self.bench.raw.zadd(
            self.bench.keys("pool_pullers", self.puller.pool), {self.puller.daemon: 1}
        )
