"""What doctor says of daemons, of schedules, and of types that no running daemon knows."""

from __future__ import annotations

from typing import Any

from groupflow.doctor.examination import examine_namespace
from groupflow.settings.model import Settings
from tests.schedule.clockwork import Clockwork, let_be_old, rule
from tests.store.bench import Bench
from tests.store.story import play

SCHEDULE = {"name": "s", "every": 60, "body": {}}


def settings(bench: Bench, **sections: Any) -> Settings:
    redis = {"url": bench.url, "namespace": bench.keys.namespace}
    return Settings.model_validate({"redis": redis, **sections})


async def test_schedules_that_are_well(bench: Bench) -> None:
    assert len(await examine_namespace(settings(bench))) == 1, "without any"
    clock = Clockwork(bench)
    clock.load(rule("a"), rule("b"))
    await clock.look()
    _, check = await examine_namespace(settings(bench))
    assert (check.verdict, check.found) == ("ok", "2, each of one definition, and with a daemon")


async def test_what_is_wrong_with_schedules_is_named(bench: Bench) -> None:
    old, new = Clockwork(bench, daemon="old"), Clockwork(bench, daemon="new")
    old.load(rule("same"), rule("other", body={"v": 1}), rule("gone"))
    await old.look()
    new.load(rule("same"), rule("other", body={"v": 2}))
    await new.look()
    await old.look()
    let_be_old(bench, 100, "gone")
    found = {check.name: check for check in await examine_namespace(settings(bench))}
    del found["daemons"]
    assert found.keys() == {"schedules.other", "schedules.gone"}
    assert {check.verdict for check in found.values()} == {"warn"}
    assert "daemon old has another definition of it than new" in found["schedules.other"].found
    assert "groupflow schedules drop gone" in found["schedules.gone"].remedy


async def test_daemons(bench: Bench) -> None:
    """One whose lease has run out is none that runs."""
    d1 = "; whose lease has run out, by the last heartbeat: d1"
    for begins, ends, verdict, words in (
        ("", "", "warn", "none is running"),
        ("d1", "", "ok", "1 running"),
        ("d2", "d1", "warn", f"1 running{d1}"),
        ("", "d2", "warn", f"none is running{d1}"),
    ):
        if begins:
            await bench.daemon(begins)
        if ends:
            bench.expire(ends)
        (check,) = await examine_namespace(settings(bench))
        assert (check.name, check.verdict) == ("daemons", verdict)
        assert check.found.partition(" (")[0] == words


async def said(bench: Bench, **sections: Any) -> list[tuple[str, str, str]]:
    found = await examine_namespace(settings(bench, **sections))
    told = [(check.name, check.verdict, check.found) for check in found]
    return [each for each in told if each[0] != "daemons"]


async def test_types_of_the_configuration_that_no_daemon_knows(bench: Bench) -> None:
    """Not those of pools, nor where no daemon runs that has handlers."""
    configured = {
        "handlers": {each: {"exec": ["true"]} for each in ("known", "new")},
        "schedules": [{**SCHEDULE, "type": "ticks"}, {**SCHEDULE, "name": "p", "type": "pulled"}],
        "pools": {"couriers": {"types": ["pulled"]}},
        "groups": [
            {"name": type_, "key": f"{type_}:{{id}}", "on_drained": type_}
            for type_ in ("known", "pulled", "over")
        ],
    }
    assert await said(bench, **configured) == []
    await play(bench, "knows known | d2: knows ticks")
    missing = ("types", "warn", "no running daemon has a handler for 'new', 'over'")
    assert await said(bench, **configured) == [missing]


async def test_types_that_tasks_wait_for(bench: Bench) -> None:
    told = await play(bench, "take a0 b0 | claim a0 b0 | defer a0 b0 | unknown_longer 20")
    ((name, verdict, found),) = await said(bench)
    assert (name, verdict) == ("types", "warn")
    assert "no running daemon has a handler for 't' (2 tasks wait, for 2" in found
    await told.go_on("d2: knows t")
    assert await said(bench) == []
