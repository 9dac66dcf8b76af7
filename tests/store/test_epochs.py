"""A server that may have lost its last writes: who may claim there, and when (S10); fences."""

from __future__ import annotations

from typing import Any

import pytest

from groupflow.core.errors import StoreUnavailable
from groupflow.store.clock import microseconds
from groupflow.store.epochs import NEVER
from groupflow.store.sessions import Sessions
from tests.servers.replicated import until
from tests.store.actors import pool_of
from tests.store.bench import Bench, ids
from tests.store.story import Story, played
from tests.store.task_state import POOLS

LONG = 1e6  # seconds; since no server of a test has run for so long, it may have lost something
FAR = 5 * 10**15  # a fence that is ahead of every clock


class Epochs(Story):
    """A store whose server forgets what it was told last, and leads again."""

    def __init__(self, shop: Bench) -> None:
        super().__init__(shop)
        shop.lease = LONG

    async def begin(self, *names: str) -> None:
        """Daemons each of which the others would miss."""
        daemons = [await self.daemon(name) for name in names]
        for one in daemons * 3:
            await one.sessions.renew()
        assert all(one.session.is_witnessed for one in daemons)

    async def witnessed(self, *names: str) -> None:
        """Of the daemons that are there, these would be missed."""
        found = {name for name, one in self._daemons.items() if one.session.is_witnessed}
        assert found == {*names}

    async def forget(self) -> None:
        """All since is lost, and the server leads again."""
        await self.restore()
        await self.restart()

    async def restart(self) -> None:
        """The server leads again; it may have lost something."""
        self.shop.begin_epoch(*self._daemons.values())

    async def lease_passes(self) -> None:
        """A lease has passed since."""
        self.shop.end_recovery()

    async def ask(self, *words: str) -> None:
        """The slots of these claims are idle, and get the tasks once more; ``-``: nothing."""
        daemon = await self.daemon()
        for pool in POOLS:
            slots = [self.claim_of(w)[1].slot for w in words if w != "-" and pool_of(w) == pool]
            found = await daemon.claim(pool, *slots) if slots else []
            self._note(daemon, found)
            wanted = [word for word in words if pool_of(word) == pool]
            assert ids(found) == ([] if "-" in words else wanted)

    async def above(self, *words: str) -> None:
        """The first of these claims has a higher fence than the others."""
        first, *others = [self.claim_of(word)[1].fence for word in words]
        assert first > max(others)

    async def fences_are_far_ahead(self) -> None:
        """Of every clock."""
        self.shop.raw.set(self.shop.keys("fence"), FAR)


