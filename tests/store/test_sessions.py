"""Sessions: register, renew, leave, reap; claims live and die with them."""

from __future__ import annotations

import pytest

from groupflow.core.errors import SessionLost, StoreUnavailable
from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds
from groupflow.store.epochs import NEVER
from groupflow.store.keys import Keys
from groupflow.store.scripts import Verb
from groupflow.store.sessions import start
from tests.store.bench import LEASE, Bench, Daemon, arrival
from tests.store.story import play, played

NOWHERE = "redis://127.0.0.1:1"


test_sessions = played(
    """
    a renewal tells what waits::
        open d1 | take a0 a1 p0 p1 | renew plain=2 groups=1 | claim a0 | renew plain=2 groups=0
    a zombie is refused everywhere, and its claims are stale for ever::
        take a0 a1 | claim a0 | lose d1 a0 | d2: claim a0 | SessionLost done a0'
        SessionLost release a0' | SessionLost bury a0' | SessionLost retry a0'
        SessionLost advance a0' | SessionLost renew | SessionLost claim a1 | leave | back
        refused done a0' | refused release a0' | refused bury a0' | refused retry a0'
        refused advance a0' | none | done a0 | claim a1
    of two with a name the later has it, the earlier one is told::
        take a0 a1 | claim a0 | open d1' | SessionReplaced renew | SessionReplaced claim a1
        SessionReplaced done a0 | unchanged SessionReplaced reload | unchanged leave
        d1': claim a0*1
    one that lost its session does not take the name back from another::
        open d1 | leave | back | leave | open d1' | SessionReplaced back | d1': renew | d1': leave
    a session that Redis lost is opened again, and is not replaced by who came before::
        take a0 a1 | claim a0 | save | open d1' | restore | d1': SessionLost renew
        d1': SessionLost none | d1': back d1' a0 | d1': renew | SessionReplaced renew
        d1': drain a0 a1
    who came since Redis lost a session has the name, under the same number too::
        open d1 | leave | save | open d1' | restore | open d1'' | d1': SessionReplaced renew
        d1': SessionReplaced none | d1': SessionReplaced back | d1': unchanged leave | d1'': renew
    """
)


async def test_what_is_handed_over_is_told(shop: Bench) -> None:
    told = await play(shop, "take a0 p0 | claim a0 p0")
    taken = await (await told.daemon()).register()
    assert sorted((each.id, each.group, each.fence) for each in taken) == [
        (id_, group, told.claim_of(id_)[1].fence) for id_, group in (("a0", "a"), ("p0", None))
    ]


@pytest.mark.parametrize(
    ("daemons", "tasks", "passes"),
    [(25, 1, [10, 10, 5, 0]), (3, 50, [100, 50, 0])],
    ids=["so many daemons", "so many tasks"],
)
async def test_reap_is_bounded(shop: Bench, daemons: int, tasks: int, passes: list[int]) -> None:
    """A daemon's tasks go back all at once, the rest in the next pass."""
    names, slots = [f"d{n}" for n in range(daemons)], [f"w{n}" for n in range(tasks)]
    await shop.enqueue(*(arrival(f"{name}-{slot}") for name in names for slot in slots))
    for name in names:
        assert len(await (await shop.daemon(name)).claim("plain", *slots)) == tasks
    shop.expire(*names)
    reaper = await shop.daemon("reaper")
    handed = [(await reaper.sessions.reap())[1] for _ in passes]
    assert [len(each) for each in handed] == passes
    assert {each.daemon for some in handed for each in some} == set(names)


async def late_register(bench: Bench, process: str, last: str) -> str:
    """A registration whose caller waits no more; the session that it answers."""
    lease = microseconds(LEASE)
    call = (Verb.REGISTER, "d1", lease, b"{}", process, last, "", "", b"[]", 0, 0, NEVER, "")
    number, rows, *_ = await bench.client.run(*call)
    assert rows == []
    found: bytes = number
    return found.decode()


