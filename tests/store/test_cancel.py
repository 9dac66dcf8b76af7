"""Tasks are cancelled: at once where they wait, else with their claim."""

from __future__ import annotations

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.tasks import Tasks, end_cancelled
from groupflow.store.cancelling import CANCELLED_AT_ONCE, Cancel, Named
from tests.store.bench import Bench, bury
from tests.store.story import play, played
from tests.store.test_ids import OURS, THEIRS, of

test_what_becomes_of_it = played(
    """
    what waits ends at once::
        take a0 a1 p0 b0@ q0@ c0!
        cancel a0 | cancel p0 | cancel b0 | cancel q0 | cancel c0 dead | cancel d0 unknown
        task a0 cancelled cancelled_by=ops reason=mistake | drain a1
        cancel a0 cancelled | cancel a1 done | count cancelled=4 | gone cancels
    plain ones that were handed back out of order::
        take p0 p1 p2 p3 | claim p0 p1 p2 | release p0 | release p2 | release p1 | cancel p0
        cancel p2 | claim p1 p3 | gone cancels
    a claimed one ends where it would wait again, by {way}::
        take a0 a1 p0 | claim a0 p0 | hears cancel:a0 cancel a0 requested | cancel p0 requested
        task a0 running cancelled_by=ops | unchanged cancel a0 requested | sound
        {way} a0 | {way} p0 | task a0 cancelled attempt=1 | task p0 cancelled | claim a1 | none
        count cancelled=2 | gone cancels
    who asked for that is told, as long as its handler has not ended::
        take a0 a1 | claim a0 | cancel a0 requested
        why a running: by ops (mistake): its handler has not ended yet
    where it is done, or dead, it stays that::
        take a0 b0 p0 | claim a0 b0 p0 | cancel a0 requested | cancel b0 requested
        cancel p0 requested | done a0 | bury b0 | done p0 | task a0 done | task b0 dead
        gone cancels | redrive b0 | drain b0
    it is not taken over::
        take a0 a1 p0 | claim a0 p0 | cancel a0 requested | cancel p0 requested | lose d1 a0 p0
        task a0 cancelled crashes=0 lost_leases=1 | d2: claim a1 | d2: none | gone cancels
    nor by its daemon's next process::
        take a0 a1 | claim a0 | cancel a0 requested | crash d1 a0
        task a0 cancelled crashes=1 | claim a1
    nor given again by a server that lost its settle::
        take a0 a1 | claim a0 | cancel a0 requested | save | release a0 | restore | release a0
        task a0 cancelled | claim a1
    a run's next tasks are not begun, and the one that runs ends with it::
        runs 3 | take a0 a1 a2 a3 | claim a0>a1>a2 | cancel a2 requested | cancel a1 requested
        tell a0 > | task a1 queued | claim a3 | task a1 cancelled | task a2 cancelled
    all of a group, wherever they wait, and what runs is asked::
        take a0 a1@ a2 a3@~ a4! b0 b1 p0 | claim a0 b0
        hears cancel:a0,cancel:a0 cancel_all group a 3 a0 | task a0 running cancelled_by=ops
        task a4 dead | done a0
        task a0 done | why a idle | done b0 | drain p0 b1 | count cancelled=3 | gone cancels
    of a group that is delayed, paused or parked::
        take a0@ a1 b0 b1 c0 c1 | pause b | claim c0 | park c0 | cancel_all group a 2
        cancel_all group b 2 | cancel_all group c 1 | task c0 dead | why a idle | why b paused
        why c parked | count cancelled=5
    of a group that runs several::
        limits 2 | take a0 a1 a2 a3 | claim a0 a1 | cancel_all group a 2 a0 a1 | release a0
        task a0 cancelled | done a1 | why a idle
    of a group with a run, whose tasks stay until they are told::
        runs 3 | take a0 a1 a2 a3 | claim a0>a1>a2 | cancel_all group a 1 a0 a1 a2 | tell a0 >
        task a1 queued | none | task a1 cancelled | task a2 cancelled | why a idle
    of a group with a run, one that has come back in front of it::
        take a0 a1 a2 | claim a0 | bury a0 | runs 3 | claim a1>a2 | redrive a0
        cancel_all group a 1 a1 a2 | task a0 cancelled
    of a group with a run, one that stands aside and is older::
        runs 3 | take a0@~ a1 a2 | claim a1>a2 | cancel_all group a 1 a1 a2 | task a0 cancelled
    of a type, wherever they wait::
        take a0 a1@ a2 a3@~ a4! b0 b1 c0@ c1 p0 p1 p2@ q0=others c2=others | claim a0 b0 p0
        cancel_all type t 10 a0 b0 p0 | done a0 | release b0 | retry p0 | task a0 done
        task b0 cancelled | task p0 cancelled | task a4 dead | none | count cancelled=12
        status queued_plain=0 queued_grouped=0 | gone cancels
    of a type, where tenants wait for their turns::
        tenants 1 | take 1/p0 1/p1 1/p2 2/p3 1/a0 1/b0 | claim a0 | cancel_all type t 5 a0
        done a0 | none | status queued_plain=0 queued_grouped=0
    of a type, quarantined ones::
        crashed a0 p0 | take a1 | cancel_all type t 3 | none | count cancelled=3
    of another type nothing::
        take a0 p0 | claim a0 | unchanged cancel_all type other 0 | done a0 | drain p0
    """,
    way=("release", "retry", "advance"),
)


