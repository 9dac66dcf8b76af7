"""Daemons and workers of a story: they claim, and settle."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from groupflow.store.envelope import Pool
from groupflow.store.given import Claim
from groupflow.store.settlements import Complete, Proceed
from tests.store.bench import Bench, Daemon
from tests.store.task_state import POOLS, Standing
from tests.store.words import WAYS, compare, made, pool_of
from tests.store.worker import Worker

PULLERS = frozenset({"anna", "carl", "zoe", "olga"})
MANY = 9  # idle workers, where all is claimed that may be


class Actors:
    """A store, and the daemons and workers that act on it.

    Attributes:
        shop: the store.
        claims: of each task, the first one first, and whose they are.
    """

    def __init__(self, shop: Bench) -> None:
        self.shop = shop
        self.claims: dict[str, list[tuple[Daemon | Worker, Claim]]] = {}
        self._daemons: dict[str, Daemon] = {}
        self._workers = {name: Worker(shop, name) for name in PULLERS}
        self._actor, self._is_stale = "d1", False
        self._slots = itertools.count()

    def claim_of(self, word: str) -> tuple[Daemon | Worker, Claim]:
        """A task's last claim, or its first one, and whose it is."""
        every = self.claims[word.removesuffix("'")]
        return every[0] if word.endswith("'") else every[-1]

    async def daemon(self, name: str = "") -> Daemon:
        """A daemon; it registers when it is first named. ``d1'``: a later process named d1."""
        name = name or self._actor
        if name not in self._daemons:
            self._daemons[name] = await self.shop.daemon(name.rstrip("'"))
        return self._daemons[name]

    async def open(self, *names: str) -> None:
        """Daemons are there."""
        for name in names:
            if name not in PULLERS:
                await self.daemon(name)

    # Tasks come, are claimed and settled

    async def take(self, *words: str) -> None:
        """A batch comes in, all of it new."""
        assert await self.shop.enqueue(*map(made, words)) == [True] * len(words)

    async def duplicates(self, *words: str) -> None:
        """A batch comes in that is known."""
        assert await self.shop.enqueue(*map(made, words)) == [False] * len(words)

    async def claim(self, *words: str) -> None:
        """As many workers as tasks are idle, and get these."""
        await self._claim(words, {pool: sum(pool_of(w) == pool for w in words) for pool in POOLS})

    async def all(self, *words: str) -> None:
        """Many workers of both pools are idle, and get these alone."""
        await self._claim(words, dict.fromkeys(POOLS, MANY))

    async def every(self, *words: str) -> None:
        """The same, in any order."""
        await self._claim(sorted(words), dict.fromkeys(POOLS, MANY), in_order=False)

    async def some(self) -> None:
        """The slots that are idle behind their ends, and others, get whatever there is."""
        daemon = await self.daemon()
        for pool in POOLS:
            self._note(daemon, await daemon.claim(pool, *(f"w{n}" for n in range(3))))

    async def none(self) -> None:
        """Many workers are idle, and get nothing."""
        await self.all()

    async def _claim(
        self, words: Sequence[str], idle: Mapping[Pool, int], *, in_order: bool = True
    ) -> None:
        """Workers are idle, and get what is expected."""
        holder: Daemon | Worker
        if self._actor in PULLERS:
            holder = self._workers[self._actor]
            found = await holder.claim(len(await holder.held()) + sum(idle.values()))
        else:
            holder = await self.daemon()
            found = []
            for pool, number in idle.items():
                slots = [f"w{next(self._slots)}" for _ in range(number)]
                found += await holder.claim(pool, *slots) if slots else []
        self._note(holder, found)
        found = found if in_order else sorted(found, key=lambda each: each.task.id)
        for pool in POOLS:
            of_pool = [each for each in found if bool(each.task.group) == (pool == "grouped")]
            compare(of_pool, [word for word in words if pool_of(word) == pool])

    def _note(self, holder: Daemon | Worker, claims: Sequence[Claim]) -> None:
        for claim in claims:
            for each in (claim, *claim.run):
                self.claims.setdefault(each.task.id, []).append((holder, each))

    async def _settle(self, way: str, words: Sequence[str]) -> None:
        """Claims end, all in one way; ``aside``, ``group``, ``tenant`` say more of it."""
        standing: Standing = "step-aside" if "aside" in words else "hold"
        scope = next((word for word in words if word in ("group", "tenant")), "task")
        claims = [self.claim_of(word) for word in words if word not in ("aside", "group", "tenant")]
        told = [WAYS[way](claim, standing, scope) for _, claim in claims]
        holder = claims[0][0]
        if isinstance(holder, Worker):
            refused = await holder.settle(*told)
        else:
            refused, _ = await holder.exchange("plain", told, [])
        assert refused == (told if self._is_stale else [])

    async def swap(self, from_: str, *to: str) -> None:
        """A task is done, and its slot gets another one in the same call, or nothing."""
        holder, claim = self.claim_of(from_)
        assert isinstance(holder, Daemon)
        pool: Pool = "grouped" if claim.task.group else "plain"
        refused, claims = await holder.exchange(pool, [Complete(claim)], [claim.slot])
        assert refused == []
        self._note(holder, claims)
        compare(claims, to)

    async def runs(self, number: str, *rules: str) -> None:
        """The daemon's rules have runs of so many tasks."""
        runs = dict.fromkeys(rules or ("rule",), int(number))
        (await self.daemon()).claims("grouped").adopt(runs)

    async def tell(self, *words: str) -> None:
        """Of a run: ``a0 a1 > a2``, done are a0 and a1, and a2 is next; or it ends: ``a0 a1 >``.

        Behind that: ``ends``, it is to end.
        """
        at, ends = words.index(">"), words[-1] == "ends"
        done = [self.claim_of(word) for word in words[:at]]
        rest = words[at + 1 : len(words) - ends]
        following = self.claim_of(rest[0])[1] if rest else None
        holder, claim = done[0]
        assert isinstance(holder, Daemon)
        told = Proceed([Complete(each) for _, each in done], following)
        answer = await holder.claims("grouped").exchange([told], [])
        assert answer.refused == ([told] if self._is_stale else [])
        assert [*answer.ending] == ([claim.slot] if ends else [])

    async def drain(self, *words: str) -> None:
        """Both pools are worked off, one task after another, in this order within each."""
        ran = await (await self.daemon()).work_off(["drain"])
        for pool in POOLS:
            found, wanted = ([w for w in all_ if pool_of(w) == pool] for all_ in (ran, words))
            assert found == wanted, f"{found} ran"