async def test_own_registration_is_no_replacement(shop: Bench) -> None:
    """A process that opens a new session itself isn't told that another took its name.

    What is under way with the old number meets the new session before its number is known here;
    and where the reply to the registration was lost, it becomes known by the next one.
    """
    daemon = await shop.daemon("d1")
    old = daemon.session.number
    shop.expire("d1")
    await daemon.sessions.reap()
    opened = await late_register(shop, daemon.session.process, old)
    assert old == daemon.session.number < opened, "its reply was lost"
    for call in (daemon.sessions.renew(), daemon.claim("grouped", "w1")):
        with pytest.raises(SessionLost):
            await call
    shop.expire("d1")
    assert await daemon.sessions.register({}) == []
    assert daemon.session.number == opened
    wait, handed = await daemon.sessions.reap()
    assert handed == []
    assert wait is not None
    assert 0 < wait <= LEASE
    await daemon.sessions.renew()


async def test_who_stops_leaves_a_session_that_it_has_not_heard_of(shop: Bench) -> None:
    daemon = await shop.daemon("d1")
    shop.expire("d1")
    await daemon.sessions.reap()
    await late_register(shop, daemon.session.process, daemon.session.number)
    assert await daemon.sessions.leave() == []
    assert shop.raw.zscore(shop.keys("daemons"), "d1") is None


async def test_who_wakes_in_a_namespace_that_was_moved_away_leaves_nothing(shop: Bench) -> None:
    """Where nothing is known of a session, nothing is written for it."""
    daemon = await shop.daemon("d1")
    shop.raw.delete(*shop.raw.keys(shop.keys("*")))
    with pytest.raises(SessionLost):
        await daemon.sessions.renew()
    assert await daemon.sessions.reap() == (None, [])
    assert await daemon.sessions.leave() == []
    assert shop.raw.keys(shop.keys("*")) == []


async def test_a_late_registration_takes_nothing_from_the_living(shop: Bench) -> None:
    """A call that was given up, and comes behind the one made in its place, changes nothing."""
    await shop.enqueue(arrival("a0", "a"), arrival("p0"))
    daemon = await shop.daemon("d1")
    held = [await daemon.claim_one(), await daemon.claim_one("plain", "w2")]
    for last in (NEVER, f"{int(daemon.session.number) - 1:016d}"):
        assert await late_register(shop, daemon.session.process, last) == daemon.session.number
    await daemon.sessions.renew()
    assert await daemon.complete(*held) == []
    assert await daemon.sessions.leave() == []
    assert shop.judge_drained() == []


async def test_a_birth_is_above_all_that_have_registered(shop: Bench) -> None:
    """By Redis's clock, or above where that is behind; the partition that knows most decides."""
    daemon, ahead, now = Daemon(shop, "d1"), f"{10**15 * 9:016d}", shop.server_time()
    first, second = [(await start("d1", [shop.client]))[0][:16] for _ in range(2)]
    assert now <= int(first) < int(second) < now + 60_000_000
    daemon.session.process = ahead + "f" * 32
    await daemon.sessions.register({})
    await daemon.sessions.leave()
    assert (await start("d1", [shop.client]))[0][:16] == f"{int(ahead) + 1}"
    daemon.session.process, _ = await start("d1", [shop.client])
    await daemon.sessions.register({})
    older = Daemon(shop, "d2")
    older.session.process = ahead + "0" * 32
    await older.sessions.register({})
    other, away = StoreClient(shop.url, Keys("other")), StoreClient(NOWHERE, Keys("other"))
    try:
        for clients in ([other, shop.client], [shop.client, away, other]):
            assert (await start("d1", clients))[0][:16] == f"{int(ahead) + 2}"
        with pytest.raises(StoreUnavailable):
            await start("d1", [away, away])
        assert (await start("d1", [other]))[0][:16] < ahead
    finally:
        await other.close()
