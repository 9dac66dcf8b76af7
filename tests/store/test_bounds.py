"""What bounds the store: calls that run twice, full memory, text that comes from strangers."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from groupflow.core.errors import GroupFull, StoreFull
from groupflow.operate.dead import DeadLetters
from groupflow.operate.groups import Groups
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Release
from tests.store.actors import WAYS, made
from tests.store.bench import Bench, arrival, bury, ids, with_fence
from tests.store.story import Story, play, played
from tests.store.task_state import found, letter

STRANGERS = [
    *("a|||b", "{a}:{b}", "}{", "{{ns}}:lock:a", "lock:a", "%d%s%%"),
    "'; redis.call('FLUSHALL') --",
    *('"quoted" \\ back\\slash', "[]?*", "*", "-1", "0", "with space and\ttab", "line\nfeed"),
    *("nul\x00inside", "Grüße 租户 🐘", "line\u2028separator", "right\u202eto left"),
    "é" * 127 + "x",  # 255 bytes
]
LONG_KEY = "ключ" * 64  # 512 bytes, the longest group key


@pytest.mark.parametrize("text", [*STRANGERS, LONG_KEY], ids=ascii)
async def test_strangers_text_is_only_text(shop: Bench, text: str) -> None:
    """With any text in ids and groups, each is itself and reaches nothing else."""
    neighbours = ["a", "b", f"{text}x", f"x{text}"]
    await shop.enqueue(arrival(f"{text}1", text), arrival(f"{text}2", text), arrival(text))
    await shop.enqueue(*(arrival(f"n{n}", group) for n, group in enumerate(neighbours)))
    daemon = await shop.daemon("my {host}:1 %s")
    claims = await daemon.claim("grouped", *(f"grouped {n}" for n in range(9)))
    assert ids(claims) == [f"{text}1", "n0", "n1", "n2", "n3"]
    assert [claim.task.group for claim in claims] == [text, *neighbours]
    plain = await daemon.claim_one("plain", "plain:0")
    assert plain.task.id == text
    assert shop.judge() == []
    await daemon.settle(Release(claims[0]))
    claims[0] = await daemon.claim_one(worker="grouped 0")
    shop.with_faults = True
    await daemon.register()
    for claim in claims:  # quarantined tasks all of them, which come one by one
        again = await daemon.claim_one(worker=claim.slot)
        assert again.task.id in ids(claims)
        await daemon.settle(bury(again, text))
    assert sorted(await daemon.work_off()) == sorted([text, f"{text}2"])
    letters = [letter async for letter in DeadLetters(shop.namespace).each()]
    assert {(letter.id, letter.group, letter.reason) for letter in letters} == {
        (claim.task.id, claim.task.group, text) for claim in claims
    }
    assert shop.judge_drained() == []


# Idempotency: what is called twice has happened once

# A settle that is sent again, alone or behind its slot's next claim, changes nothing.
test_twice_is_once = played(
    """
    {way} of {id}, also behind the next claims::
        take {id} a1 b0 b1 p1 p2 | claim {id} | {way} {id} | unchanged {way} {id} | some
        unchanged {way} {id}'
    a stale {way} of {id}::
        take {id} a1 b0 p1 | claim {id} | crash | claim {id} | refused unchanged {way} {id}'
    enqueue::
        take p0 p1+5 p2@ p3! z0 z1+5 z2@ z3! | duplicates p0 p1+5 p2@ p3! z0 z1+5 z2@ z3!
        status queued_plain=3 queued_grouped=3 dead=2
    leave:: take a0 p0 | claim a0 p0 | leave | unchanged leave
    reap:: take a0 p0 | claim a0 p0 | lose d1 a0 p0 | d2: unchanged reap
    {act}, by an operator or a duty::
        take a0 b0 | claim a0 | park a0 | pause c | hand group d 2 | {act} | unchanged {act}
    a drop of a dead letter:: take a0 | claim a0 | park a0 | drop a0 | unchanged drop a0 over
    a second registration:: open d1 | crash | crash | renew | status limited_groups=0
    """,
    way=("done", "release", "bury", "park", "retry", "retry aside", "advance", "advance aside"),
    id=("a0", "p0"),
    act=("pause a", "pause all", "resume c", "resume all", "promote"),
)


async def test_a_claim_is_settled_under_its_own_fence_by_its_daemon_and_slot(shop: Bench) -> None:
    told = await play(shop, "take a0 a1 p0 | open d2 | claim a0 p0")
    own, other = await told.daemon(), await told.daemon("d2")
    for claim in (told.claim_of(id_)[1] for id_ in ("a0", "p0")):
        before, elsewhere = shop.dump(), with_fence(claim, claim.fence)
        elsewhere.slot = "w9"
        wrong = (with_fence(claim, claim.fence + by) for by in (-1, 1))
        for daemon, bad in ((other, claim), *((own, each) for each in (*wrong, elsewhere))):
            for way in WAYS.values():
                settlement = way(bad, "hold", "task")
                assert await daemon.exchange("plain", [settlement], []) == ([settlement], [])
        assert shop.dump() == before


# Memory


async def test_full_memory_refuses_new_tasks_and_lets_all_else_go_on(shop: Bench) -> None:
    """Claims, settles, sessions, pauses, drops: what is queued drains, and so makes room."""
    told = await play(shop, "take a0 b0 c0 d0 e0 f0 g0 h0 a1 b1 p0 p1 p2 p3 | open d1 d2")
    before = shop.dump()
    with shop.full():
        for batch in ([arrival("a2", "a")], [arrival(f"p{n}") for n in range(500)]):
            with pytest.raises(StoreFull, match="out of memory"):
                await shop.enqueue(*batch)
        assert shop.dump() == before, "all or nothing"
        await told.go_on(
            """claim a0 b0 c0 d0 e0 f0 g0 h0 p0 p1 p2 | done a0 p0 | release b0 p1 | bury c0 p2
            park d0 | retry_now e0 | retry_now f0 aside | advance g0 | advance h0 aside
            promote | pause a | resume a | d2: claim b0 | renew | claim a1 | reap"""
        )
        with pytest.raises(StoreFull):
            await told.go_on("redrive c0")
        shop.expire("d2")
        assert [e.id for e in (await (await told.daemon()).sessions.reap())[1]] == ["b0"]
        await told.go_on("d2: crash | drop c0 | drop d0 | drop p2 | done a1")
        await shop.client.run(Verb.ROTATE, 3_600_000_000, 1)
        await told.go_on("status queued_grouped=6 running_grouped=0 dead=0")
        assert len(await (await told.daemon()).work_off()) == 8
    await told.go_on("take a2")


# `max_queued`: how many tasks may wait in a group; a message beyond that is a dead letter.
# A task waits that stands in the lane: not one that runs, and not one that stands aside.


class FullGroups(Story):
    """A store where messages meet groups that are full."""

    async def refuse(self, out: str, *words: str) -> None:
        """A batch comes; which of it are dead letters, since their group is full."""
        batch = [made(word) for word in words]
        done = await self.shop.take_in(*batch)
        assert (",".join(batch[n].id for n in sorted(done.full)) or "-") == out
        for n in done.full:
            dead = await letter(self.shop, batch[n].id)
            assert (dead.reason, dead.kind) == ("its group is full", "group full")
            assert (dead.attempts, dead.died_at_the_door) == (0, False)
            sent = batch[n].envelope
            assert (dead.type, dead.group, dead.tenant) == (sent.type, sent.group, sent.tenant)

    async def stays(self, most: str, *named: str) -> None:
        """A redrive finds the group full, and writes nothing."""
        for id_ in named:
            with pytest.raises(GroupFull, match=f"group {id_[0]} is full"):
                await self._redrive(id_, most)

    async def redriven(self, most: str, *named: str) -> None:
        """A redrive finds room."""
        for id_ in named:
            assert await self._redrive(id_, most)

    async def _redrive(self, id_: str, most: str) -> bool:
        letters, dead = DeadLetters(self.shop.namespace), await letter(self.shop, id_)
        rule = made(id_).envelope.rule or ""
        return await letters.redrive(dead, max_queued={rule: int(most)})


test_full_groups = played(
    """
    messages of one batch count one after another, each group for itself::
        refuse a2,b1 a0<2 a1<2 b0<1 a2<2 b1<1 q1 | lane a0 a1 | lane b0 | refuse a3 a3<2
        count buried=3 queued_grouped=3 | drain a0 a1 b0 q1
    a large message is refused alike::
        refuse a1 a0<1 a1<1$20000 | stays 1 a1 | claim a0 | redriven 1 a1 | done a0 | drain a1
    what runs waits no more::
        take a0<1 | claim a0 | refuse a2 a1<1 a2<1 | lane a1 | done a0 | claim a1 | take a3<1
    no task has a task state for the bound alone:: take a0<2 | gone task_state:a0
    a task that is known counts once, and a letter that is known stays one::
        take a0<2 | duplicates a0<2 | refuse a2 a1<2 a2<2 | drop a0 | duplicates a2<2
        task a2 dead
    a message of a rule without a bound waits in a full group:: take a0<1 | refuse - a1 | lane a0 a1
    what has a larger bound does too:: take a0<1 | refuse a2 a1<2 a2<2 | lane a0 a1
    a task that {way} does not count again::
        take a0<1 | claim a0 | take a1<1 | {way} a0 | lane a0 a1 | refuse a2 a2<1
    a task that comes to its next stage does not either::
        take a0<1 | claim a0 | take a1<1 | advance a0 | refuse a2 a2<1 | claim a0#two
    nor does one whose daemon dies:: take a0<1 | claim a0 | take a1<1 | crash | lane a0 a1
    what stands aside is not in line, but a message needs room to stand there::
        refuse - a0<1~@ a1<1~@ a2<1 | refuse a3,a4 a3<1~@ a4<1 | lane a2 | run_now a0
        run_now a1 | lane a0 a1 a2 | drain a0 a1 a2
    a delay in line counts:: refuse a2 a0<2@ a1<2 a2<2 | lane a0 a1
    the newest of a burst takes the place of the one before it::
        refuse - c1^<1 | refuse c7 c2^<1 c7<1 | superseded c1=c2 | refuse d2 d1^<1 d3^<1 d2<1
        superseded d1=d3 | lane c2
    a burst begins only where there is room, and replaces nothing where there is none::
        take c7 | refuse c1 c1^<1 | gone debouncing | drop c7 | refuse - c2^<1 | time | drain c2
    also of a pool:: refuse a1 a0=<1 a1=<1 | anna: all a0 | refuse - a2=<1
    a dead message is dead of its own:: refuse - a0<1 a1<1! | task a1 dead reason=no
    a redrive asks again, and a letter comes back where there is room::
        refuse a1 a0<1 a1<1 | unchanged stays 1 a1 | claim a0 | redriven 1 a1 | lane a1
        refuse a2 a2<1 | done a0 | drain a1
    a letter of another death asks as well::
        take a0<1 | claim a0 | bury a0 | take a1<1 | unchanged stays 1 a0 | redriven 2 a0
        drain a0 a1
    but a group that is parked behind it waits for it::
        take a0<1 | claim a0 | park a0 | refuse a2 a1<1 a2<1 | stays 1 a2 | redriven 1 a0
        drain a0 a1
    a redrive gives the rest of its delay::
        refuse a1,a2 a0<1 a1<1@ a2<1~@ | drop a0 | redriven 1 a1 | waits a1 3600 | lane a1
        stays 1 a2 | redriven 2 a2 | waits a2 3600 | lane a1 | size delayed=1
    """,
    FullGroups,
    way=("release", "retry"),
)


async def test_why_says_that_it_is_full(shop: Bench) -> None:
    """By the bound of its head's rule, as the caller is configured."""
    await play(shop, "take a0 a1")
    groups, rule = Groups(shop.namespace), made("a0").envelope.rule or ""
    for most, is_full in ((0, False), (1, True), (2, True), (3, False)):
        why = await groups.why("a", max_queued={rule: most} if most else {})
        assert (why.state, why.max_queued, why.is_full) == ("ready", most, is_full)
        said = f"; its group is full: 2 wait, and max_queued lets {most}"
        assert (said in why.reason) == is_full
    assert (await groups.why("a", max_queued={"other": 1})).max_queued == 0
    assert (await groups.why("b", max_queued={rule: 1})).is_full is False


async def test_a_letter_says_so_as_a_task(shop: Bench) -> None:
    await FullGroups(shop).go_on("refuse a1 a0<1 a1<1")
    assert (await found(shop, "a1")).reason == "its group is full"


async def test_a_letter_that_is_routed_again_asks_by_its_new_rule(shop: Bench) -> None:
    """What died at the door had no group before."""
    await FullGroups(shop).go_on("take a0 | refuse - q0!")
    letters, dead = DeadLetters(shop.namespace), await letter(shop, "q0")
    routed = replace(made("a1").envelope, rule="other")
    for most, is_full in ((1, True), (2, False)):
        with pytest.raises(GroupFull) if is_full else nullcontext():
            assert await letters.redrive(dead, routed, 0.0, max_queued={"other": most, "rule": 1})
    assert sorted(shop.lane("a")) == ["a0", "q0"]
