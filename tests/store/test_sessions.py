"""Sessions: register, renew, leave, reap; claims live and die with them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from groupflow.core.errors import SessionLost, SessionReplaced, StoreUnavailable
from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds
from groupflow.store.envelope import Pool
from groupflow.store.epochs import NEVER
from groupflow.store.keys import Keys
from groupflow.store.scripts import Verb
from groupflow.store.sessions import start
from groupflow.store.settlements import Advance, Complete, Release, Retry, Settlement
from tests.store.bench import LEASE, Bench, Daemon, arrival, bury, ids

NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _with_faults(bench: Bench) -> None:
    bench.with_faults = True


async def test_register_shows_in_the_status(bench: Bench) -> None:
    """A daemon is there from its registration on, and gone with its leave."""
    daemon = await bench.daemon("d1")
    shown = (await bench.status()).daemons
    assert [(each.name, each.pid, each.host, each.workers) for each in shown] == [("d1", 1, "h", 2)]
    assert 0 <= shown[0].heartbeat_age < LEASE
    assert await daemon.sessions.leave() == []
    assert (await bench.status()).daemons == []
    assert bench.judge_drained() == []


async def test_restart_takes_up_at_once(bench: Bench) -> None:
    """The same name finishes first what it held, one crash richer, one by one, before the rest."""
    await bench.enqueue(*(arrival(f"{group}{n}", group) for n in range(2) for group in "ab"))
    await bench.enqueue(arrival("p0"), arrival("p1"))
    daemon = await bench.daemon()
    held = await daemon.claim("grouped", "w1", "w2")
    held += await daemon.claim("plain", "w3")
    taken = await daemon.register()
    assert {(each.id, each.group, each.fence) for each in taken} == {
        (claim.task.id, claim.task.group, claim.fence) for claim in held
    }
    assert bench.lane("a") == ["a0", "a1"]
    order: list[tuple[Pool, str]] = [("grouped", "a0"), ("grouped", "b0"), ("plain", "p0")]
    for pool, id_ in order:
        (claim,) = await daemon.claim(pool, "w1", "w2", "w9")
        assert (claim.task.id, claim.task.crashes) == (id_, 1)
        await daemon.complete(claim)
    assert await daemon.work_off() == ["p1", "a1", "b1"]
    assert bench.judge_drained() == []


async def test_crashes_add_up_and_are_forgotten_at_the_end(bench: Bench) -> None:
    """Each crash counts; once the task is done nothing of them is left."""
    await bench.enqueue(arrival("a0", "a"))
    daemon = await bench.daemon()
    for crashes in range(3):
        assert (await daemon.claim_one()).task.crashes == crashes
        await daemon.register()
    await daemon.complete(await daemon.claim_one())
    assert bench.judge_drained() == []


async def test_renew_tells_what_waits(bench: Bench) -> None:
    """A renewal also tells what could be claimed, for a wake may have been lost."""
    daemon = await bench.daemon()
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"), arrival("p0"), arrival("p1"))
    claimable = await daemon.sessions.renew()
    assert (claimable.plain, claimable.groups) == (2, 1)
    await daemon.claim_one()
    assert (await daemon.sessions.renew()).groups == 0


async def test_renew_pushes_the_lease(bench: Bench) -> None:
    """Who renews isn't reaped."""
    daemon, other = await bench.daemon("d1"), await bench.daemon("d2")
    await bench.enqueue(arrival("a0", "a"))
    claim = await daemon.claim_one()
    bench.expire("d1")
    await daemon.sessions.renew()
    wait, handed = await other.sessions.reap()
    assert handed == []
    assert wait is not None
    assert 0 < wait <= LEASE
    assert await daemon.complete(claim) == []


async def test_reap_hands_on(bench: Bench) -> None:
    """An expired daemon's tasks go first in their groups, for anybody; it is forgotten."""
    await bench.enqueue(*(arrival(f"a{n}", "a") for n in range(3)), arrival("p0"), arrival("p1"))
    daemon, other = await bench.daemon("d1"), await bench.daemon("d2")
    await daemon.claim_one()
    await daemon.claim_one("plain", "w2")
    bench.expire("d1")
    _, handed = await other.sessions.reap()
    assert {(each.id, each.daemon) for each in handed} == {("a0", "d1"), ("p0", "d1")}
    assert bench.lane("a") == ["a0", "a1", "a2"]
    assert [each.name for each in (await bench.status()).daemons] == ["d2"]
    claim = await other.claim_one()
    assert (claim.task.id, claim.task.crashes) == ("a0", 1)
    await other.complete(claim)
    assert (await other.claim_one("plain", "w2")).task.id == "p0"


