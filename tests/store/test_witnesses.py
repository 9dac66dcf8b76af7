"""A session must be missed, should the server lose it, before anything is claimed under it."""

from __future__ import annotations

from groupflow.store.sessions import Sessions
from tests.store.bench import Bench, Daemon
from tests.store.test_epochs import begin


async def test_who_comes_beside_others_waits_until_they_know(bench: Bench) -> None:
    """That is: until one has shown that it was told, who would itself be missed."""
    first, second, third = (Daemon(bench, name) for name in ("d1", "d2", "d3"))
    assert not (await first.register())
    assert first.session.is_witnessed, "it is alone"
    await second.register()
    await third.register()
    await second.sessions.renew()
    await second.sessions.renew()
    await third.sessions.renew()
    assert not third.session.is_witnessed, "the second would not be missed itself"
    await first.sessions.renew()
    await second.sessions.renew()
    assert not second.session.is_witnessed, "the answer may be on its way for ever"
    await first.sessions.renew()
    for each in (second, third):
        await each.sessions.renew()
        assert each.session.is_witnessed


async def test_a_name_that_is_known_needs_no_witness(bench: Bench) -> None:
    """If it is lost that it came again, its name is waited for."""
    await begin(bench, "d1", "d2")
    again = await bench.daemon("d1")
    assert again.session.is_witnessed


async def test_a_name_that_no_daemon_would_miss_needs_one(bench: Bench) -> None:
    """It died before anybody was told of it."""
    await begin(bench, "d1")
    await bench.daemon("d2")
    again = await bench.daemon("d2")
    assert not again.session.is_witnessed


async def test_who_is_left_alone_needs_no_witness(bench: Bench) -> None:
    await bench.daemon("d1")
    second = await bench.daemon("d2")
    bench.expire("d1")
    await second.sessions.reap()
    await second.sessions.renew()
    assert second.session.is_witnessed


async def test_a_session_that_is_a_lease_old_needs_no_witness(bench: Bench) -> None:
    """A daemon that slept for so long proves nothing by coming back."""
    await bench.daemon("dead")
    daemon, other = Daemon(bench, "d1"), Daemon(bench, "d2")
    for each in (daemon, other):
        await each.register()
    daemon.sessions = Sessions(bench.client, daemon.session, 0.0)
    daemon.sessions._old_at = 1.0
    await daemon.sessions.renew()
    assert daemon.session.is_witnessed
    await daemon.sessions.renew()
    await other.sessions.renew()
    assert other.session.is_witnessed, "it is a witness itself"
