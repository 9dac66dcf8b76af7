"""Done in bulk or by the rules, an exchange is the same.

Random small histories. Each exchange is made by the rules alone, then, from where it began, in bulk
alone. Where that declines it leaves all as it was, and the script as it is shipped does the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest
from redis.exceptions import ResponseError

from groupflow.servers import RedisServer
from groupflow.store.client import Argument
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Pool
from groupflow.store.given import Claim, claims_from
from groupflow.store.scripts import Scripts, Verb
from groupflow.store.settlements import Complete, Proceed, Release, Settlement, calls_of
from tests.store.bench import Bench
from tests.store.story import Story
from tests.store.task_state import POOLS, Order, pass_time
from tests.store.words import made

BULK = "local done = do_in_bulk()\nif done then return done end\n"
DECLINED = "not in bulk"
FENCES = 5 * 10**15  # far above all times
NUMBER = re.compile(r"\d{16}")
LAGS = 0, 60_000_000  # of what is placed now: priorities (µs)
GROUPS = "abcdef"
LARGE = b"x" * 5000
SLOTS = [f"s{n}" for n in range(8)]


def changed(script: str, instead: str) -> str:
    """An exchange with something else in place of its try in bulk."""
    assert script.count(BULK) == 1
    return script.replace(BULK, instead + "\n")


def spread(name: str, value: Any) -> Iterator[str]:
    """A value of the store as texts in which each number of 16 digits stands alone."""
    for each in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(each, (list, tuple)):
            yield from spread(name, each)
            continue
        text = each.decode("latin-1") if isinstance(each, bytes) else str(each)
        if name.startswith("worker") and text[0] == "L":
            yield from ("L", text[1:17], text[17:33], text[33:49], text[53:69], text[69:])
        else:
            yield from (text[:16], text[16:32], text[32:])


class Twice:
    """A store whose exchanges are made twice.

    Attributes:
        taken: how many could be done in bulk.
        declined: how many could not.
    """

    def __init__(self, shop: Bench, seed: str, *, is_wild: bool) -> None:
        self.shop, self.chance, self.is_wild = shop, Random(seed), is_wild
        self.told = Story(shop)
        self.taken = self.declined = 0
        self.held: dict[str, list[Claim]] = {}  # by slot, each with its run
        self.ended: list[Claim] = []
        self.number = 0
        shipped = Scripts(shop.order)[Verb.EXCHANGE].text
        self.scripts = {
            "shipped": shipped,
            "rules": changed(shipped, ""),
            "bulk": changed(shipped, f"{BULK} do return redis.error_reply('{DECLINED}') end"),
        }

    def look(self) -> dict[str, Any]:
        """What the store has: no totals of zero, and no next fence."""
        found: dict[str, Any] = {}
        for key in self.shop.raw.scan_iter(match=self.shop.keys("*"), count=1000):
            name, raw = key.decode().partition("}")[2][1:], self.shop.raw
            match raw.type(key):
                case b"hash":
                    every: Any = raw.hgetall(key)
                    kept = {k: v for k, v in every.items() if v != b"0"}
                    found[name] = {k.decode("latin-1"): [*spread(name, v)] for k, v in kept.items()}
                case b"zset":
                    scores: Any = raw.zrange(key, 0, -1, withscores=True)
                    found[name] = {k.decode("latin-1"): str(int(score)) for k, score in scores}
                case b"list":
                    found[name] = [*spread(name, raw.lrange(key, 0, -1))]
                case _:
                    found[name] = [*spread(name, raw.get(key))]
        found.pop("fence", None)
        return found

    def make(self, which: str, arguments: Sequence[Any]) -> tuple[Any, list[str], dict[str, Any]]:
        """An exchange: its reply; that, and what it left, with new fences and times masked."""
        first, since = int(self.shop.raw.get(self.shop.keys("fence")) or 0), self.shop.server_time()
        reply: Any = self.shop.raw.eval(self.scripts[which], 1, self.shop.keys(""), *arguments)
        until = self.shop.server_time()
        told, left = [*spread("", reply)], self.look()
        fences = sorted({n for n in NUMBER.findall(f"{told}{left}") if int(n) > first >= FENCES})

        def masked(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: masked(each) for name, each in value.items()}
            if isinstance(value, list):
                return [masked(each) for each in value]
            if value in fences:
                return f"fence {fences.index(value)}"
            number = int(value) if NUMBER.fullmatch(value) else 0
            return next((f"now - {lag}" for lag in LAGS if since <= number + lag <= until), value)

        return reply, masked(told), masked(left)

    def exchange(self, arguments: Sequence[Any]) -> Any:
        """Make an exchange in each way; its reply."""
        begun, seen = self.shop.dump(), self.look()
        _, wanted_reply, wanted = self.make("rules", arguments)
        self.shop.restore(begun)
        try:
            reply, told, left = self.make("bulk", arguments)
            self.taken += 1
        except ResponseError as error:
            if DECLINED not in str(error):
                raise
            assert self.look() == seen, "it declined, and wrote"
            reply, told, left = self.make("shipped", arguments)
            self.declined += 1
        assert told == wanted_reply
        names = left.keys() | wanted.keys()
        differ = {n: (left.get(n), wanted.get(n)) for n in names if left.get(n) != wanted.get(n)}
        assert differ == {}
        return reply

    async def settle_and_claim(self) -> None:
        """Some tasks are done, and some slots get others."""
        chance, daemon = self.chance, await self.told.daemon()
        pool: Pool = chance.choice(POOLS)
        told, asked, settled = list[Settlement](), list[str](), list[str]()
        mine = [
            s for s, claims in self.held.items() if bool(claims[0].task.group) == (pool == POOLS[0])
        ]
        for slot in chance.sample(mine, chance.randint(0, len(mine))):
            claims = self.held[slot]
            done = claims[: chance.randint(1, len(claims))]
            if self.is_wild and chance.random() < 0.1:
                told.append(Release(claims[0]))
            elif self.is_wild and len(claims) > len(done) and chance.random() < 0.5:
                told.append(Proceed([Complete(each) for each in done], claims[len(done)]))
                self.held[slot] = claims[len(done) :]
                continue
            elif len(claims) > 1:
                told.append(Proceed([Complete(each) for each in done], None))
            else:
                told.append(Complete(claims[0]))
            settled.append(slot)
            self.ended += done
        for slot in settled:
            del self.held[slot]
        if self.is_wild and self.ended and chance.random() < 0.1:
            told.append(Complete(chance.choice(self.ended)))
        idle = [slot for slot in SLOTS if slot not in self.held]
        asked = chance.sample(idle, chance.randint(0 if told else 1, len(idle))) if idle else []
        if self.is_wild and mine and chance.random() < 0.1:
            asked += [slot for slot in mine if slot not in {*asked, *settled}][:1]
        runs = chance.choice((b"", b'{"rule":3}'))
        front: list[Argument] = [daemon.session.daemon, daemon.session.shown]
        _, calls = calls_of(front, pool, told, asked, runs=runs)
        for _, arguments in calls:
            for _ in range(1 + (self.is_wild and chance.random() < 0.2)):
                _, _, rows, now, _, _ = self.exchange(arguments)
                for claim in claims_from(rows, now, self.shop.client.read_apart):
                    self.held[claim.slot] = [claim, *claim.run]

    async def take(self) -> None:
        """Tasks come, of which few are special."""
        arrivals = list[Arrival]()
        for _ in range(self.chance.randint(1, 8)):
            self.number += 1
            word = f"{self.chance.choice(GROUPS + 'pppp')}{self.number}"
            if self.is_wild and self.chance.random() < 0.06:
                word += self.chance.choice(("+60", "@60", "@60~"))
            arrivals.append(made(word))
            if self.is_wild and self.chance.random() < 0.03:
                arrivals[-1].envelope.body = LARGE
        await self.shop.enqueue(*arrivals)

    async def disturb(self) -> None:
        """Something rare; or all that holds is over."""
        raw, keys, chance = self.shop.raw, self.shop.keys, self.chance
        group, waiting = chance.choice(GROUPS), list[Any](raw.hkeys(keys("tasks")))
        match chance.randrange(14):
            case 0:
                await self.told.pause(group)
            case 1:
                claims = [claims for claims in self.held.values() if claims[0].task.group]
                if claims:
                    [claim, *_] = chance.choice(claims)
                    self.told.claims[claim.task.id] = [(await self.told.daemon(), claim)]
                    await self.told.go_on(f"park {claim.task.id}")
                    del self.held[claim.slot]
            case 2:
                raw.hdel(keys("tasks"), chance.choice(waiting)) if waiting else None
            case 3:
                ready: Any = raw.zrange(keys("ready"), 0, -1)
                raw.set(keys("lock", chance.choice(ready).decode()), "unknown") if ready else None
            case 4:
                raw.zadd(keys("ready"), {group: 1.0})
            case 5:
                of_runs = [each for claims in self.held.values() for each in claims[1:]]
                if of_runs:
                    dropped = chance.choice(of_runs)
                    raw.lrem(keys("lane", dropped.task.group or ""), 1, dropped.entry.decode())
            case 6:
                raw.set(keys("recovering"), self.shop.server_time() * 2)
            case _:
                await self._mend()

    async def _mend(self) -> None:
        raw, keys = self.shop.raw, self.shop.keys
        raw.delete(keys("recovering"), keys("parked"))
        for group in GROUPS:
            if raw.get(keys("lock", group)) == b"unknown":
                raw.delete(keys("lock", group))
            await self.told.resume(group)
        await pass_time(self.shop)

    async def go_on(self, steps: int) -> None:
        """So many steps."""
        for _ in range(steps):
            draw = self.chance.random()
            if draw < 0.3:
                await self.take()
            elif draw < 0.5 and self.is_wild:
                await self.disturb()
            else:
                await self.settle_and_claim()


async def history(server: RedisServer, order: Order, seed: int, *, is_wild: bool) -> Twice:
    """One of many, other ones on each kind of server."""
    async with Bench(server.url, order=order) as shop:
        twice = Twice(shop, f"{order} {seed} {server.name}", is_wild=is_wild)
        await twice.told.open("d1")
        shop.raw.set(shop.keys("fence"), FENCES)
        await twice.go_on(60)
        return twice


@pytest.mark.parametrize("order", ["oldest", "fair"])
async def test_all_that_is_ordinary_is_done_in_bulk(
    store_server: RedisServer, order: Order
) -> None:
    twice = await history(store_server, order, 0, is_wild=False)
    assert (twice.declined, twice.taken > 20) == (0, True)


@pytest.mark.parametrize("order", ["oldest", "fair"])
@pytest.mark.parametrize("seed", range(3))
async def test_where_anything_is_rare_an_exchange_is_the_same(
    store_server: RedisServer, order: Order, seed: int
) -> None:
    twice = await history(store_server, order, seed, is_wild=True)
    assert twice.taken
    assert twice.declined


async def test_a_group_that_is_ready_though_it_runs_is_given_once(
    store_server: RedisServer,
) -> None:
    async with Bench(store_server.url) as shop:
        twice = Twice(shop, "", is_wild=False)
        daemon = await twice.told.daemon()
        await twice.told.take("a0", "a1", "a2", "b0")
        claim = await daemon.claim_one()
        shop.raw.zadd(shop.keys("ready"), {"a": 1.0})
        front: list[Argument] = [daemon.session.daemon, daemon.session.shown]
        _, [(_, arguments)] = calls_of(front, "grouped", [Complete(claim)], ["s1", "s2", "s3"])
        rows = twice.exchange(arguments)[2]
        assert rows[3::7] == [b"a", b"b"]


@pytest.mark.parametrize("pool", POOLS)
async def test_where_nothing_waits_nothing_is_written(
    store_server: RedisServer, pool: Pool
) -> None:
    """Each daemon with an idle worker asks at each wake: no replica should hear of that."""
    async with Bench(store_server.url) as shop:
        daemon = await shop.daemon()
        changes = "rdb_changes_since_last_save"
        before: Any = shop.raw.info("persistence")
        answer = await daemon.claims(pool).exchange([], ["s1", "s2"])
        after: Any = shop.raw.info("persistence")
        assert (answer.claims, after[changes]) == ([], before[changes])