async def test_reap_leaves_the_living_alone(bench: Bench) -> None:
    """The claims of a daemon whose lease holds are left alone."""
    await bench.enqueue(arrival("a0", "a"), arrival("b0", "b"))
    daemon, other = await bench.daemon("d1"), await bench.daemon("d2")
    mine, theirs = await daemon.claim_one(), await other.claim_one()
    bench.expire("d1")
    await other.sessions.reap()
    assert await other.complete(theirs) == []
    with pytest.raises(SessionLost):
        await daemon.complete(mine)
    bench.events = [e for e in bench.events if not (e.kind == "settle" and e.id == "a0")]


async def test_reap_without_daemons(bench: Bench) -> None:
    """Without daemons there is nothing to wait for."""
    daemon = await bench.daemon()
    await daemon.sessions.leave()
    assert await daemon.sessions.reap() == (None, [])


async def test_reap_is_bounded_and_goes_on(bench: Bench) -> None:
    """So many daemons a call, the rest in the next one."""
    names = [f"d{n}" for n in range(25)]
    await bench.enqueue(*(arrival(f"{name}-0", name) for name in names))
    for name in names:
        await (await bench.daemon(name)).claim_one()
    bench.expire(*names)
    reaper = await bench.daemon("reaper")
    handed = []
    sizes: list[int] = []
    while not sizes or sizes[-1]:
        _, some = await reaper.sessions.reap()
        handed += some
        sizes.append(len(some))
    assert sizes == [10, 10, 5, 0]
    assert {each.daemon for each in handed} == set(names)


async def test_zombie_can_do_nothing(bench: Bench) -> None:
    """Whose lease ran out is refused everywhere, while another runs its task and after."""
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"))
    zombie, other = await bench.daemon("d1"), await bench.daemon("d2")
    held = await zombie.claim_one()
    bench.expire("d1")
    await other.sessions.reap()
    again = await other.claim_one()
    endings: list[Settlement] = [Complete(held), Release(held), bury(held), Retry(held, 1.0, [])]
    endings.append(Advance(held, "two", b"{}"))
    for settlement in endings:
        with pytest.raises(SessionLost):
            await zombie.settle(settlement, end=False)
    with pytest.raises(SessionLost):
        await zombie.sessions.renew()
    assert await zombie.sessions.leave() == []
    # It comes back with a new session; its old claim is as stale as before.
    await zombie.register()
    for settlement in endings:
        assert await zombie.settle(settlement, end=False) == [settlement]
    assert await zombie.claim("grouped", "w1") == []
    assert await other.complete(again) == []
    assert ids(await zombie.claim("grouped", "w1")) == ["a1"]


async def test_name_taken_over(bench: Bench) -> None:
    """Two processes with one name: the later one has it, the earlier one is told so."""
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"))
    older = await bench.daemon("d1")
    held = await older.claim_one()
    newer = await bench.daemon("d1")
    for refuse in (
        older.sessions.renew,
        partial(older.claim, "grouped", "w2"),
        partial(older.complete, held),
    ):
        with pytest.raises(SessionReplaced):
            await refuse()
    assert await older.sessions.leave() == []
    bench.events = [event for event in bench.events if event.kind != "end"]
    again = await newer.claim_one()
    assert (again.task.id, again.task.crashes) == ("a0", 1)


async def late_register(bench: Bench, process: str, last: str) -> str:
    """A registration whose caller waits no more; the session that it answers."""
    lease = microseconds(LEASE)
    call = (Verb.REGISTER, "d1", lease, b"{}", process, last, "", "", 0, 0, NEVER, "")
    number, rows, *_ = await bench.client.run(*call)
    assert rows == []
    found: bytes = number
    return found.decode()


async def test_own_registration_is_no_replacement(bench: Bench) -> None:
    """A process that opens a new session itself isn't told that another took its name.

    What is under way with the old number meets the new session before its number is known here;
    and where the reply to the registration was lost, it becomes known by the next one.
    """
    daemon = await bench.daemon("d1")
    old = daemon.session.number
    bench.expire("d1")
    await daemon.sessions.reap()
    opened = await late_register(bench, daemon.session.process, old)
    assert old == daemon.session.number < opened, "its reply was lost"
    for refuse in (daemon.sessions.renew, partial(daemon.claim, "grouped", "w1")):
        with pytest.raises(SessionLost):
            await refuse()
    bench.expire("d1")
    assert await daemon.sessions.register({}) == []
    assert daemon.session.number == opened
    wait, handed = await daemon.sessions.reap()
    assert handed == []
    assert wait is not None
    assert 0 < wait <= LEASE
    await daemon.sessions.renew()


