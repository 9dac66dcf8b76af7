"""Who acts in a story, and the words for it: messages, daemons, workers that pull."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from groupflow.core.limits import Debounce
from groupflow.core.progress import pack_progress
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Pool
from groupflow.store.given import Claim
from groupflow.store.progress import Said, write_progress
from groupflow.store.pulling import Poll, Puller, Pulling
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Complete, Defer, Proceed, Release, Retry, Settlement
from tests.store.bench import LEASE, Bench, Daemon, arrival, bury, ids
from tests.store.task_state import FAILURE, HOUR, POOLS, Standing, advance

POOL = "couriers"
QUIET, MOST = 60.0, 600.0  # seconds, of what debounces
UNKNOWN_FOR = 30.0  # seconds for which no daemon may know a type
_TASK = re.compile(r"(?:(?P<tenant>\d)/)?(?P<id>[\w-]+)(?P<facts>.*)")
WAYS: dict[str, Callable[[Claim, Any, Any], Settlement]] = {
    "done": lambda claim, *_: Complete(claim),
    "release": lambda claim, *_: Release(claim),
    "bury": lambda claim, *_: bury(claim),
    "park": lambda claim, *_: bury(claim, park=True),
    "defer": lambda claim, *_: Defer(claim, UNKNOWN_FOR, bury(claim)),
    "retry": lambda claim, standing, scope: Retry(claim, HOUR, FAILURE, standing, scope),
    "retry_now": lambda claim, standing, _: Retry(claim, 0.0, FAILURE, standing),
    "advance": lambda claim, standing, _: advance(claim, standing=standing),
}


def with_envelope(each: Arrival, **facts: Any) -> Arrival:
    """The same message with other facts in its envelope."""
    return replace(each, envelope=replace(each.envelope, **facts))


def of(tenant: str, id_: str, group: str | None = None, pool: str | None = None) -> Arrival:
    """A message of a tenant."""
    facts = {"tenant": tenant, "scope": f"{int(tenant):08x}", "named_pool": pool}
    return with_envelope(arrival(id_, group), **facts)


def pooled(id_: str, group: str | None = None, pool: str = POOL, **facts: Any) -> Arrival:
    """A message of a type that a pool has."""
    return with_envelope(arrival(id_, group, **facts), named_pool=pool)


def debouncing(each: Arrival) -> Arrival:
    """A message of a rule that debounces."""
    return replace(with_envelope(each, type="changed"), debounce=Debounce(QUIET, MOST))


def newest(each: Arrival, running: float) -> Arrival:
    """A message of a rule with `newest`; for so many seconds what runs makes way, too."""
    return replace(debouncing(each), debounce=Debounce(0.0, 0.0, running or None))


MARKS: dict[str, Callable[[Arrival, str], Arrival]] = {
    "@": lambda each, seconds: replace(each, delay=float(seconds or HOUR)),
    "~": lambda each, _: replace(each, steps_aside=True),
    "!": lambda each, _: replace(each, dead="no"),
    "+": lambda each, seconds: replace(each, priority=float(seconds)),
    "&": lambda each, most: newest(each, float(most or MOST)),
    "<": lambda each, most: replace(each, max_queued=int(most)),
    "^": lambda each, _: debouncing(each),
    "?": lambda each, seconds: replace(each, expires=float(seconds or HOUR)),
    "=": lambda each, pool: with_envelope(each, named_pool=pool or POOL),
    "%": lambda each, rule: with_envelope(each, rule=rule),
    ":": lambda each, type_: with_envelope(each, type=type_),
    "$": lambda each, size: with_envelope(each, body=b"x" * int(size)),
}


def made(word: str) -> Arrival:
    """The message that a word stands for."""
    parts = _TASK.fullmatch(word)
    assert parts, f"no task is written {word!r}"
    id_ = parts["id"]
    group = None if id_[0] in "pq" else id_[0]
    each = of(parts["tenant"], id_, group) if parts["tenant"] else arrival(id_, group)
    for mark, value in re.findall(r"([@~!=%+^&<$?:])([\w.-]*)", parts["facts"]):
        each = MARKS[mark](each, value)
    return each


def pool_of(word: str) -> Pool:
    """The pool of a task."""
    return "plain" if word[0] in "pq" else "grouped"


def compare(claims: Sequence[Claim], words: Sequence[str]) -> None:
    """Tasks that were claimed are those that were expected, and as these were told."""
    like = [*words, *[""] * len(claims)]
    told = [_told(claim, like[n]) for n, claim in enumerate(claims)]
    assert told == [*words], f"{told} were claimed"


def _told(claim: Claim, like: str) -> str:
    task = claim.task
    facts = [("/", task.attempt), ("*", task.crashes), ("#", task.stage)]
    shown = "".join(f"{mark}{value}" for mark, value in facts if mark in like)
    return ">".join([f"{task.id}{shown}", *ids(claim.run)])


def check(found: object, facts: Sequence[str]) -> None:
    """What is known has these values."""
    told = [f"{name}={getattr(found, name)}" for name in (fact.split("=")[0] for fact in facts)]
    assert told == [*facts], f"{told} of {found}"


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
        leases = self.bench.keys("pool_pullers", self.puller.pool)
        self.bench.raw.zadd(leases, {self.puller.daemon: 1})


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
        self.claims: dict[str, list[tuple[Any, Claim]]] = {}
        self._daemons: dict[str, Daemon] = {}
        self._workers = {name: Worker(shop, name) for name in PULLERS}
        self._actor, self._is_stale = "d1", False
        self._slots = itertools.count()

    def claim_of(self, word: str) -> tuple[Any, Claim]:
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

    async def said(self, word: str, *figures: str) -> None:
        """The handler of a claim said three seconds ago how far it has got."""
        holder, claim = self.claim_of(word)
        packed = pack_progress(*(int(each) if each.isdigit() else each for each in figures))
        session: Any = (await holder.poll() if isinstance(holder, Worker) else holder).session
        said = Said(claim.slot, claim.fence, packed)
        await write_progress(self.shop.client, session, [(said, 3.0)])

    async def knows(self, *types: str) -> None:
        """The daemon has handlers of these types alone, and tells that."""
        daemon = await self.daemon()
        daemon.types = types
        await daemon.sessions.tell({}, {})

    # Time passes that the store has noted

    async def end_hands(self) -> None:
        """The time of all limits by hand is over, and nothing takes notice yet."""
        known: Any = self.shop.raw.hgetall(self.shop.keys("by_hand"))
        for whose, text in known.items():
            self.shop.raw.hset(self.shop.keys("by_hand"), whose, b"%016d" % 1 + text[16:])
            self.shop.raw.zadd(self.shop.keys("by_hand_ends"), {whose: 1})

    async def bursts_are_older(self, seconds: str) -> None:
        """All bursts of tasks that debounce began so much earlier."""
        key = self.shop.keys("debouncing")
        names: Any = self.shop.raw.hkeys(key)
        for name in names:
            self._make_older(key, name, seconds)

    async def updates_are_older(self, id_: str, seconds: str) -> None:
        """Tasks have made way for newer ones, down to this one, since so much earlier."""
        self._make_older(self.shop.keys("task_state", id_), "updating", seconds)

    def _make_older(self, key: str, field: Any, seconds: str) -> None:
        value: Any = self.shop.raw.hget(key, field)
        since = int(value[:16]) - int(seconds) * 1_000_000
        self.shop.raw.hset(key, field, b"%016d" % since + value[16:])

    async def unknown_longer(self, seconds: str) -> None:
        """No daemon has known any of these types for so much longer."""
        clocks: Any = self.shop.raw.zrange(self.shop.keys("unknown"), 0, -1, withscores=True)
        for type_, since in clocks:
            older = since - int(seconds) * 1_000_000
            self.shop.raw.zadd(self.shop.keys("unknown"), {type_: older})

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
        """The slots that are idle behind their ends, and others, get all that there is."""
        daemon = await self.daemon()
        for pool in POOLS:
            self._note(daemon, await daemon.claim(pool, *(f"w{n}" for n in range(3))))

    async def none(self) -> None:
        """Many workers are idle, and get nothing."""
        await self.all()

    async def idle(self, pool: Pool) -> None:
        """One worker of a pool is idle, and gets nothing."""
        await self._claim([], {pool: 1})

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

    # What has to start in time

    async def overdue(self, *named: str) -> None:
        """These have to have started by now, and nothing takes notice yet."""
        for id_ in named:
            changed = self.shop.raw.zadd(self.shop.keys("expiring"), {id_: 1}, xx=True, ch=True)
            assert changed == 1, id_

    async def expired(self, number: str, places: str = "1000000") -> None:
        """One step over what has to have started by now; how many ended."""
        ended = await self.shop.client.run(Verb.EXPIRE, 100, places)
        assert ended == int(number)
