"""Limits: how many of a group run at once, how often they start, until when none does.

And limits by hand: they hold in place of what is configured, for a while, and end by themselves.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from groupflow.core.limits import HandLimit, Limit, Limits
from groupflow.operate.limits import LimitsByHand
from groupflow.operate.redrive import Redriver
from groupflow.settings.model import Settings
from groupflow.store.scripts import Verb
from groupflow.store.settlements import Retry
from tests.store.actors import with_envelope
from tests.store.bench import Bench, arrival, ids
from tests.store.story import hears, named, play, played
from tests.store.task_state import fill, letter

STORIES = named(
    """
    so many of a group run, in order, on all daemons::
        limits 3 | take a0 a1 a2 a3 a4 | open d2 | claim a0 a1 | d2: all a2 | done a2 | d2: all a3
    a group without a limit beside them stays serial::
        limits 3 | take c0%other c1%other a0 a1 | all c0 a0 a1
    a crash gives back exactly what it held::
        limits 3 | take a0 a1 a2 a3 | open d2 | claim a0 a1 | d2: all a2 | lose d1 a0 a1
        size sharing=1 | d2: all a0*1 | d2: none
    a claim without an envelope is passed over::
        limits 2 | take a0 a1 a2 | open d1 | lost a0 | idle grouped | all a1 a2
    of a large message nothing is read for it::
        limits 2 | take a0$100000 a1$100000 a2$100000 | all a0 a1
    a status counts groups, once each::
        limits 2 | take a0 a1 a2 b0 | all a0 a1 b0 | status running_grouped=3 groups=2 ready=0
        take b1 c0 | status running_grouped=3 groups=3 ready=2
    paused and parked while several run::
        limits 2 | take a0 a1 a2 b0 b1 b2 | all a0 a1 b0 b1 | pause a | park b0
        why a running running=2 | why b running running=1 | done a0 a1 b1 | none
        why a paused | why b parked | resume a | all a2
    more may run at once from a reload on, of what is locked too::
        take a0 a1 a2 a3 | all a0 | limits 3 | hears grouped reload | all a1 a2
        why a running running=3 | done a0 | all a3
    fewer from a reload on: what runs goes on::
        limits 3 | take a0 a1 a2 a3 a4 | all a0 a1 a2 | limits | reload | done a0 a1 | none
        done a2 | all a3 | gone limits | size lock:a=1
    # How often they start
    starts are a time apart, of a group that no claim looks at::
        limits 1 1/min | take a0 a1 a2 | claim a0 | size lock:a=1 | done a0 | gone ready | none
        later 61 | all a1
    a rate holds while others of the group run::
        limits 5 1/min burst 2 | take a0 a1 a2 a3 | all a0 a1
        why a running running=2 concurrency=5 : over its 1/min burst 2 until
        later 61 | all a2
    a burst comes back with time, and adds up to no more::
        limits 9 1/min burst 3 | take a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 | all a0 a1 a2
        later 120 | all a3 a4 | later 3600 | all a5 a6 a7
    nor after a long time without any::
        limits 9 1/min burst 3 | take a0 | drain a0 | later 3600 | take a1 a2 a3 a4 a5
        all a1 a2 a3
    what was handed back has started:: limits 1 1/min | take a0 | claim a0 | release a0 | none
    nothing is left when it is over::
        limits 1 1/s | take a0 b0 | drain a0 b0 | size rates=2 | later 10 | gone rates
    a faster one holds from a reload on::
        limits 1 1/h | take a0 a1 a2 | claim a0 | done a0 | next 3600 | limits 1 1/min | reload
        next 60
    those that are past go with later starts::
        limits 1 1/s | take a0 b0 c0 d0 e0 f0 g0 h0 | drain a0 b0 c0 d0 e0 f0 g0 h0 | later 10
        take s0 t0 u0 v0 | drain s0 t0 u0 v0 | size rates=4
    no run has what is over its rate::
        limits 1 1/min | runs 4 rule other | take a0 a1%other b0%other b1 | all a0 b0
    # Until when none does
    a handler closes its group, behind its head::
        take a0 a1 b0 b1 | all a0 b0 | retry a0 group | done b0 | sound | all b1
        why a delayed: closed until | later 61 | none
    a handler closes its group, without its head::
        take a0 a1 b0 b1 | all a0 b0 | retry a0 aside group | done b0 | all b1
        why a delayed: closed until | later 3601 | all a1 | gone closed
    a slot goes on past no rate:: limits 1 1/min | take a0 a1 | claim a0 | swap a0
    a slot goes on past another's limit::
        limits 1 1/min | take a0%other a1%other | claim a0 | swap a0 a1
    a slot goes on and others have what may run beside it::
        limits 2 | take a0%one a1%one a2 a3 | open d2 | claim a0 | swap a0 a1 | sound | d2: all a2
    a slot goes on past nothing that runs there still::
        take a0 a1 a2 | claim a0 | bury a0 | claim a1 | limits 2 | reload | redrive a0
        d2: claim a0 | limits | reload | gone limits | swap a1
    # Limits by hand
    a rate holds starts apart::
        take a0 a1 b0 b1 | hand group a 1/min | drain a0 b0 b1 | lane a1
        why a delayed: over its 1/min until | why a delayed: by hand | later 61 | drain a1
    one that runs may run more at once, and as before when that is over::
        take a0 a1 a2 a3 a4 | claim a0 | hand group a 3 | sound | all a1 a2
        end_hands | promote | gone by_hand by_hand_ends | done a0 a1 | none | done a2 | all a3
    one that is over holds nothing before its removal::
        take a0 a1 b0 | hand group a 2 | hand group b 1/h | end_hands | all a0 b0
        status limited_groups=0 limited_tenants=0 by_hand=[] | promote
    a run ends soon under it, and its tasks wait::
        take a0 a1 a2 a3 a4 a5 | runs 4 | claim a0>a1>a2>a3 | hand group a 2 | sound | none
        tell a0 > a1 ends | none | tell a1 > | all a2 a3 | done a2 a3 | end_hands | promote
        claim a4>a5
    a hot group's slot goes on no more::
        take a0 a1 a2 a3 | claim a0 | hand group a 1/h | swap a0 a1 | swap a1
    what its rule says holds again: {over}::
        limits 3 | take a0 a1 a2 a3 | open d1 | hand group a 1 1/h | all a0 | {over} | sound
        all a1 a2 | done a0 | all a3
    its end is waited for:: take a0 | hand group a 2 | next 3600 | end_hands | promote | next -1
    a cap counts who runs already, grouped and plain::
        take a0 b0 c0 d0 p0 p1 | claim a0 b0 c0 p0 | hand tenant 42 2 | size charges=4 | none
        done a0 b0 | none | why d delayed: tenant 42 runs its 2 of 2; 1 group waits
        why d delayed: by hand | done p0 | claim d0 | none
    what a tenant runs is counted under its run's next fence::
        take a0 a1 a2 a3 | runs 4 | claim a0>a1>a2>a3 | hand tenant 42 1 | sound | tell a0 > a1
        sound | tell a1 > | size charges=0 | all a2>a3
    what was counted ends by an exchange, and counts as others then::
        take a0 a1 a2 | claim a0 | hand tenant 42 1 | size charges=1 | unhand tenant 42
        swap a0 a1 | size charges=0 | swap a1 a2
    a tenant goes on as configured: {ended}::
        take a0 b0 c0 p0 p1 | open d1 | hand tenant 42 1/h | claim a0 | none | {ended} | sound
        drain b0 c0 p0 p1 | done a0
    a tenant's is lifted for a while::
        tenants 1 | take a0 b0 c0 d0 | all a0 | hand tenant 42 0 | claim b0 c0 | end_hands
        promote | done a0 | none | done b0 c0 | all d0
    """,
    over=("end_hands | promote", "unhand group a", "hand group a any"),
    ended=("end_hands | promote", "unhand tenant 42"),
)
STORIES |= {
    f"{way} gives back one, said twice too": f"""
        limits 2 | take a0 a1 a2 a3 | all a0 a1 | {way} | size sharing=1 | unchanged {way}
        {"claim a0" if way == "release a0" else "claim a2"} | none | size sharing=2
    """
    for way in ("done a0", "release a0", "bury a0", "retry a0 aside", "advance a0 aside")
}
test_limits = played(STORIES)


@pytest.mark.parametrize("text", ["a", "0", "0001a", "", "a\x00", "é" * 127, "g" * 512])
async def test_groups_that_look_alike_share_nothing(shop: Bench, text: str) -> None:
    groups = [text + end for end in ("", "0", "00", "9", "a", "\x00", "z")]
    groups = [group for group in groups if 0 < len(group.encode()) <= 512]
    shop.limits = Limits({"rule": Limit(2)})
    await shop.enqueue(
        *(arrival(f"t{n}.{i}", group) for n, group in enumerate(groups) for i in range(3))
    )
    daemon = await shop.daemon()
    claims = await daemon.claim("grouped", *(f"w{n}" for n in range(30)))
    assert sorted(ids(claims)) == sorted(f"t{n}.{i}" for n in range(len(groups)) for i in range(2))


async def test_a_shorter_time_doesnt_open_what_a_longer_one_closed(shop: Bench) -> None:
    told = await play(shop, "limits 2 | take a0 a1 a2 | all a0 a1")
    for id_, after in (("a0", 600.0), ("a1", 6.0)):
        late = Retry(told.claim_of(id_)[1], after, [], "step-aside", "group")
        assert await (await told.daemon()).exchange("grouped", [late], []) == ([], [])
    await told.go_on("later 60 | none | later 600 | all a2 | gone closed")


async def test_a_large_letter_has_the_limit_of_the_rule_that_a_redrive_finds(shop: Bench) -> None:
    """It had none as it died at the door."""
    rules = {"groups": [{"name": "rule", "app": "*", "key": "a", "concurrency": 2}]}
    shop.limits = Limits({"rule": Limit(2)})
    body = b'{"app_name": "crm", "note": "%b"}' % (b"x" * 70_000)
    await shop.enqueue(with_envelope(arrival("a0", dead="no"), body=body))
    redriver = Redriver(Settings.model_validate(rules), shop.namespace)
    daemon = await fill(shop, "a1")
    await daemon.claim_one()
    assert await redriver.redrive(await letter(shop, "a0"))
    assert (await daemon.claim_one(worker="w2")).task.id == "a0"


async def test_many_that_may_not_start_hide_no_other(shop: Bench) -> None:
    """A claim looks at so many and no more; where it finds others that wait, it says so."""
    shop.limits = Limits({"rule": Limit(1)})
    daemon = await fill(shop, "a0")
    groups = [f"{n:03d}" for n in range(150)]
    await shop.enqueue(*(arrival(f"t{group}", group) for group in groups))
    closed = dict.fromkeys((f"g{group}" for group in groups), shop.server_time() + 60_000_000)
    shop.raw.zadd(shop.keys("closed"), closed)
    shop.raw.zadd(shop.keys("ready"), {"a": 9e15})
    assert "grouped" in await hears(shop, lambda: daemon.claim("grouped", "w1"))
    assert (await daemon.claim_one()).task.id == "a0"


@pytest.mark.parametrize("limits", ["limits", "limits 1 1/min burst 9"])
async def test_no_slot_goes_on_past_a_closing(shop: Bench, limits: str) -> None:
    """Where nothing has limits, too."""
    told = await play(shop, f"{limits} | take a0%other a1%other | claim a0")
    shop.raw.zadd(shop.keys("closed"), {"ga": shop.server_time() + 60_000_000})
    await told.go_on("swap a0")


async def test_a_tenants_limit_is_its_in_every_application(shop: Bench) -> None:
    for number, scope in enumerate(("0a0a0a0a", "1b1b1b1b")):
        every = [arrival(f"{group}{number}", f"{group}{number}") for group in "ab"]
        for each in every:
            each.envelope.scope = scope
        await shop.enqueue(*every)
    told = await play(shop, "hand tenant 42 1 | all a0 a1 | hand tenant 42 2 | sound")
    await told.go_on("all b0 b1")


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


async def test_there_is_a_most(shop: Bench, monkeypatch: Any) -> None:
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