async def test_who_stops_leaves_a_session_that_it_has_not_heard_of(bench: Bench) -> None:
    daemon = await bench.daemon("d1")
    bench.expire("d1")
    await daemon.sessions.reap()
    await late_register(bench, daemon.session.process, daemon.session.number)
    assert await daemon.sessions.leave() == []
    assert bench.raw.zscore(bench.keys("daemons"), "d1") is None


async def test_who_wakes_in_a_namespace_that_was_moved_away_leaves_nothing(bench: Bench) -> None:
    """Where nothing is known of a session, nothing is written for it."""
    daemon = await bench.daemon("d1")
    bench.raw.delete(*bench.raw.keys(bench.keys("*")))
    with pytest.raises(SessionLost):
        await daemon.sessions.renew()
    assert await daemon.sessions.reap() == (None, [])
    assert await daemon.sessions.leave() == []
    assert bench.raw.keys(bench.keys("*")) == []


async def test_a_late_registration_takes_nothing_from_the_living(bench: Bench) -> None:
    """A call that was given up, and comes behind the one made in its place, changes nothing."""
    await bench.enqueue(arrival("a0", "a"), arrival("p0"))
    daemon = await bench.daemon("d1")
    held = [await daemon.claim_one(), await daemon.claim_one("plain", "w2")]
    for last in (NEVER, f"{int(daemon.session.number) - 1:016d}"):
        assert await late_register(bench, daemon.session.process, last) == daemon.session.number
    await daemon.sessions.renew()
    assert await daemon.complete(*held) == []
    bench.with_faults = False
    assert await daemon.sessions.leave() == []
    assert bench.judge_drained() == []


async def test_a_session_that_redis_lost_is_opened_again(bench: Bench) -> None:
    """Redis forgets who came last under a name: that one is not replaced by who came before it."""
    bench.with_faults = True
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"))
    killed = await bench.daemon("d1")
    await killed.claim_one()
    kept = bench.dump()
    daemon = await bench.daemon("d1")
    bench.restore(kept)
    for refuse in (daemon.sessions.renew, partial(daemon.claim, "grouped", "w1")):
        with pytest.raises(SessionLost):
            await refuse()
    lost = daemon.session.number
    assert [each.id for each in await daemon.sessions.register({})] == ["a0"]
    assert daemon.session.number > lost, "though the counter has gone back"
    await daemon.sessions.renew()
    with pytest.raises(SessionReplaced):
        await killed.sessions.renew()
    assert await daemon.work_off() == ["a0", "a1"]
    await daemon.sessions.leave()
    assert bench.judge_drained() == []


async def test_who_came_since_redis_lost_a_session_has_the_name(bench: Bench) -> None:
    """Even under the same number, which Redis has given out a second time."""
    await (await bench.daemon("d1")).sessions.leave()
    kept = bench.dump()
    older = await bench.daemon("d1")
    bench.restore(kept)
    newer = await bench.daemon("d1")
    assert newer.session.number == older.session.number
    for refuse in (older.sessions.renew, partial(older.sessions.register, {})):
        with pytest.raises(SessionReplaced):
            await refuse()
    assert await older.sessions.leave() == []
    await newer.sessions.renew()


async def test_leave_hands_over_what_is_left(bench: Bench) -> None:
    """What could not be settled before the end goes to the others at once."""
    await bench.enqueue(arrival("a0", "a"), arrival("a1", "a"))
    daemon, other = await bench.daemon("d1"), await bench.daemon("d2")
    await daemon.claim_one()
    handed = await daemon.sessions.leave()
    assert [each.id for each in handed] == ["a0"]
    assert ids(await other.claim("grouped", "w1")) == ["a0"]


async def test_odd_daemon_names(bench: Bench) -> None:
    """Spaces, braces and colons in a daemon's name change nothing."""
    await bench.enqueue(arrival("a0", "a"), arrival("p0"))
    daemon = await bench.daemon("my {host}:1 %s")
    await daemon.claim_one(worker="grouped 0")
    await daemon.claim_one("plain", "plain:0")
    assert len(await daemon.register()) == 2
    assert sorted(await daemon.work_off()) == ["a0", "p0"]
    await daemon.sessions.leave()
    assert bench.judge_drained() == []