@pytest.mark.parametrize(
    ("id_", "then"),
    [
        ("a0", "claim a1 p0"),
        ("p0", "claim a0 p1"),
        ("a1", "runs 3 | claim a0 | done a0 | claim a2"),
    ],
)
async def test_a_claim_in_between_ends_it(shop: Bench, id_: str, then: str) -> None:
    """It is claimed right behind the request, before the caller could take it out of its place."""
    told = await play(shop, "take a0 a1 a2 p0 p1")
    await shop.client.run(OperatorVerb.CANCEL, id_, b'["ops",""]')
    await told.go_on(f"{then} | task {id_} cancelled | gone cancels")
    assert await Tasks(shop.namespace).cancel(id_, "ops") == "cancelled"


async def test_a_message_cancels_what_its_own_publisher_named(shop: Bench) -> None:
    """Of two scopes' tasks of one id it is the one that is meant; heard again, nothing changes."""
    over = [of(OURS, name) for name in ("done", "dead")]
    taken = await shop.take_in(*over, of(OURS, "x"), of(THEIRS, "x"), of(OURS, "last"))
    [theirs] = taken.renamed.values()
    daemon = await shop.daemon()
    await daemon.complete(await daemon.claim_one())
    await daemon.settle(bury(await daemon.claim_one()))
    named = [Named(name, OURS) for name in ("done", "dead", "never")] + [Named("x", THEIRS)]
    requested = Cancel("requested", theirs, "g")
    before = None
    for _ in range(2):
        found = await shop.enqueuer.cancel(named)
        assert found == [Cancel("over"), Cancel("over"), Cancel("unknown"), requested]
        dump = {key: value for key, value in shop.dump().items() if not key.endswith(b":count")}
        assert dump == (before or dump)
        before = dump
    claim = await daemon.claim_one()
    assert claim.task.id == "x"
    await daemon.complete(claim)
    assert (await daemon.claim_one()).task.id == "last"
    story = await Tasks(shop.namespace).find(theirs)
    assert story is not None
    assert (story.state, story.cancelled_by) == ("cancelled", "publisher")
    assert await shop.enqueuer.cancel([Named("x", THEIRS)]) == [Cancel("over")]
    assert shop.count("cancelled") == 1


async def test_many_messages_cancel_tasks_by_several_scripts(shop: Bench) -> None:
    """Those that wait are taken out of their places behind that, each of them once."""
    names = [f"p{n}" for n in range(CANCELLED_AT_ONCE + 3)]
    await shop.enqueue(*(of(OURS, name) for name in names))
    found = await shop.enqueuer.cancel([Named(name, OURS) for name in names])
    assert [each.id for each in found] == names
    for again in (False, True):
        ended = [await end_cancelled(shop.client, each.id, each.group) for each in found]
        assert ended == [not again] * len(names)
    assert shop.count("cancelled") == len(names)
    assert not shop.raw.exists(shop.keys("cancels"))


async def test_a_request_that_a_server_lost_ends_nothing(shop: Bench) -> None:
    """The task stays where it waits, and runs: it is not taken out of its place for nothing."""
    await shop.enqueue(of(OURS, "x"), of(OURS, "y"))
    [x] = await shop.enqueuer.cancel([Named("x", OURS)])
    shop.raw.delete(shop.keys("cancels"))
    assert not await end_cancelled(shop.client, x.id, x.group)
    claim = await (await shop.daemon()).claim_one()
    assert claim.task.id == "x"