test_lost_writes = played(
    """
    a lost claim is given out again, once its daemon has dropped it::
        take a0 | begin d1 d2 | save | d2: claim a0 | forget | renew | none | SessionLost d2: renew
        none | d2: back | claim a0*0 | above a0 a0' | refused done a0'
    no plain task is given meanwhile::
        take p0 | begin d1 d2 | restart | renew | none | d2: renew | claim p0
    what is held is settled meanwhile::
        take a0 b0 c0 | begin d1 d2 | claim a0 | d2: claim b0 | restart | StoreUnavailable none
        renew | none | done a0 | none | d2: renew | done b0 | claim c0
    no slot goes on meanwhile::
        take a0 a1 | begin d1 d2 | claim a0 | restart | renew | swap a0 | none | d2: renew
        claim a1
    a claim whose settle was lost goes back, under a higher fence than what came since::
        take a0 a1 | begin d1 d2 | claim a0 | save | done a0 | d2: claim a1 | forget
        renew | ask a0 - | SessionLost d2: renew | d2: back | ask a0 | above a0 a1
        refused done a0' | done a0 | drain a1
    claims of a group go back in their order::
        limits 2 | take a0 a1 a2 p0 | begin d1 | claim a0 a1 p0 | save | done a0 a1 p0 | forget
        renew | ask a0 a1 p0 | above a0 a0' a1' p0' | done a0 a1 p0 | drain a2
    whose lease was over drops its runs: a later task may have been begun::
        take a0 a1 | begin d1 d2 | runs 2 | claim a0>a1 | expire | save | lose | d2: claim a0
        forget | StoreUnavailable done a0' | SessionLost renew | back | none
    whose lease was over settles a single task::
        take a0 a1 | begin d1 d2 | claim a0 | expire | restart | renew | done a0 | none
    a lost registration costs a lease::
        take a0 | begin d1 | save | open d2 | renew | renew | d2: renew | witnessed d1 d2
        d2: claim a0 | forget | renew | renew | none | lease_passes | renew | claim a0
        above a0 a0' | SessionLost d2: renew
    so does the loss of the first of all, where there are tasks::
        take a0 | save | begin d1 | claim a0 | forget | open d2 | d2: renew
        d2: none | lease_passes | d2: renew | d2: claim a0 | above a0 a0'
    what a daemon drops by itself is no crash::
        take a0 b0 p0 | begin d1 | claim a0 p0 | save | claim b0 | forget | SessionLost renew | back
        lease_passes | renew | claim a0*0 b0*0 p0*0
    a new process of a known name proves nothing::
        take a0 | begin d1 d2 | restart | renew | crash d2 | renew | none | d2: none
    who left before it was asked proves nothing::
        take a0 | begin d1 d2 | restart | d2: leave | renew | none
    who slept over its lease proves nothing::
        take a0 | begin d1 d2 | d2: expire | restart | renew | d2: renew | none
    where no daemon is known a lease passes::
        take a0 | begin d1 | leave | restart | crash | renew | none | lease_passes | renew
        claim a0
    an epoch that was cut short leaves its doubts to the next::
        take a0 | begin d1 d2 | restart | renew | crash d2 | restart | renew | d2: renew | none
    no daemon is reaped before all could come::
        take a0 | begin d1 d2 | d2: claim a0 | restart | d2: expire | reap | lease_passes
        reap a0 | SessionLost d2: renew
    no fence comes twice though all who saw it are gone::
        take a0 b0 c0 d0 e0 f0 | begin d1 | save | claim a0 b0 c0 d0 e0 f0 | forget | open d2
        lease_passes | crash | claim a0 | above a0 f0'
    nor though the clock has gone back::
        take a0 b0 c0 d0 e0 f0 | begin d1 d2 | fences_are_far_ahead | save
        d2: claim a0 b0 c0 d0 e0 f0 | forget | SessionLost d2: renew | d2: back | renew | claim a0
        above a0 f0'
    # Who would be missed
    a daemon that comes beside others waits until they know, who are missed themselves::
        open d1 | witnessed d1 | open d2 d3 | d2: renew | d2: renew | d3: renew | witnessed d1
        renew | d2: renew | witnessed d1 | renew | d2: renew | d3: renew | witnessed d1 d2 d3
    a name that is known needs no witness:: begin d1 d2 | crash d1 | witnessed d1 d2
    a name that no daemon would miss needs one:: begin d1 | open d2 | crash d2 | witnessed d1
    a daemon that is left alone needs none::
        open d1 d2 | witnessed d1 | lose d1 | d2: renew | witnessed d1 d2
    """,
    Epochs,
)


async def test_what_is_told_while_daemons_are_waited_for(shop: Bench) -> None:
    """Until when at the latest; and all goes on, with no session lost, once all have come."""
    told = Epochs(shop)
    await told.go_on("take a0 c0 | begin d1 d2 | claim a0 | restart")
    with pytest.raises(StoreUnavailable, match="restarted, or another"):
        await told.go_on("none")
    waiting = await (await told.daemon()).sessions.renew()
    assert (waiting.groups, waiting.recovering is not None) == (0, True)
    assert (waiting.recovering or 0) > LONG / 2
    (held_back,) = (await shop.status()).held_back
    await told.go_on(f"why c ready since={held_back.since} until={held_back.until}")
    await told.go_on("why c ready: may have lost claims")
    assert held_back.partition == 0
    assert LONG / 2 < held_back.until - held_back.since <= LONG + 1
    await told.go_on("d2: renew plain=0 groups=1 is_elsewhere=True recovering=None")
    await told.go_on("d2: renew plain=0 groups=1 is_elsewhere=False")
    await told.go_on("status held_back=[] | why c ready: workers are busy | claim c0")