async def test_a_process_that_lost_its_session_does_not_take_the_name_back(bench: Bench) -> None:
    """A process that came under the name since keeps it; without one, it is taken again."""
    info = {"pid": 1, "host": "h"}
    old = await bench.daemon("d1")
    await old.sessions.leave()
    assert await old.sessions.register(info) == []
    told = info | {"intake": "stands"}
    assert await old.sessions.register(told) == [], "its own reply was lost"
    newcomer = await bench.daemon("d1")
    with pytest.raises(SessionReplaced):
        await old.sessions.register(info)
    await newcomer.sessions.renew()
    assert await newcomer.sessions.leave() == []
    assert bench.judge_drained() == []


async def test_a_new_session_takes_the_next_number(bench: Bench) -> None:
    """Fences are of one counter with them, and none is left out where Redis lost nothing."""
    daemon = await bench.daemon("d1")
    for _ in range(3):
        await daemon.sessions.leave()
        last: Any = bench.raw.get(bench.keys("fence"))
        await daemon.register()
        assert int(daemon.session.number) == int(last) + 1


async def test_of_two_with_one_name_the_later_has_it_everywhere(bench: Bench) -> None:
    """In either order, and with a lower or higher number of the other's session."""
    older, newer = await bench.daemon("d1"), Daemon(bench, "d1")
    newer.session.process = await start([bench.client])
    for _ in range(3):  # where the newer one comes, it has the higher number; or the older one has
        await older.sessions.leave()
        await older.sessions.register({})
    assert await newer.sessions.register({}) == []
    for refuse in (older.sessions.renew, partial(older.sessions.register, {})):
        with pytest.raises(SessionReplaced):
            await refuse()
    await newer.sessions.leave()
    await older.sessions.register({})  # there, no script has heard of the newer one yet
    assert newer.session.number < older.session.number
    for refuse_newer in (newer.sessions.renew, partial(newer.claim, "grouped", "w1")):
        with pytest.raises(SessionLost):
            await refuse_newer()
    await newer.sessions.register({})
    with pytest.raises(SessionReplaced):
        await older.sessions.renew()
    await newer.sessions.renew()


async def test_a_birth_is_above_all_that_have_registered(bench: Bench) -> None:
    """Where Redis's clock is behind, too; and of several partitions the one that knows most."""
    daemon, ahead = Daemon(bench, "d1"), f"{10**15 * 9:016d}"
    assert (await start([bench.client]))[:16] < ahead
    daemon.session.process = ahead + "f" * 32
    await daemon.sessions.register({})
    await daemon.sessions.leave()
    assert (await start([bench.client]))[:16] == f"{int(ahead) + 1}"
    daemon.session.process = await start([bench.client])
    await daemon.sessions.register({})
    older = Daemon(bench, "d2")
    older.session.process = ahead + "0" * 32
    await older.sessions.register({})
    other, away = StoreClient(bench.url, Keys("other")), StoreClient(NOWHERE, Keys("other"))
    try:
        for clients in ([other, bench.client], [bench.client, away, other]):
            assert (await start(clients))[:16] == f"{int(ahead) + 2}"
        assert (await start([other]))[:16] < ahead
    finally:
        await other.close()


async def test_a_process_is_named_by_those_that_answer(bench: Bench) -> None:
    away = StoreClient(NOWHERE, Keys("other"))
    assert len(await start([away, bench.client])) == 48
    with pytest.raises(StoreUnavailable):
        await start([away, away])


async def test_a_birth_is_redis_clock(bench: Bench) -> None:
    """So one that was lost is below those that come."""
    lost = await start([bench.client])
    again = await start([bench.client])
    assert lost[:16] < again[:16]
    seconds, micros = bench.raw.time()
    assert 0 <= seconds * 1_000_000 + micros - int(again[:16]) < 60_000_000


async def test_a_daemon_tells_of_itself_alone(bench: Bench) -> None:
    """What it tells stands in the place of what it told; whose session is over tells nothing."""
    older = await bench.daemon("d1")
    info = {"pid": 1, "host": "h", "workers": 7, "lease": LEASE}
    await older.sessions.tell(info, {"workers": {"plain": 7}})
    assert [each.workers for each in (await bench.status()).daemons] == [7]
    key = bench.keys("daemon", "d1")
    assert bench.raw.hget(key, "settings") == b'{"workers":{"plain":7}}'
    await bench.daemon("d1")
    before = bench.dump()
    with pytest.raises(SessionReplaced):
        await older.sessions.tell(info, {})
    assert bench.dump() == before
