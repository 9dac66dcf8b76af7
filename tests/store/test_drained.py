"""`on_drained`: one task each time a group is drained, with how its tasks ended, each counted once.

After each test the auditor has looked whether a group is drained that no task tells of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from groupflow.core.limits import Limits
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.settlements import Complete
from tests.history.drains import ENDS
from tests.store.actors import WAYS
from tests.store.bench import Bench, arrival
from tests.store.story import Story, played


class Drains(Story):
    """A store whose rule asks to be told."""

    async def asks(self, pool: str = "") -> None:
        """It does so from the next session or reload on, beside its limits so far."""
        told = {"rule": (pool, "group.drained")}
        self.shop.limits = replace(self.shop.limits or Limits(), on_drained=told)

    async def untold(self, *groups: str) -> None:
        """No task of these groups tells that they are drained."""
        assert [id_ for group in groups for id_ in self.shop.lane(group) if ":" in id_] == []

    async def told(self, group: str, *facts: str) -> None:
        """A group's next task tells so, and how many ended in which way; it is done."""
        id_ = self.shop.lane(group)[0]
        self.says(id_, group, facts)
        await self.go_on(f"{self._actor}: claim {id_} | done {id_}")

    async def last(self, group: str, way: str) -> None:
        """The same, and it ends in another way."""
        id_ = self.shop.lane(group)[0]
        await self.go_on(f"claim {id_} | {way} {id_}")

    def says(self, id_: str, group: str, facts: Sequence[str]) -> None:
        """What a task that tells says."""
        packed: Any = self.shop.raw.hget(self.shop.keys("tasks"), id_)
        envelope, _, body = packed.partition(b"\n")
        assert orjson.loads(envelope)[:5] == ["group.drained", group, "42", "rule", {}]
        found = orjson.loads(body)
        assert found.pop("group") == group
        now = self.shop.server_time() / 1_000_000
        assert now - 60 < found.pop("first_at") <= found.pop("last_at") <= now
        assert [f"{how}={number}" for how in ENDS if (number := found[how])] == [*facts]

    async def drain_one(self, id_: str) -> None:
        """A task is claimed, and done."""
        await self.go_on(f"claim {id_} | done {id_}")

    async def at_once(self, *ends: str) -> None:
        """Claims of the daemon end in one exchange, each as in ``done:a0``."""
        pairs = [end.split(":") for end in ends]
        told = [WAYS[way](self.claim_of(id_)[1], "hold", "task") for way, id_ in pairs]
        assert await (await self.daemon()).exchange("grouped", told, []) == ([], [])

    async def swept(self, id_: str) -> None:
        """A dead letter's retention is over."""
        line = b'["swept","t"]'
        found = await self.shop.client.run(OperatorVerb.SWEEP, 0, 9, line)
        assert found == [id_.encode()]


