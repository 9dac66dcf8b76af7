"""Stories: what happens to a store, step by step, in words. A table of them is a test.

Steps stand on lines of their own, or between ``|``. A step is a verb of `Story` and its words:

    take a0 a1 p0 | claim a0 | retry a0 | none | why a delayed: no such row | time | claim a0/2

A task's first letter is its group; ``p`` and ``q`` are for plain tasks. Behind an id may stand, of
a task that comes: ``@`` delayed by an hour (``@60``: by so many seconds), ``~`` steps aside,
``+60`` its priority, ``!`` a dead letter, ``=`` of the pool (``=others``: of another), ``%rule``
its rule, ``^`` of one that debounces, ``&`` of one with `newest`, for which what runs makes way
(``&9``: for nine seconds; ``&0``: it goes on), ``<3`` of one that lets three wait, ``?`` it has to
start within an hour (``?60``), ``$9`` the bytes of its body, ``:video`` its type; in front, ``2/``
its tenant. Of a task that is claimed: ``/2`` its attempt, ``*1`` its crashes, ``#two`` its stage,
``>a1`` what its run has behind it, in this order. ``a0'`` is the first claim of a task that was
claimed more than once.

In front of a step may stand who acts (``d2:``; else the daemon d1), ``unchanged`` (it
writes nothing), ``refused`` (its settlements are stale), an error that it ends with, or what all
daemons hear meanwhile (``hears due,grouped``; ``hears -``: nothing).
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from groupflow.core.errors import SessionLost, SessionReplaced, StoreUnavailable
from groupflow.core.limits import HandLimit, Limit, Limits, Rate, TenantLimit, TypeLimit
from groupflow.operate.groups import ALL, Groups, Why
from groupflow.operate.limits import LimitsByHand
from groupflow.operate.tasks import Found, Tasks
from groupflow.store.pulling import daemon_name
from groupflow.store.scripts import Verb
from groupflow.store.sessions import HandedOver
from tests.deadlines import deadline
from tests.store import task_state
from tests.store.actors import PULLERS, WAYS, check
from tests.store.bench import LEASE, Bench
from tests.store.people import People
from tests.store.task_state import HOUR

_ENDS: Sequence[type[Exception]] = (SessionLost, SessionReplaced, StoreUnavailable)
_ERRORS = {each.__name__: each for each in _ENDS}


def named(text: str, **choices: Sequence[str]) -> dict[str, str]:
    """Stories by their names, each of which ends with ``::`` in front of its steps.

    One that has ``{way}`` in its name is there for each `way`. Lines with a ``#`` are headings.
    """
    found: dict[str, str] = {}
    for told in re.findall(r"^    (\S.*?)::((?:.*\n(?!    \S))*.*)", text, re.MULTILINE):
        used = [key for key in choices if f"{{{key}}}" in told[0]]
        for values in itertools.product(*(choices[key] for key in used)):
            name, steps = (part.format(**dict(zip(used, values, strict=True))) for part in told)
            assert name not in found, f"there are two of {name!r}"
            found[name] = steps
    return found


def stories(table: Mapping[str, str]) -> pytest.MarkDecorator:
    """A test for each story of a table, by its name."""
    return pytest.mark.parametrize("story", [*table.values()], ids=[*table])


async def play(shop: Bench, story: str) -> Story:
    """Let a story happen; each of its steps says where it fails."""
    told = Story(shop)
    await told.go_on(story)
    return told


async def hears(shop: Bench, work: Callable[[], Awaitable[object]]) -> list[str]:
    """What all daemons are told while something is done."""
    told: list[str] = []
    async with shop.client.wakes() as wakes, asyncio.timeout(deadline()):
        await anext(wakes)  # it begins with one, for what was missed
        await work()
        shop.raw.publish(shop.keys.wake, "that was all")
        while (wake := (await anext(wakes)).decode()) != "that was all":
            told.append(wake)
    return told


def move_time(shop: Bench, seconds: float) -> None:
    """What limits wait for is so much sooner."""
    for kind in ("rates", "closed", "held", "standing", "cap_standing"):
        members: Any = shop.raw.zrange(shop.keys(kind), 0, -1, withscores=True)
        for member, due in members:
            if due < 9e15:
                shop.raw.zadd(shop.keys(kind), {member: due - seconds * 1_000_000})


def _are_handed(found: Sequence[HandedOver], named: Sequence[str]) -> None:
    """These tasks were handed over, where the story names any."""
    assert not named or sorted(each.id for each in found) == sorted(named)


def _tells(told: Why | Found, state: str, facts: Sequence[str]) -> None:
    """What an operator is told: a state, facts and, behind a colon, words of its reason."""
    assert told.state == state.rstrip(":"), told
    said, words = " ".join([state, *facts]).partition(":")[2].strip(), str(told.reason)
    words += f"; {told.silence}" if isinstance(told, Found) else ""
    assert said in words, words
    check(told, [] if state.endswith(":") else [*itertools.takewhile(":".__ne__, facts)])


class Story(People):
    """A store, and all that happens to it."""

    def __init__(self, shop: Bench) -> None:
        super().__init__(shop)
        self.kept: dict[bytes, Any] = {}
        self._groups, self._by_hand = Groups(shop.namespace), LimitsByHand(shop.namespace)

    async def go_on(self, story: str) -> None:
        """Let more happen."""
        for step in re.split(r"[|\n]", story):
            try:
                if words := step.split():
                    await self._step(words)
            except BaseException as error:
                error.add_note(f"in the step: {step.strip()}")
                raise

    async def _step(self, words: Sequence[str]) -> None:
        verb, *rest = words
        if verb in _ERRORS:
            with pytest.raises(_ERRORS[verb]):
                await self._step(rest)
        elif verb == "unchanged":
            before = self.shop.dump()
            await self._step(rest)
            after = self.shop.dump()
            written = [key for key in before | after if before.get(key) != after.get(key)]
            assert written == [], f"{written} were written"
        elif verb == "refused":
            self._is_stale = True
            try:
                await self._step(rest)
            finally:
                self._is_stale = False
        elif verb == "hears":
            await self.open(self._actor)
            heard = await hears(self.shop, lambda: self._step(rest[1:]))
            assert heard == [each for each in rest[0].split(",") if each != "-"], heard
        elif verb.endswith(":"):
            before_it, self._actor = self._actor, verb[:-1]
            try:
                await self._step(rest)
            finally:
                self._actor = before_it
        elif verb in WAYS:
            await self._settle(verb, rest)
        else:
            await getattr(self, verb)(*rest)

    # Time, and what people do

    async def time(self, *named: str) -> None:
        """The time of waiting tasks has come."""
        await task_state.pass_time(self.shop, *named)

    async def next(self, seconds: str) -> None:
        """A pass of `promote` says when the next one is needed; -1: never."""
        _, wait = await self.shop.client.run(Verb.PROMOTE, 200)
        assert int(seconds) - 5 < wait / 1_000_000 <= int(seconds) if wait > 0 else wait == -1
        assert (wait > 0) == (int(seconds) > 0)

    async def promote(self, number: str = "") -> None:
        """One pass of it; how many tasks and groups it finds due."""
        found = await task_state.promote(self.shop)
        assert number in ("", str(found)), f"{found} were due"

    async def later(self, seconds: str) -> None:
        """What limits hold back is so much nearer."""
        move_time(self.shop, float(seconds))
        await self.promote()

    async def pause(self, group: str, seconds: str = "") -> None:
        """A group is paused, or all are; for so long."""
        lasts = float(seconds) if seconds else None
        await self._groups.pause(ALL if group == "all" else group, "ops", lasts)

    async def resume(self, group: str) -> None:
        """The same, back."""
        await self._groups.resume(ALL if group == "all" else group)

    async def limits(self, concurrency: str = "", *rate: str) -> None:
        """From the next session or reload on the tasks' rule has this limit, or none."""
        limit = Limit(int(concurrency or 1), Rate.parse(" ".join(rate)))
        self.shop.limits = Limits({"rule": limit} if concurrency else {})
        self.shop.concurrency = dict.fromkeys("abc", limit.concurrency)

    async def tenants(self, concurrency: str, *words: str) -> None:
        """The same for every tenant; ``2=3``: the tenant 2 may run three."""
        own = dict(word.split("=") for word in words if "=" in word)
        rate = Rate.parse(" ".join(word for word in words if "=" not in word))
        every = {name: TenantLimit(int(most)) for name, most in own.items()}
        self.shop.limits = Limits(every_tenant=TenantLimit(int(concurrency), rate), tenants=every)

    async def types(self, *words: str) -> None:
        """The same for types, in this order: ``video=2``, ``import.*=1/h``; ``-`` for none."""
        told = [word.rpartition("=") for word in words if word != "-"]
        self.shop.limits = Limits(
            types={
                pattern: TypeLimit(int(most)) if most.isdigit() else TypeLimit(0, Rate.parse(most))
                for pattern, _, most in told
            }
        )

    async def reload(self) -> None:
        """The daemon tells its limits again."""
        await (await self.daemon()).sessions.tell({}, {})

    async def hand(self, kind: Any, name: str, *words: str) -> None:
        """An operator limits a group or a tenant for an hour: its number, its rate, or both."""
        number = next((int(word) for word in words if word.isdigit()), None)
        rate = next((word for word in words if not word.isdigit()), None)
        limit = HandLimit(kind, name, number, "" if rate == "any" else rate)
        await self._by_hand.begin(limit, "ada", HOUR)

    async def unhand(self, kind: Any, name: str) -> None:
        """The limit ends before its time."""
        assert await self._by_hand.end(kind, name, "bob")

    # Daemons and workers live and die

    async def crash(self, name: str = "", *handed: str) -> None:
        """Another process comes under a daemon's name; what it takes up."""
        found = await (await self.daemon(name)).register()
        _are_handed(found, handed)

    async def lose(self, name: str = "d1", *handed: str) -> None:
        """A lease runs out, and another daemon, d2, takes over."""
        await self.open("d2")
        if name in PULLERS:
            self._workers[name].expire()
        self.shop.expire(name)
        _, found = await self._daemons["d2"].sessions.reap()
        _are_handed(found, handed)

    async def reap(self, *handed: str) -> None:
        """A pass over leases that have run out; what was taken."""
        _, found = await (await self.daemon()).sessions.reap()
        assert sorted(each.id for each in found) == sorted(handed)

    async def back(self, name: str = "", *handed: str) -> None:
        """The same process opens another session, and what it takes up."""
        daemon = await self.daemon(name)
        before, facts = daemon.session.number, {"pid": 1, "host": "h", "workers": 2, "lease": LEASE}
        found = await daemon.sessions.register(facts)
        assert daemon.session.number > before
        _are_handed(found, handed)

    async def save(self) -> None:
        """A replica, or a disk, has all up to here."""
        self.kept = self.shop.dump()

    async def restore(self) -> None:
        """All since is lost."""
        self.shop.restore(self.kept)

    async def crashed(self, *words: str) -> None:
        """Tasks come, and a daemon dies with all of them, where none is in quarantine yet."""
        ids = " ".join(words)
        await self.go_on(f"take {ids} | victim: claim {ids} | victim: crash victim {ids}")
        await self.go_on("victim: leave")

    async def silent(self, name: str = "d1") -> None:
        """Ten leases have passed since a daemon lost its own."""
        self.shop.raw.zadd(self.shop.keys("losing"), {name: 1}, xx=True)

    async def leave(self) -> None:
        """The daemon or the worker ends in order."""
        if self._actor in PULLERS:
            worker = self._workers[self._actor]
            await worker.store.leave(await worker.poll())
        else:
            await (await self.daemon()).sessions.leave()

    async def unheard(self, seconds: str) -> None:
        """Nothing was heard of a daemon, or a worker, for so long."""
        is_daemon, pool = self._actor not in PULLERS, "couriers"
        key = self.shop.keys("daemons") if is_daemon else self.shop.keys("pool_pullers", pool)
        name = self._actor if is_daemon else daemon_name(pool, self._actor)
        self.shop.raw.zincrby(key, -int(seconds) * 1_000_000, name)

    async def expire(self) -> None:
        """The lease has run out, and nothing takes notice yet."""
        if self._actor in PULLERS:
            self._workers[self._actor].expire()
        else:
            self.shop.expire(self._actor)

    async def renew(self, *facts: str) -> None:
        """A renewal; what it tells that could be claimed."""
        told = await (await self.daemon()).sessions.renew()
        check(told, facts)

    async def holds(self, *named: str) -> None:
        """What a worker that pulls holds."""
        assert sorted(await self._workers[self._actor].held()) == sorted(named)

    # What is deleted by hand

    async def lost(self, *named: str) -> None:
        """The envelopes of tasks are gone."""
        self.shop.raw.hdel(self.shop.keys("tasks"), *named)

    async def stateless(self, *named: str) -> None:
        """So is what else is known of tasks."""
        self.shop.raw.delete(*(self.shop.keys("task_state", id_) for id_ in named))

    # What is to be seen

    async def lane(self, *named: str) -> None:
        """A group's lane has these, the next one first; ``a:`` has none."""
        expected = [] if named[0].endswith(":") else [*named]
        assert self.shop.lane(named[0][0]) == expected

    async def why(self, group: str, state: str, *facts: str) -> None:
        """A group's state; behind a colon, words of its reason."""
        _tells(await self._groups.why(group), state, facts)

    async def task(self, id_: str, state: str, *facts: str) -> None:
        """Where a task is, and what is known of it; behind a colon, words of why."""
        found = await Tasks(self.shop.namespace).find(id_)
        assert found is not None
        _tells(found, state, facts)

    async def waits(self, id_: str, seconds: str) -> None:
        """A task is due in so many seconds, less what has passed since; 0: it is due."""
        due: Any = self.shop.raw.hget(self.shop.keys("task_state", id_), "due")
        left = max(0.0, (int(due or 0) - self.shop.server_time()) / 1_000_000)
        assert int(seconds) - 5 <= left <= int(seconds), f"it is due in {left} s"
        assert bool(left) == bool(int(seconds))

    async def superseded(self, *pairs: str) -> None:
        """``c1=c2``: c1 was replaced by c2."""
        for id_, by in (pair.split("=") for pair in pairs):
            await self.task(id_, "superseded", f"superseded_by={by}")

    async def status(self, *facts: str) -> None:
        """What `groupflow status` shows."""
        check(await self.shop.status(), facts)

    async def count(self, *facts: str) -> None:
        """Some of the totals."""
        for name, number in (fact.split("=") for fact in facts):
            assert (name, self.shop.count(name)) == (name, int(number))

    async def gone(self, *kinds: str) -> None:
        """There is no such key."""
        await self.size(*(f"{kind}=0" for kind in kinds))

    async def size(self, *facts: str) -> None:
        """So many are in a sorted set, or none is there."""
        for kind, number in (fact.split("=") for fact in facts):
            assert (kind, self._size(kind)) == (kind, int(number))

    def _size(self, kind: str) -> int:
        key = self.shop.keys(*kind.split(":", 1))
        found: Any = self.shop.raw.type(key)
        sizes: dict[bytes, Callable[[str], Any]] = {
            b"zset": self.shop.raw.zcard, b"hash": self.shop.raw.hlen, b"list": self.shop.raw.llen
        }  # fmt: skip
        return int(sizes.get(found, self.shop.raw.exists)(key))

    async def sound(self) -> None:
        """The auditor finds nothing wrong meanwhile."""
        assert self.shop.audit() == []


def played(
    table: str | Mapping[str, str],
    by: type[Story] = Story,
    first: str = "",
    orders: Sequence[str] = (),
    **choices: Sequence[str],
) -> Callable[..., Awaitable[None]]:
    """A test for each story of a table, or of a text as `named` reads it; `first` begins each.

    With each of some orders of groups, or with the usual one.
    """

    @stories(named(table, **choices) if isinstance(table, str) else table)
    async def test(shop: Bench, story: str) -> None:
        await by(shop).go_on(f"{first}\n{story}")

    return pytest.mark.parametrize("order", orders, indirect=True)(test) if orders else test
