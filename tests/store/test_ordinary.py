"""Done in bulk or by the rules, an exchange is the same.

Random small histories. Each exchange is made by the rules alone, then, from where it began, in bulk
alone. Where that declines it leaves all as it was, and the script as it is shipped does the whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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
from tests.store.actors import made
from tests.store.bench import Bench, ids
from tests.store.story import Story, play
from tests.store.task_state import POOLS, Order, pass_time

BULK = "local done = do_in_bulk()\nif done then return done end\n"
DECLINED = "not in bulk"
FENCES = 5 * 10**15  # far above all times
NUMBER = re.compile(r"\d{16}")
STANDING = "call('TIME')", "{ 0, call('GET', TAG .. 'now') }"  # the clock, for all ways
GROUPS = "abcdef"
LARGE = b"x" * 5000
SLOTS = [f"s{n}" for n in range(8)]


def changed(script: str, instead: str) -> str:
    """An exchange with something else in place of its try in bulk."""
    assert script.count(BULK) == 1
    return script.replace(BULK, instead + "\n")


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
        shipped = Scripts(shop.order)[Verb.EXCHANGE].text.replace(*STANDING)
        self.scripts = {
            "shipped": shipped,
            "rules": changed(shipped, ""),
            "bulk": changed(shipped, f"{BULK} do return redis.error_reply('{DECLINED}') end"),
        }

    def look(self) -> dict[str, Any]:
        """What the store has: no totals of zero, and no next fence."""
        raw, found = self.shop.raw, dict[str, Any]()
        for key in (each.decode() for each in raw.scan_iter(self.shop.keys("*"), 1000)):
            match raw.type(key):
                case b"hash":
                    every: Any = raw.hgetall(key)
                    found[key] = sorted(each for each in every.items() if each[1] != b"0")
                case b"zset":
                    found[key] = raw.zrange(key, 0, -1, withscores=True)
                case b"list":
                    found[key] = raw.lrange(key, 0, -1)
                case _:
                    found[key] = raw.get(key)
        found.pop(self.shop.keys("fence"), None)
        return found

    def make(self, which: str, arguments: Sequence[Any]) -> tuple[Any, dict[str, str]]:
        """An exchange: its reply; that, and what it left, where new fences have no value."""
        last = int(self.shop.raw.get(self.shop.keys("fence")) or 0)
        reply: Any = self.shop.raw.eval(self.scripts[which], 1, self.shop.keys(""), *arguments)
        texts = {name: repr(value) for name, value in {"": reply, **self.look()}.items()}
        numbers = {number for text in texts.values() for number in NUMBER.findall(text)}
        fences = sorted(number for number in numbers if int(number) > last)

        def mask(number: re.Match[str]) -> str:
            return f"fence {fences.index(number[0])}" if number[0] in fences else number[0]

        return reply, {name: NUMBER.sub(mask, text) for name, text in texts.items()}

    def exchange(self, arguments: Sequence[Any]) -> Any:
        """Make an exchange in each way, at one time; its reply."""
        self.shop.raw.set(self.shop.keys("now"), self.shop.server_time())
        begun, seen = self.shop.dump(), self.look()
        _, wanted = self.make("rules", arguments)
        self.shop.restore(begun)
        try:
            reply, told = self.make("bulk", arguments)
            self.taken += 1
        except ResponseError as error:
            if DECLINED not in str(error):
                raise
            assert self.look() == seen, "it declined, and wrote"
            reply, told = self.make("shipped", arguments)
            self.declined += 1
        assert told == wanted
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
                told.append(Proceed([self.end(each) for each in done], claims[len(done)]))
                self.held[slot] = claims[len(done) :]
                continue
            elif len(claims) > 1:
                told.append(Proceed([self.end(each) for each in done], None))
            else:
                told.append(self.end(claims[0]))
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
                _, _, rows, now, *_ = self.exchange(arguments)
                for claim in claims_from(rows, now, self.shop.client.read_apart):
                    self.held[claim.slot] = [claim, *claim.run]

    def end(self, claim: Claim) -> Complete:
        """It took some time."""
        return Complete(claim, self.chance.choice((0.0, 0.02, 0.02, 7.0)))

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
        group, waiting = chance.choice(GROUPS), sorted(list[Any](raw.hkeys(keys("tasks"))))
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
async def test_what_is_ordinary_is_done_in_bulk(store_server: RedisServer, order: Order) -> None:
    twice = await history(store_server, order, 0, is_wild=False)
    assert (twice.declined, twice.taken > 20) == (0, True)


@pytest.mark.parametrize("order", ["oldest", "fair"])
@pytest.mark.parametrize("seed", range(6))
async def test_rare_exchanges_are_alike(store_server: RedisServer, order: Order, seed: int) -> None:
    twice = await history(store_server, order, seed, is_wild=True)
    assert twice.taken
    assert twice.declined


@pytest.mark.parametrize("order", ["oldest", "fair"])
async def test_a_group_that_is_ready_though_it_runs_is_given_once(
    store_server: RedisServer, order: Order
) -> None:
    """An operator changed keys by hand; its task ends as two slots are given others."""
    async with Bench(store_server.url, order=order) as shop:
        told = await play(shop, "take a0 a1 a2 | claim a0")
        shop.raw.zadd(shop.keys("ready"), {"a": 1.0})
        daemon, claim = told.claim_of("a0")
        _, claims = await daemon.exchange("grouped", [Complete(claim)], SLOTS[:2])
        assert ids(claims) == ["a1"]


@pytest.mark.parametrize("pool", POOLS)
async def test_an_idle_exchange_writes_nothing(store_server: RedisServer, pool: Pool) -> None:
    """Each daemon with an idle worker asks at each wake: no replica should hear of that."""
    async with Bench(store_server.url) as shop:
        daemon = await shop.daemon()
        changes = "rdb_changes_since_last_save"
        before: Any = shop.raw.info("persistence")
        answer = await daemon.claims(pool).exchange([], ["s1", "s2"])
        after: Any = shop.raw.info("persistence")
        assert (answer.claims, after[changes]) == ([], before[changes])