test_a_group_is_drained = played(
    """
    each drain counts what has ended since the last one::
        take a0 a1 a2 b0 | claim a0 b0 | done a0 | claim a1 | bury a1 | untold a b | claim a2
        done a2 | told a done=2 dead=1 | untold b | done b0 | told b done=1
        count taken=6 done=5 | status drained_total=2 | none | take a3 | claim a3 | done a3
        told a done=1 | gone drains
    nothing tells of groups whose rule does not ask::
        take c0%other p0 | drain c0 p0 | count drained=0 | gone drains
    what waits for a retry is not over::
        take a0 a1 | claim a0 | retry a0 | untold a | time | claim a0 | done a0 | claim a1 | done a1
        told a done=2
    nor is what does so aside::
        take a0 a1 | claim a0 | retry a0 aside | claim a1 | done a1 | untold a | time | claim a0
        done a0 | told a done=2 | gone aside
    nor what is delayed {aside}::
        take a1 a0@{aside} | claim a1 | done a1 | untold a | time | claim a0 | done a0
        told a done=2 | gone aside
    nor what comes to a later stage {standing}::
        take a0 | claim a0 | advance a0{standing} | untold a | claim a0 | done a0 | told a done=1
    nor what is handed back, or taken over::
        take a0 a1 | claim a0 | done a0 | claim a1 | release a1 | untold a | claim a1 | crash d1 a1
        untold a | claim a1 | done a1 | told a done=2
    nor is a group that a dead letter parks, until it is redriven::
        take a0 a1 | claim a0 | park a0 | drop a1 | untold a | redrive a0 | untold a | claim a0
        done a0 | told a done=1 dead=1 dropped=1
    or dropped::
        take a0 a1 | claim a0 | park a0 | drop a1 | untold a | drop a0 | told a dead=1 dropped=1
    or its time is over:: take a0 | claim a0 | park a0 | untold a | swept a0 | told a dead=1
    a dead letter that is skipped does not hold it, and a redrive begins the next::
        take a0 | claim a0 | bury a0 | told a dead=1 | redrive a0 | untold a | claim a0 | done a0
        told a done=1
    its drop is no end:: take a0 | claim a0 | bury a0 | told a dead=1 | drop a0 | none | gone drains
    a cancel of what waits ends it:: take a0 | cancel a0 | told a cancelled=1
    or of all of it, which leaves the task that tells so::
        take a0 a1 a2@~ | cancel_once group a 3 | told a cancelled=3 | take a3@~
        cancel_once group a 1 | told a cancelled=1
    or of all of its type:: take a0 a1 a2@~ | cancel_once type t 3 | told a cancelled=3
    or of what stands aside:: take a0@~ | cancel a0 | told a cancelled=1 | gone aside
    or of what runs, by {way}::
        take a0 | claim a0 | cancel a0 requested | untold a | {way} a0 | told a cancelled=1
    or of what its daemon loses::
        take a0 | claim a0 | cancel a0 requested | lose d1 a0 | d2: told a cancelled=1
    so does one of the whole group::
        take a0 a1 a2@~ | claim a0 | cancel_all group a 2 a0 | untold a | release a0
        told a cancelled=3 | gone aside
    so does a drop of what waits {aside}:: take a0@{aside} | drop a0 | told a dropped=1 | gone aside
    what starts too late counts, as it is shown {aside}::
        take a0?@{aside} a1? | overdue a0 a1 | expired 2 | told a expired=2 | gone aside
    or as a claim meets it:: take a0? | overdue a0 | some | expired 1 | lane a: | gone drains
    so does what makes way for a newer one as it runs::
        take a1& | claim a1 | take a2& | untold a | release a1 | untold a | claim a2 | done a2
        told a done=1 superseded=1
    what a newer one replaces counts {aside}::
        take a1^{aside} | take a2^{aside} | take a3^{aside} | untold a | time | claim a3 | done a3
        told a done=1 superseded=2 | gone aside
    so does a retry that gives way::
        take a1^ | time | claim a1 | take a2^ | retry a1 | time | claim a2 | done a2
        told a done=1 superseded=1
    and a message that finds the group full::
        take a0 | take a1<1 | claim a0 | done a0 | told a done=1 dead=1
    or dies at the door of an idle one:: take a0!%rule | told a dead=1
    its own end does not count::
        take a0 | drain_one a0 | last a bury | none | gone drains | take a1 | drain_one a1
        told a done=1
    nor its retry::
        take a0 | drain_one a0 | last a retry | time | told a done=1 | none | gone drains
    nor is it held by a bound, or a pause::
        take a0<1 | claim a0 | pause a | done a0 | none | resume a | told a done=1
    what comes before it has ended goes on behind it::
        take a0 | drain_one a0 | take a1 | told a done=1 | drain_one a1 | told a done=1
    a pool's tasks count:: take a0= | anna: claim a0 | done a0 | told a done=1
    where several run, the last one ends it::
        limits 2 | asks | reload | take a0 a1 | claim a0 a1 | done a0 | untold a | done a1
        told a done=2
    what goes back in the same exchange as another one's end holds it::
        limits 2 | asks | reload | take a0 a1 | claim a0 a1 | at_once done:a0 release:a1 | untold a
        claim a1 | done a1 | told a done=2
    groups that one exchange drains are told of with all their ends, once each::
        limits 2 | asks | reload | take a0 a1 b0 b1 c0 | claim a0 a1 b0 b1 c0
        at_once done:a0 done:b0 done:c0 done:b1 done:a1 | count drained=3 | told a done=2
        told b done=2 | told c done=1 | none | count done=8 drained=3
    all that goes back cancelled in one exchange counts::
        limits 2 | asks | reload | take a0 a1 | claim a0 a1 | cancel a0 requested
        cancel a1 requested | at_once release:a0 release:a1 | told a cancelled=2 | gone drains
    and is no end where one of them waits again, {one}::
        limits 2 | asks | reload | take a0 a1 | claim a0 a1 | cancel a{one[0]} requested
        at_once release:a0 release:a1 | untold a | claim a{one[1]} | cancel a{one[1]} requested
        release a{one[1]} | told a cancelled=2 | gone drains
    a run ends it once::
        runs 3 | take a0 a1 a2 | claim a0>a1>a2 | tell a0 > a1 | untold a | tell a1 a2 >
        told a done=3
    a repeat changes nothing:: take a0 | drain_one a0 | unchanged done a0 | told a done=1
    what is asked for no more is forgotten::
        take a0 a1 | drain_one a0 | size drains=1 | limits | reload | gone drains | drain a1
        count drained=0
    """,
    Drains,
    first="asks | open d1",
    one=("01", "10"),
    standing=("", " aside"),
    aside=("", "~"),
    way=("release", "retry", "advance"),
)


async def play(shop: Bench, story: str) -> Drains:
    told = Drains(shop)
    await told.go_on(f"asks | open d1 | {story}")
    return told


async def test_the_slot_that_ends_it_claims_what_tells_so(shop: Bench) -> None:
    """In the same exchange: no other one, and no wake, is needed."""
    told = await play(shop, "take a0 | claim a0")
    daemon, claim = told.claim_of("a0")
    _, [found] = await daemon.exchange("grouped", [Complete(claim)], [claim.slot])
    assert (found.task.type, found.task.tenant, found.rule) == ("group.drained", "42", "rule")
    assert found.task.id == f"drained:a:{found.fence - 1}"


async def test_it_says_a_strange_name_as_it_is(shop: Bench) -> None:
    told, group = await play(shop, ""), 'ä/"b"\\\n{c}: 1'
    await shop.enqueue(arrival("x1", group))
    [claim] = await (await told.daemon()).claim("grouped", "w1")
    await (await told.daemon()).complete(claim)
    told.says(shop.lane(group)[0], group, ["done=1"])


@pytest.mark.parametrize("is_over", [False, True])
async def test_nobody_can_take_its_id(shop: Bench, is_over: bool) -> None:
    """Messages under the ids of the next fences take them in vain, even if they are over."""
    told = await play(shop, "take a0 | claim a0")
    last: Any = shop.raw.get(shop.keys("fence"))
    taken = [
        f"drained:a:{int(last) + n}" for n in (*range(5), *range(10, 30))
    ]  # each claim takes a fence
    await shop.enqueue(*(arrival(id_, "z") for id_ in taken))
    if is_over:
        await (await told.daemon()).work_off()
    await told.go_on("done a0")
    (id_,) = shop.lane("a")
    assert id_[:-17] in taken
    told.says(id_, "a", ["done=1"])
