"""`max_queued`: how many tasks may wait in a group; a message beyond that is a dead letter.

What waits is what stands in the group's lane: not what runs, and not what stands aside.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from groupflow.core.errors import GroupFull
from groupflow.operate.dead import DeadLetters
from groupflow.operate.groups import Groups
from groupflow.store.enqueue import READ_WHOLE
from tests.store.bench import Bench
from tests.store.story import Story, named, play, stories
from tests.store.task_state import found, letter
from tests.store.words import made


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
            assert (dead.type, dead.group, dead.tenant) == (
                batch[n].envelope.type, batch[n].envelope.group, batch[n].envelope.tenant
            )  # fmt: skip

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


STORIES = named(
    """
    messages of one batch count one after another, each group for itself::
        refuse a2,b1 a0<2 a1<2 b0<1 a2<2 b1<1 q1 | lane a0 a1 | lane b0 | refuse a3 a3<2
        count buried=3 queued_grouped=3 | drain a0 a1 b0 q1
    what runs waits no more::
        take a0<1 | claim a0 | refuse a2 a1<1 a2<1 | lane a1 | done a0 | claim a1 | take a3<1
    no task has a task state for the bound alone:: take a0<2 | gone task_state:a0
    a task that is known counts once, and a letter that is known stays one::
        take a0<2 | duplicates a0<2 | refuse a2 a1<2 a2<2 | drop a0 | duplicates a2<2
        task a2 dead
    a message of a rule without a bound waits in a full group:: take a0<1 | refuse - a1 | lane a0 a1
    what has a larger bound does too:: take a0<1 | refuse a2 a1<2 a2<2 | lane a0 a1
    a task that {way} does not count anew::
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
    way=("release", "retry"),
)


@stories(STORIES)
async def test_full_groups(shop: Bench, story: str) -> None:
    await FullGroups(shop).go_on(story)


async def test_a_large_message_is_refused_alike(shop: Bench) -> None:
    small, large = made("a0<1"), made("a1<1")
    large.envelope.body = b"x" * (2 * READ_WHOLE)
    assert (await shop.take_in(small, large)).full == {1}
    told = FullGroups(shop)
    await told.go_on("stays 1 a1 | claim a0 | redriven 1 a1 | done a0 | drain a1")


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
