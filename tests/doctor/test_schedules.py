"""What doctor says of schedules: which daemons have another one, and which one no daemon has."""

from __future__ import annotations

from groupflow.doctor.examination import examine_namespace
from groupflow.settings.model import Redis, Settings
from groupflow.settings.urls import SecretUrl
from tests.schedule.clockwork import Clockwork, let_be_old, rule
from tests.store.bench import Bench


def settings(bench: Bench) -> Settings:
    return Settings(redis=Redis(url=SecretUrl(bench.url), namespace=bench.keys.namespace))


async def test_all_is_well(bench: Bench) -> None:
    assert await examine_namespace(settings(bench)) == [], "without any"
    clock = Clockwork(bench)
    clock.load(rule("a"), rule("b"))
    await clock.look()
    (check,) = await examine_namespace(settings(bench))
    assert (check.verdict, check.found) == ("ok", "2, each of one definition, and with a daemon")


async def test_what_is_wrong_is_named(bench: Bench) -> None:
    old, new = Clockwork(bench, daemon="old"), Clockwork(bench, daemon="new")
    old.load(rule("same"), rule("other", body={"v": 1}), rule("gone"))
    await old.look()
    new.load(rule("same"), rule("other", body={"v": 2}))
    await new.look()
    await old.look()
    let_be_old(bench, 100, "gone")
    found = {check.name: check for check in await examine_namespace(settings(bench))}
    assert found.keys() == {"schedules.other", "schedules.gone"}
    assert {check.verdict for check in found.values()} == {"warn"}
    assert "daemon old has another definition of it than new" in found["schedules.other"].found
    assert "groupflow schedules drop gone" in found["schedules.gone"].remedy