async def test_the_first_epoch_waits_for_no_daemon(shop: Bench) -> None:
    """And its fences begin at the clock: there may have been another, which lost everything."""
    before, told = shop.server_time(), Epochs(shop)
    await told.go_on("begin d1 | take a0 | claim a0 | gone recovering")
    daemon, claim = await told.daemon(), told.claim_of("a0")[1]
    assert claim.fence > before
    assert daemon.session.seen.fence == claim.fence, "it shows what it has seen"
    assert daemon.session.seen.enrolled == daemon.session.number > NEVER


async def test_a_daemon_that_knows_a_lost_epoch_opens_a_new_session(shop: Bench) -> None:
    """Its claims are of another history."""
    told = Epochs(shop)
    await told.go_on("take a0 | begin d1 d2 | save | restart | renew | d2: renew | d2: claim a0")
    second = await told.daemon("d2")
    shop.restore(told.kept)
    shop.begin_epoch()
    second.session.epoch = type(second.session.epoch)("0" * 40)
    second.session.seen.fence = 1  # the clock had gone back there
    await told.go_on("SessionLost d2: renew | d2: back | lease_passes | d2: renew | d2: claim a0")
    await told.go_on("above a0 a0'")


async def test_the_longest_lease_counts(shop: Bench) -> None:
    told = Epochs(shop)
    shop.lease = 2 * LONG
    await told.go_on("begin d1 d2")
    first = await told.daemon("d1")
    first.sessions = Sessions(shop.client, first.session, LONG)
    shop.begin_epoch(first)
    before = shop.server_time()
    await first.sessions.renew()
    ends = int(shop.raw.get(shop.keys("recovering")) or 0)
    assert ends > before + microseconds(1.5 * LONG)


async def test_a_server_that_runs_for_longer_than_a_lease_has_lost_nothing(shop: Bench) -> None:
    """Redis also names a new epoch where the first replica comes."""
    told = Epochs(shop)
    shop.lease = 1e-6
    await told.go_on("begin d1 d2")
    for name in ("d1", "d2"):
        shop.raw.hset(shop.keys("daemon", name), "lease", 1)

    async def is_older() -> bool:
        server: Any = shop.raw.info("server")
        return int(server["uptime_in_seconds"]) >= 2

    await until(is_older, "the server has just begun")
    await told.go_on("restart | renew | gone recovering")


async def test_arrivals_go_on_above_what_was_seen(shop: Bench) -> None:
    told = Epochs(shop)
    await told.go_on("begin d1")
    (await told.daemon()).session.seen.sequence = FAR
    await told.go_on("renew | take a0")
    (entry,) = shop.raw.lrange(shop.keys("lane", "a"), 0, -1)
    assert int(entry[:16]) > FAR


async def test_a_session_that_is_a_lease_old_needs_no_witness(shop: Bench) -> None:
    """A daemon that slept for so long proves nothing by coming back."""
    await shop.daemon("dead")
    daemon, other = await shop.daemon("d1"), await shop.daemon("d2")
    daemon.sessions = Sessions(shop.client, daemon.session, 0.0)
    daemon.sessions._old_at = 1.0
    await daemon.sessions.renew()
    assert daemon.session.is_witnessed
    await daemon.sessions.renew()
    await other.sessions.renew()
    assert other.session.is_witnessed, "it is a witness itself"
