"""Limits by hand: they hold in place of what is configured, for a while, and end by themselves."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from groupflow.core.limits import HandLimit, Limit, Limits
from groupflow.operate.limits import LimitsByHand
from groupflow.store.scripts import Verb
from tests.store.bench import Bench, arrival
from tests.store.story import named, play, stories

STORIES = named(
    """
    one without a limit gets one::
        take a0 a1 a2 a3 b0 b1 | open d1 | hand group a 3 | all a0 a1 a2 b0
    a rate holds starts apart::
        take a0 a1 b0 b1 | hand group a 1/min | drain a0 b0 b1 | lane a1
        why a delayed: over its 1/min until | why a delayed: by hand | later 61 | drain a1
    one that runs may run more at once, and as before when that is over::
        take a0 a1 a2 a3 a4 | claim a0 | hand group a 3 | sound | all a1 a2
        hour | gone by_hand by_hand_ends | done a0 a1 | none | done a2 | all a3
    one that is over holds nothing before its removal::
        take a0 a1 b0 | hand group a 2 | hand group b 1/h | end_hands | all a0 b0
        status limited_groups=0 limited_tenants=0 by_hand=[] | promote
    a run ends soon under it, and its tasks wait::
        take a0 a1 a2 a3 a4 a5 | runs 4 | claim a0>a1>a2>a3 | hand group a 2 | sound | none
        tell a0 > a1 ends | none | tell a1 > | all a2 a3 | done a2 a3 | hour | claim a4>a5
    a hot group's slot goes on no more::
        take a0 a1 a2 a3 | claim a0 | hand group a 1/h | hop a0 - | swap a0 a1 | swap a1
    what its rule says holds again: {over}::
        limits 3 | take a0 a1 a2 a3 | open d1 | hand group a 1 1/h | all a0 | {over} | sound
        all a1 a2 | done a0 | all a3
    its end is waited for:: take a0 | hand group a 2 | next 3600 | hour | next -1
    a cap counts who runs already, grouped and plain::
        take a0 b0 c0 d0 p0 p1 | claim a0 b0 c0 p0 | hand tenant 42 2 | size charges=4 | none
        done a0 b0 | none | why d delayed: tenant 42 runs its 2 of 2; 1 groups wait
        why d delayed: by hand | done p0 | claim d0 | none
    what a tenant runs is counted under its run's next fence::
        take a0 a1 a2 a3 | runs 4 | claim a0>a1>a2>a3 | hand tenant 42 1 | sound | tell a0 > a1
        sound | tell a1 > | size charges=0 | all a2>a3
    what was counted ends by an exchange, and counts and hops as others then::
        take a0 a1 a2 | claim a0 | hand tenant 42 1 | size charges=1 | unhand tenant 42
        hop a0 - | swap a0 a1 | size charges=0 | hop a1 a2
    a tenant goes on as configured: {ended}::
        take a0 b0 c0 p0 p1 | open d1 | hand tenant 42 1/h | claim a0 | none | {ended} | sound
        drain b0 c0 p0 p1 | done a0
    a tenant's is lifted for a while::
        tenants 1 | take a0 b0 c0 d0 | all a0 | hand tenant 42 0 | claim b0 c0 | hour | done a0
        none | done b0 c0 | all d0
    """,
    over=("hour", "unhand group a", "hand group a any"),
    ended=("hour", "unhand tenant 42"),
)


@stories(STORIES)
async def test_limits_by_hand(shop: Bench, story: str) -> None:
    await play(shop, story)


async def test_a_tenants_limit_is_its_in_every_application(shop: Bench) -> None:
    for number, scope in enumerate(("0a0a0a0a", "1b1b1b1b")):
        every = [arrival(f"{group}{number}", f"{group}{number}") for group in "ab"]
        for each in every:
            each.envelope.scope = scope
        await shop.enqueue(*every)
    told = await play(shop, "hand tenant 42 1 | all a0 a1 | hand tenant 42 2 | sound")
    await told.go_on("all b0 b1")


async def test_no_batch_waits_to_be_full(shop: Bench) -> None:
    """One by one its tasks are claimed: what it waits for would not come."""
    shop.limits = Limits({"rule": Limit(batch=3, batch_wait=60.0)})
    await play(
        shop,
        "take a0 a1 | open d1 | none | hand group a 2 | all a0 a1 | done a0 a1 | unhand group a"
        "| take a2 | none",
    )


async def test_a_daemon_is_told_once_what_began_and_ended(shop: Bench) -> None:
    async def news() -> list[list[Any]]:
        """What a daemon's log is told: what, of whom, by whom."""
        _, _, *told = await shop.client.run(Verb.PROMOTE, 10, "tell")
        rows = [orjson.loads(each) for each in (told[0] if told else [])]
        return [[each[0], each[1], each[5]] for each in rows]

    told = await play(shop, "hand group a 2 | hand tenant 42 2")
    assert await news() == [["began", "ga", "ada"], ["began", "t42", "ada"]]
    assert await news() == []
    await told.go_on("unhand group a | end_hands")
    assert not await LimitsByHand(shop.namespace).end("group", "a", "bob")
    assert await news() == [["ended", "ga", "bob"], ["ended", "t42", ""]]
    assert shop.dump().keys() <= {shop.keys("count").encode()}


async def test_there_is_a_most(shop: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds already may be changed all the same."""
    monkeypatch.setattr("groupflow.operate.limits.MOST", 1)
    told = await play(shop, "hand group a 2")
    with pytest.raises(Exception, match="limited by hand already"):
        await told.go_on("hand group b 2")
    await told.go_on("hand group a 3")
    assert [each.concurrency for each in (await LimitsByHand(shop.namespace).every()).limits] == [3]


@pytest.mark.parametrize(
    ("given", "seconds", "words"),
    [
        (HandLimit("group", "a", 0), 60.0, "concurrency of 1"),
        (HandLimit("tenant", "a", -1), 60.0, "concurrency of 0"),
        (HandLimit("group", "a", rate="fast"), 60.0, "Write a rate"),
        (HandLimit("group", "a"), 60.0, "a concurrency, a rate"),
        (HandLimit("tenant", "", 1), 60.0, "Name a tenant"),
        (HandLimit("group", "a", 2), 0.0, "30 days"),
        (HandLimit("group", "a", 2), 31 * 86400.0, "30 days"),
        (HandLimit("group", "a", 2), float("nan"), "30 days"),
    ],
)
def test_what_can_not_hold_is_refused(given: HandLimit, seconds: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        given.check(seconds)
